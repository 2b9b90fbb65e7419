"""The client's side of the conversation, sans-I/O: calls that wait for answers, deliveries that wait for their user.

Survives reconnects: unanswered calls are sent again (the relay takes a repeated message once), subscriptions are renewed,
and a message that comes twice reaches the user once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import sha256
from itertools import count
from typing import Any, Final

import msgspec

from syncline.core.errors import DecodeError, RefusedError, SynclineError, UnavailableError
from syncline.core.limits import RELAY_BATCH, RELAY_CLIENT_SEEN
from syncline.core.verdict import Reason
from syncline.protocols.relay.wire import rpc
from syncline.protocols.relay.wire.rpc import Problem

REASONS: Final = {
    Problem.UNAUTHORISED.label: Reason.UNAUTHORISED,
    Problem.TOO_MANY_REQUESTS.label: Reason.RATE_LIMITED,
    Problem.INVALID_TOPIC.label: Reason.INVALID_TOPIC,
    Problem.PAYLOAD_SIZE.label: Reason.OVERSIZE,
    Problem.MAILBOX_LIMIT.label: Reason.QUOTA_EXCEEDED,
    Problem.SUBSCRIBER_LIMIT.label: Reason.QUOTA_EXCEEDED,
}


Name = tuple[str, bytes]  # topic and hash of a message


class RelayMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as it reaches a subscriber."""

    topic: str
    message: str
    published_at: int  # milliseconds since 1970, by the first server
    tag: int


class Call:
    """One request, until it is answered. `done` is called then."""

    __slots__ = ("done", "error", "payload", "result")

    def __init__(self, payload: bytes, done: Callable[[], None]) -> None:
        self.payload = payload
        self.done = done
        self.result: Any = None
        self.error: SynclineError | None = None


class Parcel:
    """A message in the hands of the client, not yet in those of its user."""

    __slots__ = ("message", "number")

    def __init__(self, message: RelayMessage, number: int) -> None:
        self.message = message
        self.number = number  # of its newest delivery; the relay sends again what is not acknowledged


class Caller:
    """Everything a client has to remember."""

    def __init__(self, first_id: int) -> None:
        self._ids = count(first_id)
        self._calls: dict[int, Call] = {}
        self._held: dict[Name, Parcel] = {}
        self._seen: OrderedDict[Name, None] = OrderedDict()
        self.topics: dict[str, None] = {}
        self.outgoing: list[bytes] = []  # to be sent on the present connection

    def call(self, method: str, params: Any, done: Callable[[], None]) -> Call:
        """Queue a request; its answer is in the returned call when `done` is called."""
        number = next(self._ids)
        call = self._calls[number] = Call(rpc.request(number, method, params), done)
        self.outgoing.append(call.payload)
        return call

    def forget(self, call: Call) -> None:
        """Nobody waits for this answer any more."""
        for number in [each for each, known in self._calls.items() if known is call]:
            del self._calls[number]

    def reopen(self) -> None:
        """A new connection is there: renew subscriptions, then repeat what was not answered."""
        topics = list(self.topics)
        self.outgoing = [
            rpc.request(next(self._ids), "irn_batchSubscribe", {"topics": topics[start : start + RELAY_BATCH]})
            for start in range(0, len(topics), RELAY_BATCH)
        ]
        self.outgoing += [call.payload for call in self._calls.values()]

    def fail(self, error: SynclineError) -> None:
        """It is over: everybody who waits is told."""
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.error = error
            call.done()

    def receive(self, payload: bytes) -> Parcel | None:
        """One message of the relay; returns what is new for the user."""
        try:
            answer = rpc.decode_answer(payload)
            if answer.method == "irn_subscription":
                return self._delivery(answer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise DecodeError(f"not an answer of a relay: {error}") from None
        call = self._calls.pop(answer.id, None) if isinstance(answer.id, int) else None
        if call is not None:
            if answer.error is not None:
                call.error = _error(answer.error)
            else:
                call.result = msgspec.json.decode(answer.result or b"null")
            call.done()
        return None

    def _delivery(self, answer: rpc.Answer) -> Parcel | None:
        data = msgspec.json.decode(answer.params, type=rpc.SubscriptionParams).data
        if not isinstance(answer.id, int):
            raise DecodeError("a delivery needs a number")
        name = _name(data.topic, data.message)
        held = self._held.get(name)
        if held is not None:
            held.number = answer.id
            return None
        if name in self._seen or data.topic not in self.topics:
            self._acknowledge(answer.id)
            return None
        message = RelayMessage(topic=data.topic, message=data.message, published_at=data.publishedAt, tag=data.tag)
        parcel = self._held[name] = Parcel(message, answer.id)
        return parcel

    def taken(self, parcel: Parcel) -> None:
        """The user has it: acknowledge."""
        name = _name(parcel.message.topic, parcel.message.message)
        if self._held.pop(name, None) is None:
            return
        self._seen[name] = None
        if len(self._seen) > RELAY_CLIENT_SEEN:
            self._seen.popitem(last=False)
        self._acknowledge(parcel.number)

    def _acknowledge(self, number: int) -> None:
        self.outgoing.append(rpc.result(number, True))

    def leave(self, topic: str) -> None:
        """No longer subscribed: what is held of this topic is nobody's."""
        self.topics.pop(topic, None)
        for name in [each for each in self._held if each[0] == topic]:
            self._acknowledge(self._held.pop(name).number)

    def take_outgoing(self) -> Sequence[bytes]:
        outgoing, self.outgoing = self.outgoing, []
        return outgoing


def _name(topic: str, message: str) -> Name:
    """What tells messages apart. Hashes, because ten thousand of the largest would be a gigabyte."""
    return topic, sha256(message.encode()).digest()


def _error(fault: rpc.Fault) -> SynclineError:
    if fault.data == Problem.INTERNAL.label:
        return UnavailableError(fault.message)
    return RefusedError(
        f"{fault.data or fault.code}: {fault.message}", reason=REASONS.get(fault.data, Reason.MALFORMED)
    )
