"""The forwarder, sans-I/O: packets come in by a face, leave by other faces, and the time is an argument.

Forwards Interests along routes, Data back along pending Interests, answers from the content store, and tells loops,
floods and packets out of scope from honest ones. Commands to itself (`/localhost/nfd/…`) go to `management.py`; sockets
are the drivers' business.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random, SystemRandom
from typing import Final, Protocol

import msgspec

from syncline.core.buckets import TokenBucket
from syncline.core.errors import DecodeError, OverloadedError
from syncline.core.limits import (
    NDN_FACE_MALFORMED,
    NDN_FACES,
    NDN_INTERESTS_PER_SECOND,
    NDN_LIFETIME_MS,
    NDN_PACKET_BYTES,
    NDN_PIT_ENTRIES,
    NDN_PIT_PER_FACE,
)
from syncline.core.verdict import Reason
from syncline.formats.ndn import types as t
from syncline.formats.ndn.link import decode_link, encode_nack, with_incoming, with_token
from syncline.formats.ndn.names import Name, parse
from syncline.formats.ndn.packets import Data, Interest, decode_data, decode_interest, with_nonce
from syncline.networks.ndn.content import Admission, ContentStore, anything
from syncline.networks.ndn.faces import Face
from syncline.networks.ndn.pending import Asked, DeadNonces, Pending, PendingTable, Waiting
from syncline.networks.ndn.routes import Hop, Routes, Strategies

LOCALHOST: Final = parse("/localhost")
LOCALHOP: Final = parse("/localhop")
COMMANDS: Final = (parse("/localhost/nfd"), parse("/localhop/nfd"))
RETRY_SECONDS: Final = 0.1  # the same Interest is not sent to the same face again before this
_SYNC_VERSIONS: Final = (parse("/v=2"), parse("/v=3"))


class Codec(Protocol):
    """How the forwarder reads packets; another one is only of use to benchmarks."""

    def interest(self, wire: bytes) -> Interest: ...

    def data(self, wire: bytes) -> Data: ...


class OwnCodec:
    interest = staticmethod(decode_interest)
    data = staticmethod(decode_data)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Caps an operator may change."""

    faces: int = NDN_FACES
    pending: int = NDN_PIT_ENTRIES
    pending_per_face: int = NDN_PIT_PER_FACE
    interests_per_second: int = NDN_INTERESTS_PER_SECOND


Commander = Callable[[Face, Interest, float], bytes | None]  # answers Interests for the forwarder itself


class Forwarder:
    """Faces, tables and the rules between them.

    Guarantee: Data reaches exactly the faces that asked for it and only from a face that was asked; every table is
    bounded; a malformed packet changes nothing but a counter.
    """

    def __init__(
        self,
        *,
        admit: Admission = anything,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        content_packets: int | None = None,
        codec: Codec | None = None,
        random: Random | None = None,
    ) -> None:
        self.limits = limits
        self.faces: dict[int, Face] = {}
        self.routes = Routes()
        self.strategies = Strategies()
        self.pending = PendingTable()
        self.nonces = DeadNonces()
        self.content = ContentStore(admit) if content_packets is None else ContentStore(admit, content_packets)
        self.commander: Commander | None = None
        self.loops = self.out_of_scope = self.no_route = self.over_quota = 0
        self._codec: Codec = codec or OwnCodec()
        self._random = random or SystemRandom()
        self._next_face = 256  # lower numbers are reserved, as in NFD

    # faces

    def add_face(self, uri: str, *, local: bool, notify: Callable[[], None], now: float, inside: bool = False) -> Face:
        """A new face. `notify` is called when it has packets to send, or is to be closed."""
        if len(self.faces) >= self.limits.faces:
            raise OverloadedError("no room for another face", about=uri)
        number = self._next_face
        self._next_face += 1
        rate = self.limits.interests_per_second
        face = Face(number, uri, local=local, inside=inside, bucket=TokenBucket(rate, rate, now), notify=notify)
        self.faces[number] = face
        return face

    def remove_face(self, face: Face) -> list[Name]:
        """Forget a face; the prefixes it had routes for."""
        face.closed = True
        if self.faces.pop(face.id, None) is None:
            return []
        return self.routes.remove_face(face.id)

    # packets

    def receive(self, face: Face, packets: list[bytes], now: float) -> None:
        """Take in what came by a face."""
        counters = face.counters
        for packet in packets:
            if face.closed:
                return
            counters.in_bytes += len(packet)
            try:
                self._packet(face, packet, now)
            except DecodeError:
                self.malformed(face)

    def malformed(self, face: Face) -> None:
        """Count a packet nobody can read; too many end the connection."""
        face.counters.malformed += 1
        if face.counters.malformed >= NDN_FACE_MALFORMED:
            face.close()

    def tick(self, now: float) -> list[Name]:
        """Let what is overdue expire; the prefixes that lost a route. To be called several times a second."""
        for entry in self.pending.expired(now):
            self._forget(entry, now, satisfied=False)
        return self.routes.expire(now)

    def _packet(self, face: Face, packet: bytes, now: float) -> None:
        if len(packet) > NDN_PACKET_BYTES:
            raise DecodeError("a packet too large", reason=Reason.OVERSIZE)
        kind, token = packet[0] if packet else 0, None
        if kind == t.LP_PACKET:
            link = face.partials.add(decode_link(packet), now)
            if link is None or not link.fragment:
                return
            packet, token, kind = link.fragment, link.pit_token, link.fragment[0]
            if link.nack is not None:
                self._nack(face, self._codec.interest(packet), link.nack, now)
                return
        if kind == t.DATA:
            self._data(face, self._codec.data(packet), now)
        elif kind == t.INTEREST:
            self._interest(face, self._codec.interest(packet), token, now)
        else:
            raise DecodeError("neither Interest nor Data")

    # Interests

    def _interest(self, face: Face, interest: Interest, token: bytes | None, now: float) -> None:
        face.counters.in_interests += 1
        nonce = interest.nonce
        if nonce is None:  # applications may leave it to us
            nonce = self._random.randbytes(4)
            interest = with_nonce(interest, nonce)
        name = interest.name
        if interest.hop_limit == 0 or (name.startswith(LOCALHOST) and not face.local):
            self.out_of_scope += 1
            return
        if face.bucket.take(now):
            self._refuse(face, interest, t.NACK_CONGESTION, token)
            return
        if name.startswith(COMMANDS):
            self._command(face, interest, token, now)
            return
        entry = self.pending.find(interest)
        if name + nonce in self.nonces or (entry is not None and entry.knows_nonce(nonce, face.id)):
            self.loops += 1
            self._send_nack(face, interest, t.NACK_DUPLICATE, token)
            return
        if entry is None:
            cached = self.content.find(interest, face.id, now)
            if cached is not None:
                self._send_data(face, cached.data, cached.face, token)
                return
        self._wait(face, interest, nonce, entry, token, now)

    def _wait(
        self, face: Face, interest: Interest, nonce: bytes, entry: Pending | None, token: bytes | None, now: float
    ) -> None:
        """Note that a face wants this, and forward the Interest."""
        known = entry is not None and face.id in entry.waiting
        if not known and (
            face.pending >= self.limits.pending_per_face or (entry is None and len(self.pending) >= self.limits.pending)
        ):
            self._refuse(face, interest, t.NACK_CONGESTION, token)
            return
        hops = self._hops(face, interest)
        if not hops:
            self.no_route += 1
            if entry is None:
                self._send_nack(face, interest, t.NACK_NO_ROUTE, token)
                return
        if entry is None:
            entry = self.pending.add(interest)
        expires = now + min(interest.lifetime, NDN_LIFETIME_MS) / 1_000
        if not known:
            face.pending += 1
        entry.waiting[face.id] = Waiting(interest, _one_hop_less(interest), nonce, token, expires)
        self.pending.keep_until(entry, expires)
        self._forward(entry, hops, entry.waiting[face.id], now)

    def _hops(self, face: Face, interest: Interest) -> list[Hop]:
        """Where this Interest may go, cheapest first."""
        found = self.routes.hops(interest.name)
        if interest.hints and (not found or found is self.routes.hops(b"")):
            # Nothing better than the default route leads to the name itself: we are not yet where the hint points to.
            found = next((hops for hint in interest.hints if (hops := self.routes.hops(hint))), found)
        near = (  # it may leave to applications of this machine only
            interest.name.startswith(LOCALHOST)
            or (interest.name.startswith(LOCALHOP) and not face.local)
            or interest.hop_limit == 1
        )
        faces = self.faces
        return [
            hop for hop in found
            if hop.face != face.id and (next_face := faces.get(hop.face)) is not None and (next_face.local or not near)
        ]  # fmt: skip

    def _forward(self, entry: Pending, hops: list[Hop], waiting: Waiting, now: float) -> None:
        self._forget_gone(entry, now)
        if self._is_multicast(entry.name):
            for hop in hops:
                asked = entry.asked.get(hop.face)
                if asked is None or asked.at + RETRY_SECONDS <= now:
                    self._ask(entry, hop.face, waiting, now)
            return
        untried = next((hop for hop in hops if hop.face not in entry.asked), None)
        if untried is not None and not any(asked.nack is None for asked in entry.asked.values()):
            self._ask(entry, untried.face, waiting, now)  # the first try, or all tried so far said no
            return
        # A pending Interest is asked again only when its consumer is: try a face not tried yet, else the longest ago.
        due = [(asked.at, face) for face, asked in entry.asked.items() if any(hop.face == face for hop in hops)]
        if due and max(due)[0] + RETRY_SECONDS <= now:
            self._ask(entry, untried.face if untried is not None else min(due)[1], waiting, now)

    def _forget_gone(self, entry: Pending, now: float) -> None:
        """A face that is gone will not answer: who waits need not wait for it."""
        for face in [face for face in entry.asked if face not in self.faces]:
            self.nonces.add(entry.name, entry.asked.pop(face).nonce, now)

    def _ask(self, entry: Pending, face: int, waiting: Waiting, now: float) -> None:
        entry.asked[face] = Asked(waiting.nonce, now)
        to = self.faces[face]
        if to.send(waiting.wire):
            to.counters.out_interests += 1

    def _is_multicast(self, name: Name) -> bool:
        """Sync Interests go to every member of the group, unless a strategy was chosen for their prefix."""
        chosen = self.strategies.find(name)
        if chosen is not None:
            return chosen == "multicast"
        return len(name) > 37 and name[-34] == t.PARAMETERS_DIGEST and name[-37:-34] in _SYNC_VERSIONS

    # Data

    def _data(self, face: Face, data: Data, now: float) -> None:
        face.counters.in_data += 1
        if data.name.startswith(LOCALHOST) and not face.local:
            self.out_of_scope += 1
            return
        # Only a face that was asked may answer: others cannot slip content in.
        satisfied = [entry for entry in self.pending.matches(data) if face.id in entry.asked]
        if not satisfied:
            face.counters.unsolicited += 1
            return
        first = satisfied[0]
        self.content.add(data, face.id, now, (next(iter(first.waiting)), first.name))
        for entry in satisfied:
            for number, waiting in entry.waiting.items():
                to = self.faces.get(number)
                if to is not None and number != face.id and waiting.expires > now:
                    self._send_data(to, data, face.id, waiting.token)
            self.pending.remove(entry)
            self._forget(entry, now, satisfied=True)

    def _nack(self, face: Face, interest: Interest, reason: int, now: float) -> None:
        face.counters.in_nacks += 1
        entry = self.pending.find(interest)
        asked = None if entry is None else entry.asked.get(face.id)
        if entry is None or asked is None or asked.nonce != interest.nonce:
            return
        asked.nack = reason
        self._forget_gone(entry, now)
        if any(other.nack is None for other in entry.asked.values()):
            return  # somebody else may still answer
        for number, waiting in list(entry.waiting.items()):
            to = self.faces.get(number)
            if to is None or self._is_multicast(entry.name):
                continue
            hops = [hop for hop in self._hops(to, waiting.interest) if hop.face not in entry.asked]
            if hops:
                self._ask(entry, hops[0].face, waiting, now)
                return
        # Numbers grow with severity, but a Nack without a reason is the most severe.
        reasons = [asked.nack for asked in entry.asked.values() if asked.nack]
        mildest = min(reasons, default=0)
        for number, waiting in entry.waiting.items():
            if (to := self.faces.get(number)) is not None and to.send(
                encode_nack(waiting.interest.wire, mildest, waiting.token)
            ):
                to.counters.out_nacks += 1
        self.pending.remove(entry)
        self._forget(entry, now, satisfied=False)

    def _forget(self, entry: Pending, now: float, *, satisfied: bool) -> None:
        """What follows when an entry is gone: quotas are freed, nonces remembered."""
        for number in entry.waiting:
            face = self.faces.get(number)
            if face is not None:
                face.pending -= 1
                if satisfied:
                    face.counters.satisfied += 1
                else:
                    face.counters.unsatisfied += 1
        for asked in entry.asked.values():  # what was sent on may come round
            self.nonces.add(entry.name, asked.nonce, now)

    # answers of our own

    def _command(self, face: Face, interest: Interest, token: bytes | None, now: float) -> None:
        answer = None if self.commander is None else self.commander(face, interest, now)
        if answer is None:
            self._send_nack(face, interest, t.NACK_NO_ROUTE, token)
        elif face.send(answer if token is None else with_token(token, answer)):
            face.counters.out_data += 1

    def _refuse(self, face: Face, interest: Interest, reason: int, token: bytes | None) -> None:
        self.over_quota += 1
        face.counters.refused += 1
        self._send_nack(face, interest, reason, token)

    def _send_nack(self, face: Face, interest: Interest, reason: int, token: bytes | None) -> None:
        if face.send(encode_nack(interest.wire, reason, token)):
            face.counters.out_nacks += 1

    def _send_data(self, face: Face, data: Data, incoming: int, token: bytes | None) -> None:
        wire = data.wire
        if face.inside:
            wire = with_incoming(incoming, wire)
        elif token is not None:
            wire = with_token(token, wire)
        if face.send(wire):
            face.counters.out_data += 1


def _one_hop_less(interest: Interest) -> bytes:
    """The Interest as it goes on."""
    if interest.hop_limit is None:
        return interest.wire
    at = interest.hop_limit_at
    return interest.wire[:at] + bytes((interest.hop_limit - 1,)) + interest.wire[at + 1 :]
