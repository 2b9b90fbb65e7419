"""Messages of SDS exchange as frozen structs, and the frames that carry them.

A frame is a size-prefixed FlatBuffer: four bytes of length, little-endian, then the buffer with the file identifier of
its message. Tables and field order are those of `messages.fbs`. What a message may say is decided in `rules.py` and
`session.py`.
"""

from __future__ import annotations

import hashlib
from enum import IntEnum
from functools import cache
from importlib.resources import files
from typing import Final, TypeAlias

import msgspec

from syncline.core.errors import DecodeError
from syncline.core.limits import SDS_ANSWER_BYTES, SDS_MESSAGE_BYTES
from syncline.core.verdict import Reason
from syncline.formats.flatbuffers import Reader, Writer, fbs
from syncline.formats.flatbuffers.linking import link

PROTOCOL_ID: Final = "/spacedatanetwork/sds-exchange/1.0.0"
VERSION: Final = "1.0.0"
SIGNED_PREFIX: Final = b"sds-exchange/1.0.0\0"
FRAME_OVERHEAD: Final = 4  # the length in front


class ErrorCode(IntEnum):
    """The codes of SDSError. The last is never sent: a caller raises it for itself."""

    INVALID_MESSAGE = 1
    INVALID_SIGNATURE = 2
    RATE_LIMITED = 3
    SCHEMA_UNKNOWN = 4
    QUERY_TIMEOUT = 5
    PEER_UNAVAILABLE = 6


class Filter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    field: str = ""
    operator: str = ""
    value: str = ""
    and_filters: tuple[Filter, ...] = ()
    or_filters: tuple[Filter, ...] = ()


class Publish(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    message_id: str = ""
    timestamp: str = ""
    ttl: int = 0
    schema: str = ""
    payload: bytes = b""
    publisher_id: str = ""
    signature: bytes = b""


class Subscribe(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    subscription_id: str = ""
    schemas: tuple[str, ...] = ()
    filter: Filter | None = None
    include_historical: bool = False
    historical_limit: int = 0


class Unsubscribe(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    subscription_id: str = ""


class Query(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    query_id: str = ""
    schema: str = ""
    filter: Filter | None = None
    order_by: str = ""
    order: str = ""
    limit: int = 0
    offset: int = 0
    include_signatures: bool = False


class Held(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """SDSRecord: one publish as a peer holds it. Without its last three fields, or unsigned, it proves nothing."""

    schema: str = ""
    data: bytes = b""
    received_at: str = ""
    publisher_id: str = ""
    signature: bytes = b""
    message_id: str = ""
    timestamp: str = ""
    ttl: int = 0

    @property
    def published(self) -> Publish:
        """The message it was."""
        return Publish(
            message_id=self.message_id,
            timestamp=self.timestamp,
            ttl=self.ttl,
            schema=self.schema,
            payload=self.data,
            publisher_id=self.publisher_id,
            signature=self.signature,
        )


class QueryResponse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    query_id: str = ""
    total_count: int = 0
    returned_count: int = 0
    records: tuple[Held, ...] = ()
    has_more: bool = False
    next_offset: int = 0


class Sync(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    sync_id: str = ""
    schemas: tuple[str, ...] = ()
    since: str = ""
    bloom_filter: bytes = b""
    bloom_hash_count: int = 0


class SyncResponse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    sync_id: str = ""
    records: tuple[Held, ...] = ()
    has_more: bool = False


class Ack(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    request_id: str = ""
    stored: tuple[str, ...] = ()


class Refusal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """SDSError. `retry_after` in seconds; 0 where waiting does not help."""

    code: int = 0
    message: str = ""
    request_id: str = ""
    retry_after: int = 0


class Hello(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    protocol_version: str = ""
    supported_schemas: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()


Message: TypeAlias = (
    Publish | Subscribe | Unsubscribe | Query | QueryResponse | Sync | SyncResponse | Ack | Refusal | Hello | Held
)
# SREC is never sent alone: it is how the journal keeps a record that came in an answer.
KINDS: Final[dict[bytes, tuple[type[Message], str]]] = {
    b"SPUB": (Publish, "SDSPublish"),
    b"SSUB": (Subscribe, "SDSSubscribe"),
    b"SUNS": (Unsubscribe, "SDSUnsubscribe"),
    b"SQRY": (Query, "SDSQuery"),
    b"SRSP": (QueryResponse, "SDSQueryResponse"),
    b"SSYN": (Sync, "SDSSync"),
    b"SSYR": (SyncResponse, "SDSSyncResponse"),
    b"SACK": (Ack, "SDSAck"),
    b"SERR": (Refusal, "SDSError"),
    b"SHEL": (Hello, "SDSHello"),
    b"SREC": (Held, "SDSRecord"),
}
_ANSWERS: Final = frozenset({b"SRSP", b"SSYR", b"SREC"})  # each may hold a record that was as large as may be
_IDENTIFIERS: Final[dict[type[Message], bytes]] = {kind: identifier for identifier, (kind, _) in KINDS.items()}


def encode(message: Message) -> bytes:
    """The frame of a message."""
    writer = codec(_IDENTIFIERS[type(message)])[1]
    return writer.encode(msgspec.to_builtins(message, builtin_types=(bytes,)))


def decode(frame: bytes) -> Message:
    """The message in a frame. Raises DecodeError: oversize, malformed or too complex."""
    identifier = frame[8:12]
    allowed = SDS_ANSWER_BYTES if identifier in _ANSWERS else SDS_MESSAGE_BYTES
    if len(frame) > allowed + FRAME_OVERHEAD:
        raise DecodeError(f"{len(frame)} bytes, {allowed} are allowed", reason=Reason.OVERSIZE)
    if identifier not in KINDS:
        raise DecodeError("not a message of SDS exchange")
    fields = codec(identifier)[0].decode(frame)
    found: Message = msgspec.convert(fields, KINDS[identifier][0])
    return found


def signed_bytes(message: Publish) -> bytes:
    """What the publisher signs: FlatBuffers themselves are not signed, because builders differ."""
    parts = (
        message.message_id.encode(),
        message.timestamp.encode(),
        str(message.ttl).encode(),
        message.schema.encode(),
        message.publisher_id.encode(),
        message.payload,
    )
    return SIGNED_PREFIX + b"".join(len(part).to_bytes(4, "little") + part for part in parts)


def record_id(message: Publish) -> bytes:
    """The identity of a message: sha256 of what is signed."""
    return hashlib.sha256(signed_bytes(message)).digest()


@cache
def codec(identifier: bytes) -> tuple[Reader, Writer]:
    """What reads and writes the message of this file identifier."""
    text = (files("syncline.protocols.sds") / "messages.fbs").read_text()
    schema = link({"messages": fbs.parse(text)}, KINDS[identifier][1], identifier.decode())
    return Reader(schema), Writer(schema)
