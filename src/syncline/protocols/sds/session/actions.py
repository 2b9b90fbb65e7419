"""What a session asks its driver to do, in order."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from syncline.core.verdict import Reason
from syncline.protocols.sds.session.scan import Scan
from syncline.protocols.sds.wire import ErrorCode, Message, Publish, Refusal, encode


class Send(msgspec.Struct, frozen=True):
    """Send a frame (with its length in front)."""

    frame: bytes


class Close(msgspec.Struct, frozen=True):
    """Send what was asked for before, then end the stream."""

    why: str


class Blame(msgspec.Struct, frozen=True):
    """The peer broke the protocol: count it against it."""

    why: str


class Store(msgspec.Struct, frozen=True):
    """Hand a published message to the sink, and tell the session (`stored`) what became of it."""

    message: Publish
    raw: bytes


class Serve(msgspec.Struct, frozen=True):
    """Run a scan (a query's, a sync's, a subscription's) to its end, and tell the session (`served`)."""

    scan: Scan


class Unsubscribed(msgspec.Struct, frozen=True):
    """Stop the scan of this subscription."""

    subscription_id: str


class Replied(msgspec.Struct, frozen=True):
    """A part of, or the whole answer to a request of ours. `last` says that nothing more comes for it."""

    request_id: str
    message: Message
    last: bool


class Refused(msgspec.Struct, frozen=True):
    """A request of ours was refused."""

    request_id: str
    refusal: Refusal


class Pushed(msgspec.Struct, frozen=True):
    """A message of one of our subscriptions."""

    message: Publish
    raw: bytes


Action: TypeAlias = Send | Close | Blame | Store | Serve | Unsubscribed | Replied | Refused | Pushed

CODES: dict[Reason, ErrorCode] = {
    Reason.INVALID_SIGNATURE: ErrorCode.INVALID_SIGNATURE,
    Reason.INVALID_PUBLISHER: ErrorCode.INVALID_SIGNATURE,
    Reason.RATE_LIMITED: ErrorCode.RATE_LIMITED,
    Reason.QUOTA_EXCEEDED: ErrorCode.RATE_LIMITED,
    Reason.OVERLOADED: ErrorCode.RATE_LIMITED,
    Reason.UNKNOWN_SCHEMA: ErrorCode.SCHEMA_UNKNOWN,
}


def code_of(reason: Reason) -> ErrorCode:
    """The error code a peer is told for a reason; whatever has none of its own is an invalid message."""
    return CODES.get(reason, ErrorCode.INVALID_MESSAGE)


def refusal(code: ErrorCode, message: str, request_id: str = "", retry_after: int = 0) -> Send:
    """An error frame."""
    text = message if len(message) <= 500 else message[:499] + "…"
    return Send(encode(Refusal(code=code, message=text, request_id=request_id, retry_after=retry_after)))
