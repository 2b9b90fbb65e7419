"""A face: the forwarder's end of one connection, with its outgoing packets, its counters and its limits.

Knows nothing of sockets. A driver takes what is in `outgoing` whenever `notify` was called.
"""

from __future__ import annotations

from collections.abc import Callable

from syncline.core.buckets import TokenBucket
from syncline.core.errors import DecodeError
from syncline.core.limits import (
    NDN_FACE_QUEUE_BYTES,
    NDN_FRAGMENTS,
    NDN_PACKET_BYTES,
    NDN_PARTIAL_SECONDS,
    NDN_PARTIALS_PER_FACE,
)
from syncline.core.verdict import Reason
from syncline.formats.ndn.link import LinkPacket


class Counters:
    """What passed one face."""

    __slots__ = (
        "dropped", "in_bytes", "in_data", "in_interests", "in_nacks", "malformed", "out_bytes", "out_data",
        "out_interests", "out_nacks", "refused", "satisfied", "unsatisfied", "unsolicited",
    )  # fmt: skip

    def __init__(self) -> None:
        self.in_interests = self.in_data = self.in_nacks = self.in_bytes = 0
        self.out_interests = self.out_data = self.out_nacks = self.out_bytes = 0
        self.malformed = self.unsolicited = self.refused = self.dropped = 0
        self.satisfied = self.unsatisfied = 0


class Face:
    """One connection. `local` faces may use names below /localhost; `inside` ones are told where Data came from."""

    __slots__ = (
        "_notify", "bucket", "closed", "counters", "id", "inside", "local", "outgoing", "outgoing_bytes", "partials",
        "pending", "uri",
    )  # fmt: skip

    def __init__(
        self, number: int, uri: str, *, local: bool, inside: bool, bucket: TokenBucket, notify: Callable[[], None]
    ) -> None:
        self.id = number
        self.uri = uri
        self.local = local
        self.inside = inside  # an application in the forwarder's own process
        self.bucket = bucket
        self.counters = Counters()
        self.outgoing: list[bytes] = []
        self.outgoing_bytes = 0
        self.pending = 0  # PIT entries that wait for this face
        self.partials = Reassembly()
        self.closed = False
        self._notify = notify

    def send(self, packet: bytes) -> bool:
        """Queue a packet; False if the reader is so slow that it was dropped."""
        if self.closed or self.outgoing_bytes + len(packet) > NDN_FACE_QUEUE_BYTES:
            self.counters.dropped += 1
            return False
        self.outgoing.append(packet)
        self.outgoing_bytes += len(packet)
        if len(self.outgoing) == 1:
            self._notify()
        return True

    def take(self) -> list[bytes]:
        """All queued packets, which the driver now sends."""
        packets, self.outgoing = self.outgoing, []
        self.counters.out_bytes += self.outgoing_bytes
        self.outgoing_bytes = 0
        return packets

    def close(self) -> None:
        """Tell the driver to hang up."""
        if not self.closed:
            self.closed = True
            self._notify()


class _Partial:
    __slots__ = ("deadline", "first", "pieces", "size")

    def __init__(self, count: int, deadline: float) -> None:
        self.pieces: dict[int, bytes] = {}
        self.first: LinkPacket | None = None
        self.size = 0
        self.deadline = deadline


class Reassembly:
    """Puts fragments of one face together, within bounds."""

    __slots__ = ("_partials",)

    def __init__(self) -> None:
        self._partials: dict[tuple[int, int], _Partial] = {}

    def __len__(self) -> int:
        return len(self._partials)

    def add(self, piece: LinkPacket, now: float) -> LinkPacket | None:
        """The whole packet with the headers of its first fragment, once all fragments are there."""
        if piece.fragments == 1:
            return piece
        assert piece.sequence is not None
        if piece.fragments > NDN_FRAGMENTS:
            raise DecodeError(f"{piece.fragments} fragments", reason=Reason.TOO_COMPLEX)
        key = ((piece.sequence - piece.index) % 2**64, piece.fragments)
        partial = self._partials.get(key)
        if partial is None or partial.deadline <= now:
            self._make_room(now)
            partial = self._partials[key] = _Partial(piece.fragments, now + NDN_PARTIAL_SECONDS)
        if piece.index in partial.pieces:
            return None
        partial.size += len(piece.fragment)
        if partial.size > NDN_PACKET_BYTES:
            del self._partials[key]
            raise DecodeError("fragments of a packet that is too large", reason=Reason.OVERSIZE)
        partial.pieces[piece.index] = piece.fragment
        if piece.index == 0:
            partial.first = piece
        if len(partial.pieces) < piece.fragments:
            return None
        del self._partials[key]
        assert partial.first is not None
        whole = b"".join(partial.pieces[index] for index in range(piece.fragments))
        return LinkPacket(whole, partial.first.pit_token, partial.first.nack)

    def _make_room(self, now: float) -> None:
        """Forget what is overdue; if that is not enough, the oldest."""
        for key in [key for key, partial in self._partials.items() if partial.deadline <= now]:
            del self._partials[key]
        while len(self._partials) >= NDN_PARTIALS_PER_FACE:
            del self._partials[next(iter(self._partials))]
