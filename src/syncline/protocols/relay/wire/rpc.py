"""JSON-RPC 2.0 between clients and a relay: requests as structs, answers and deliveries as bytes.

Ids are echoed as they came (real clients send 19-digit strings). What a request does is decided by the session.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

import msgspec

from syncline.core.limits import RELAY_TTL_DEFAULT

RequestId = int | str


class Problem(Enum):
    """Errors a client can get: the code, the name carried in `data`, and what it means."""

    UNAUTHORISED = 3000, "Unauthorized", "the token is missing or not good here"
    TOO_MANY_REQUESTS = 3001, "TooManyRequests", "more requests than this connection's share"
    INVALID_JSON = -32600, "InvalidJson", "not a JSON-RPC 2.0 request"
    INVALID_METHOD = -32600, "InvalidMethod", "no such method"
    INVALID_PARAMS = -32600, "InvalidParams", "parameters missing or of the wrong type"
    INVALID_TOPIC = -32600, "InvalidTopic", "a topic is 32 bytes as 64 lower-case hex digits"
    PAYLOAD_SIZE = -32600, "PayloadSizeExceeded", "the message is too large"
    BATCH_LIMIT = -32600, "BatchLimitExceeded", "too many items in one batch"
    BATCH_EMPTY = -32600, "BatchEmpty", "a batch needs at least one item"
    TTL_TOO_LONG = -32000, "TtlTooLong", "asked to be cached longer than is allowed"
    TTL_TOO_SHORT = -32000, "TtlTooShort", "a message must live at least one second"
    MAILBOX_LIMIT = -32000, "MailboxLimitExceeded", "the topic, the client or the server has no room for more"
    SUBSCRIBER_LIMIT = -32000, "SubscriberLimitExceeded", "too many topics for one client or for the server"
    INTERNAL = -32603, "InternalError", "a fault of the server; try again"

    @property
    def code(self) -> int:
        return int(self.value[0])

    @property
    def label(self) -> str:
        return str(self.value[1])

    @property
    def meaning(self) -> str:
        return str(self.value[2])


class Call(msgspec.Struct, frozen=True, gc=False):
    """A request, or a client's answer to a delivery: only a request has a method."""

    id: RequestId
    jsonrpc: str
    method: str = ""
    params: msgspec.Raw = msgspec.Raw(b"null")
    result: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")


class PublishParams(msgspec.Struct, frozen=True, gc=False):
    topic: str
    message: str
    ttl: int = RELAY_TTL_DEFAULT
    prompt: bool = False
    tag: int = 0


class BatchPublishParams(msgspec.Struct, frozen=True):
    messages: list[PublishParams]


class TopicParams(msgspec.Struct, frozen=True):
    topic: str


class TopicsParams(msgspec.Struct, frozen=True):
    topics: list[str]


class UnsubscribeParams(msgspec.Struct, frozen=True):
    """Clients name a subscription by an id of their own making; (client, topic) identifies it here."""

    topic: str
    id: str = ""


class BatchUnsubscribeParams(msgspec.Struct, frozen=True):
    subscriptions: list[UnsubscribeParams]


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """A cached message as clients see it."""

    topic: str
    message: str
    publishedAt: int  # noqa: N815 - as it is spelled on the wire
    tag: int
    attestation: None = None


class SubscriptionParams(msgspec.Struct, frozen=True):
    """What a client gets with a delivery."""

    id: str
    data: Delivered


class Fault(msgspec.Struct, frozen=True):
    code: int
    message: str
    data: str = ""


class Answer(msgspec.Struct, frozen=True):
    """What a server says to a client: an answer, or a delivery when there is a method."""

    id: RequestId | None
    jsonrpc: str = "2.0"
    method: str = ""
    params: msgspec.Raw = msgspec.Raw(b"")
    result: msgspec.Raw = msgspec.Raw(b"")
    error: Fault | None = None


decode_call: Final = msgspec.json.Decoder(Call).decode
decode_answer: Final = msgspec.json.Decoder(Answer).decode
decode_publish: Final = msgspec.json.Decoder(PublishParams).decode
_encode: Final = msgspec.json.Encoder().encode


def yes(request_id: RequestId) -> bytes:
    """The answer `true`, which most are."""
    return b'{"id":%b,"jsonrpc":"2.0","result":true}' % _encode(request_id)


def result(request_id: RequestId, value: Any) -> bytes:
    """The answer to a request."""
    return b'{"id":%b,"jsonrpc":"2.0","result":%b}' % (_encode(request_id), _encode(value))


def fault(request_id: RequestId | None, problem: Problem, detail: str = "") -> bytes:
    """The answer to a request that is refused."""
    error = Fault(code=problem.code, message=detail or problem.meaning, data=problem.label)
    return b'{"id":%b,"jsonrpc":"2.0","error":%b}' % (_encode(request_id), _encode(error))


def delivery_data(topic: str, message: str, published_at_ms: int, tag: int) -> bytes:
    """The part of a delivery that is the same for every subscriber; encode it once."""
    return _encode(Delivered(topic, message, published_at_ms, tag))


def delivery(number: int, subscription_id: str, data: bytes) -> bytes:
    """A message on its way to one subscriber."""
    return b'{"id":%d,"jsonrpc":"2.0","method":"irn_subscription","params":{"id":"%b","data":%b}}' % (
        number,
        subscription_id.encode(),
        data,
    )


def request(request_id: RequestId, method: str, params: Any) -> bytes:
    """What a client sends."""
    return _encode({"id": request_id, "jsonrpc": "2.0", "method": method, "params": params})
