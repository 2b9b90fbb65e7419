"""Driving the asking side: open a stream, say hello, ask, and collect the answer.

A peer that cannot be reached, or ends the stream in the middle, is UnreachableError: code 6 of the specification, which
is never sent. What a peer refuses is RefusedError with the reason its code stands for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from syncline.core.clock import Clock
from syncline.core.errors import DecodeError, RefusedError, UnreachableError
from syncline.core.limits import SDS_ANSWER_BYTES
from syncline.core.verdict import Reason
from syncline.formats.framing import Framing
from syncline.networks.host import Host, Stream
from syncline.protocols.sds.session import Action, Blame, Close, Pushed, Refused, Replied, Requester, Send
from syncline.protocols.sds.wire import FRAME_OVERHEAD, PROTOCOL_ID, ErrorCode, Held, Refusal

FRAMING: Final = Framing("u32le", SDS_ANSWER_BYTES)
_REASONS: Final = {
    ErrorCode.INVALID_MESSAGE: Reason.INVALID_FIELD,
    ErrorCode.INVALID_SIGNATURE: Reason.INVALID_SIGNATURE,
    ErrorCode.RATE_LIMITED: Reason.RATE_LIMITED,
    ErrorCode.SCHEMA_UNKNOWN: Reason.UNKNOWN_SCHEMA,
    ErrorCode.QUERY_TIMEOUT: Reason.OVERLOADED,
}


class Found(msgspec.Struct, frozen=True):
    """A record that a peer answered with. Unverified unless its signature came along and is good."""

    held: Held
    fields: dict[str, Any]
    verified: bool


class Asking:
    """One stream to a peer, with one request or subscription at a time."""

    def __init__(self, stream: Stream, session: Requester, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._events: deque[Action] = deque()
        self.session = session
        self.received = 0  # bytes
        self.blamed = 0

    async def ask(self, actions: Iterable[Action]) -> None:
        """Send what a session says is to be sent."""
        frames = [action.frame[FRAME_OVERHEAD:] for action in actions if isinstance(action, Send)]
        if frames:
            await self._stream.send_many(frames)

    async def reply(self, request_id: str) -> Replied:
        """The next part of the answer to a request."""
        while True:
            event = await self._next(request_id)
            if isinstance(event, Replied) and event.request_id == request_id:
                return event

    async def push(self, subscription_id: str) -> Pushed:
        """What is pushed next."""
        while True:
            event = await self._next(subscription_id)
            if isinstance(event, Pushed):
                return event

    async def _next(self, request_id: str) -> Action:
        while not self._events:
            await self._receive()
        event = self._events.popleft()
        if isinstance(event, Refused) and event.request_id in (request_id, ""):
            raise refused(event.refusal, self.session.peer)
        if isinstance(event, Close):
            raise DecodeError(event.why, about=self.session.peer)
        return event

    async def _receive(self) -> None:
        content = await self._stream.receive()
        if content is None:
            raise UnreachableError("the peer ended the stream", about=self.session.peer)
        self.received += len(content) + FRAME_OVERHEAD
        events = self.session.receive(len(content).to_bytes(4, "little") + content, self._clock.monotonic())
        self.blamed += sum(isinstance(event, Blame) for event in events)
        self._events.extend(events)
        await self.ask(events)


@asynccontextmanager
async def asking(
    host: Host, peer: str, schemas: Iterable[str], clock: Clock, *, timeout: float
) -> AsyncIterator[Asking]:
    """A stream to a connected peer for the length of the block."""
    stream = await host.open_stream(peer, PROTOCOL_ID, FRAMING, timeout=timeout)
    conversation = Asking(stream, Requester(peer, schemas), clock)
    try:
        await conversation.ask(conversation.session.start())
        yield conversation
    finally:
        if conversation.blamed:
            host.blame(peer, conversation.blamed)
        await stream.close()


def refused(refusal: Refusal, peer: str) -> RefusedError:
    """What a peer's error frame means to a caller."""
    code = ErrorCode(refusal.code) if refusal.code in ErrorCode._value2member_map_ else ErrorCode.INVALID_MESSAGE
    hint = f"try again in {refusal.retry_after} s" if refusal.retry_after else ""
    return RefusedError(
        f"{code.name}: {refusal.message}", reason=_REASONS.get(code, Reason.INVALID_FIELD), hint=hint, about=peer
    )
