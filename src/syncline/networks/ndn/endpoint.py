"""An application's end of a face, sans-I/O: it asks for Data, answers Interests and registers prefixes.

Matches answers to questions and gives up when their time has passed; it never asks twice by itself. Retries, validation
and meaning belong to whoever asks.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from random import Random

import msgspec

from syncline.core.errors import DecodeError, UsageError
from syncline.core.limits import NDN_ENDPOINT_BYTES, NDN_ENDPOINT_PENDING
from syncline.formats.ndn import types as t
from syncline.formats.ndn.link import decode_link, with_token
from syncline.formats.ndn.names import Name, generic, parse
from syncline.formats.ndn.packets import Data, Interest, decode_data, decode_interest, encode_interest
from syncline.formats.ndn.signing import Digest, Signer
from syncline.formats.tlv import encode, integer_element
from syncline.networks.ndn.control import ControlParameters, ControlResponse, decode_response, encode_parameters
from syncline.networks.ndn.faces import Reassembly
from syncline.networks.ndn.routes import CHILD_INHERIT, Prefixes

TIMEOUT = -1  # in place of a Nack's reason


class Request(msgspec.Struct, frozen=True, gc=False):
    """An Interest somebody wants answered."""

    interest: Interest
    token: bytes | None = None


# A Data and the face it reached the forwarder by (0: not told), or None and the reason of a Nack, or TIMEOUT.
Answered = Callable[[Data | None, int], None]
Handler = Callable[[Request], None]


class _Question:
    __slots__ = ("answered", "can_be_prefix", "done", "name")

    def __init__(self, name: Name, can_be_prefix: bool, answered: Answered) -> None:
        self.name = name
        self.can_be_prefix = can_be_prefix
        self.answered = answered
        self.done = False


class Endpoint:
    """Questions that wait, prefixes that are served, packets to send.

    Guarantee: each question is answered exactly once: by a Data that matches it, a Nack or a time-out.
    """

    def __init__(self, random: Random, notify: Callable[[], None] = lambda: None) -> None:
        self.outgoing: list[bytes] = []
        self.malformed = self.unsolicited = self.dropped = 0
        self._outgoing_bytes = 0
        self._random = random
        self._notify = notify
        self._questions: dict[Name, list[_Question]] = {}
        self._prefix_lengths: dict[int, int] = {}
        self._deadlines: list[tuple[float, int, _Question]] = []
        self._order = count()
        self._handlers: Prefixes[Handler] = Prefixes()
        self._partials = Reassembly()
        self._waiting = 0

    def __len__(self) -> int:
        """How many questions wait."""
        return self._waiting

    @property
    def deadline(self) -> float | None:
        """When `tick` has something to do."""
        while self._deadlines and self._deadlines[0][2].done:
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    # asking

    def ask(
        self,
        name: Name,
        answered: Answered,
        now: float,
        *,
        can_be_prefix: bool = False,
        must_be_fresh: bool = False,
        lifetime: int = 4_000,
    ) -> None:
        """Send an Interest; `answered` is called once."""
        wire = encode_interest(
            name,
            nonce=self.nonce(),
            can_be_prefix=can_be_prefix,
            must_be_fresh=must_be_fresh,
            lifetime=lifetime,
        )
        self.ask_with(wire, name, answered, now, can_be_prefix=can_be_prefix, lifetime=lifetime)

    def ask_with(
        self, wire: bytes, name: Name, answered: Answered, now: float, *, can_be_prefix: bool, lifetime: int
    ) -> None:
        """Send an Interest made elsewhere (a signed one, for instance)."""
        if self._waiting >= NDN_ENDPOINT_PENDING:
            answered(None, t.NACK_CONGESTION)
            return
        question = _Question(name, can_be_prefix, answered)
        self._questions.setdefault(name, []).append(question)
        if can_be_prefix:
            self._prefix_lengths[len(name)] = self._prefix_lengths.get(len(name), 0) + 1
        heappush(self._deadlines, (now + lifetime / 1_000, next(self._order), question))
        self._waiting += 1
        if len(self._deadlines) > 2 * self._waiting + 1_024:  # mostly questions answered long before their time
            self._deadlines = [each for each in self._deadlines if not each[2].done]
            heapify(self._deadlines)
        self.send(wire)

    def send(self, wire: bytes) -> None:
        """Queue a packet that needs no answer; what a slow connection has no room for is lost, as on any link."""
        self._outgoing_bytes += len(wire)
        if self._outgoing_bytes > NDN_ENDPOINT_BYTES:
            self._outgoing_bytes -= len(wire)
            self.dropped += 1
            return
        self.outgoing.append(wire)
        if len(self.outgoing) == 1:
            self._notify()

    def nonce(self) -> bytes:
        return self._random.randbytes(4)

    # serving

    def serve(self, prefix: Name, handler: Handler) -> None:
        """Hand Interests below `prefix` to `handler`, unless a longer prefix is served too."""
        if self._handlers.get(prefix) is not None:
            raise UsageError("somebody serves this prefix already")
        self._handlers.put(prefix, handler)

    def unserve(self, prefix: Name) -> None:
        self._handlers.remove(prefix)

    def reply(self, request: Request, data: bytes) -> None:
        """Answer a request."""
        self.send(data if request.token is None else with_token(request.token, data))

    # the face

    def receive(self, packets: list[bytes], now: float) -> None:
        """Take in what came by the face."""
        for packet in packets:
            try:
                self._packet(packet, now)
            except DecodeError:
                self.malformed += 1

    def take(self) -> list[bytes]:
        """All queued packets, which the driver now sends."""
        packets, self.outgoing = self.outgoing, []
        self._outgoing_bytes = 0
        return packets

    def tick(self, now: float) -> None:
        """Give up on questions whose time has passed."""
        while self._deadlines and self._deadlines[0][0] <= now:
            question = heappop(self._deadlines)[2]
            if not question.done:
                self._remove(question)
                question.answered(None, TIMEOUT)

    def fail(self) -> None:
        """Give up on everything: the connection is gone."""
        for question in [each for same in self._questions.values() for each in same]:
            self._remove(question)
            question.answered(None, TIMEOUT)

    # prefix registration

    def command(
        self,
        verb: str,
        parameters: ControlParameters,
        answered: Callable[[ControlResponse | None], None],
        now: float,
        wall_ms: int,
        *,
        local: bool,
        signer: Signer | None = None,
    ) -> None:
        """Give the forwarder a command (`rib/register`); None means it did not answer."""
        scope = "/localhost/nfd/" if local else "/localhop/nfd/"
        name = parse(scope + verb) + generic(encode_parameters(parameters))
        extra = encode(t.SIGNATURE_NONCE, self._random.randbytes(8)) + integer_element(t.SIGNATURE_TIME, wall_ms)
        wire = encode_interest(
            name, nonce=self.nonce(), lifetime=4_000, parameters=b"", signer=signer or Digest(), signature_extra=extra
        )

        def understood(data: Data | None, reason: int) -> None:
            try:
                answered(None if data is None else decode_response(data.content))
            except DecodeError:
                answered(None)

        full = decode_interest(wire).name
        self.ask_with(wire, full, understood, now, can_be_prefix=False, lifetime=4_000)

    def _packet(self, packet: bytes, now: float) -> None:
        token, incoming = None, 0
        if packet[:1] == b"\x64":
            link = self._partials.add(decode_link(packet), now)
            if link is None or not link.fragment:
                return
            if link.nack is not None:
                self._nacked(decode_interest(link.fragment), link.nack)
                return
            packet, token, incoming = link.fragment, link.pit_token, link.incoming
        if packet[:1] == b"\x06":
            self._data(decode_data(packet), incoming)
        else:
            interest = decode_interest(packet)
            handler = self._handlers.find(interest.name)
            if handler is not None:
                handler(Request(interest, token))

    def _data(self, data: Data, incoming: int) -> None:
        name = data.name
        matched = list(self._questions.get(name, ()))
        for length in self._prefix_lengths:
            if length < len(name):
                matched += [each for each in self._questions.get(name[:length], ()) if each.can_be_prefix]
        if not matched:
            self.unsolicited += 1
        for question in matched:
            self._remove(question)
        for question in matched:
            question.answered(data, incoming)

    def _nacked(self, interest: Interest, reason: int) -> None:
        for question in list(self._questions.get(interest.name, ())):
            if question.can_be_prefix is interest.can_be_prefix:
                self._remove(question)
                question.answered(None, reason)

    def _remove(self, question: _Question) -> None:
        question.done = True
        self._waiting -= 1
        same = self._questions[question.name]
        same.remove(question)
        if not same:
            del self._questions[question.name]
        if question.can_be_prefix:
            left = self._prefix_lengths[len(question.name)] - 1
            if left:
                self._prefix_lengths[len(question.name)] = left
            else:
                del self._prefix_lengths[len(question.name)]


def registration(prefix: Name) -> ControlParameters:
    """What to tell a forwarder so that Interests below `prefix` come here."""
    return ControlParameters(name=prefix, origin=0, cost=0, flags=CHILD_INHERIT)
