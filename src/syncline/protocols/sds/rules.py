"""Which messages are good: the order of checks of PROTOCOLS, from bytes to verdict, with time and context passed in.

`judge` is what the node asks; `content` is the same without the record, and the lake asks it again with the arrival time
for now. Duplicates are seen by the journal, rates by the session.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

import base58
import msgspec

from syncline.core.errors import DecodeError
from syncline.core.keys import PEER_ID_PREFIX, NodeKey, verify
from syncline.core.limits import (
    RAW_INLINE_MAX,
    SDS_ANSWER_BYTES,
    SDS_MESSAGE_BYTES,
    SDS_RATED_PEERS,
    SDS_TEXT_MAX,
    SECOND,
)
from syncline.core.record import Arrival, Incoming
from syncline.core.verdict import ACCEPT, Reason, Verdict, ignore, reject
from syncline.formats.records import iso_time
from syncline.protocols.sds.catalogue import NAMES, Standard, plain_name, standard
from syncline.protocols.sds.epochs import epoch_of
from syncline.protocols.sds.wire import FRAME_OVERHEAD, Held, Publish, decode, encode, record_id, signed_bytes

PROTOCOL: Final = "sds"
FUTURE_MAX: Final = 300 * SECOND  # how far clocks may differ
TOPIC_PREFIX: Final = "/spacedatanetwork"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_TEXT_MAX: Final = 64
_PEER_ID_TEXT_MAX: Final = 64

# What a record is about, by schema: the field whose value the journal indexes as the record's key.
KEY_FIELDS: Final[dict[str, str]] = {
    "CAT": "NORAD_CAT_ID", "CDM": "MESSAGE_ID", "CRM": "ID", "CSM": "OBJECT_1.NORAD_CAT_ID", "CTR": "ID",
    "EOO": "NORAD_CAT_ID", "EOP": "DATE", "EPM": "DN", "HYP": "NAME", "IDM": "ID", "LDM": "MISSION_NAME",
    "MPE": "ENTITY_ID", "OMM": "NORAD_CAT_ID", "OSM": "OBJECT_ID", "PNM": "CID", "PRG": "NAME", "ROC": "NAME",
    "SIT": "ID", "TDM": "OBSERVER_ID",
}  # fmt: skip


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What a judgement depends on beside the bytes and the time they came."""

    network: str = "mainnet"
    schemas: frozenset[str] = frozenset(NAMES)
    memory: int | None = None  # how long ids are remembered after the timestamp; None: no message is too old


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """What the bytes say and whether they are good. `message` is None when they say nothing."""

    verdict: Verdict
    kind: str = "unknown"
    message: Publish | None = None
    published_at: int | None = None
    payload: dict[str, Any] | None = None


def topic_of(network: str, schema: str) -> str:
    """The GossipSub topic of a schema, and the topic its records are kept under."""
    return f"{TOPIC_PREFIX}/{network}/{plain_name(schema)}"


def judge(incoming: Incoming, context: Context) -> Arrival:
    """The message with its verdict. Never raises for what a peer sent."""
    found = content(incoming.raw, incoming.topic, incoming.received_at, context)
    message, published_at = found.message, found.published_at
    arrival = Arrival(
        protocol=incoming.protocol,
        topic=incoming.topic,
        kind=found.kind,
        id=record_id(message) if message else hashlib.sha256(incoming.raw).digest(),
        direction=incoming.direction,
        key=key_of(plain_name(message.schema), found.payload) if message and found.payload else "",
        publisher=message.publisher_id[:SDS_TEXT_MAX] if message else "",
        peer=incoming.peer,
        seq=epoch_of(plain_name(message.schema), found.payload) if message and found.payload is not None else None,
        published_at=_stamp(published_at),
        expires_at=_stamp(published_at, context.memory),
        received_at=incoming.received_at,
        raw=incoming.raw if len(incoming.raw) <= RAW_INLINE_MAX else None,
        verdict=found.verdict.outcome,
    )
    return arrival.judged(found.verdict)


def _stamp(moment: int | None, after: int | None = 0) -> int | None:
    """A time as a record may carry it: not before 1970."""
    return None if moment is None or after is None or moment + after < 0 else moment + after


def content(raw: bytes, topic: str, now: int, context: Context) -> Content:
    """The checks in their order: size, frame, schema, time, publisher, signature, payload."""
    try:
        decoded = decode(raw)
    except DecodeError as error:
        return Content(verdict=error.verdict)
    if not isinstance(decoded, Publish | Held):
        return Content(verdict=reject(Reason.MALFORMED, f"a {type(decoded).__name__} is not a record"))
    message = decoded if isinstance(decoded, Publish) else decoded.published
    kind = "publish" if isinstance(decoded, Publish) else "record"
    found = Content(verdict=ACCEPT, kind=kind, message=message)
    try:
        published_at = _fields(message)
        found = msgspec.structs.replace(found, published_at=published_at)
        verdict = _schema(message, topic, context) or _time(message, kind, published_at, now, context)
        if verdict is not None:
            return msgspec.structs.replace(found, verdict=verdict)
        if not verify(publisher_key(message.publisher_id), message.signature, signed_bytes(message)):
            return msgspec.structs.replace(found, verdict=reject(Reason.INVALID_SIGNATURE, "not by its publisher"))
        return msgspec.structs.replace(found, payload=read_payload(standard(message.schema), message.payload))
    except DecodeError as error:
        return msgspec.structs.replace(found, verdict=error.verdict)


def quick_verdict(message: Publish, raw: bytes, topic: str, now: int, context: Context) -> Verdict | None:
    """The verdict on a message whose frame and payload are known to be whole, if it is to accept; else None."""
    kind = "publish" if raw[8:12] == b"SPUB" else "record"
    try:
        allowed = SDS_MESSAGE_BYTES if kind == "publish" else SDS_ANSWER_BYTES
        if len(raw) > allowed + FRAME_OVERHEAD:
            return None
        published_at = _fields(message)
        if _schema(message, topic, context) or _time(message, kind, published_at, now, context):
            return None
        public = publisher_key(message.publisher_id)
    except DecodeError:
        return None
    return ACCEPT if verify(public, message.signature, signed_bytes(message)) else None


def _fields(message: Publish) -> int:
    """The time of a message whose own fields are such as may be."""
    if not 0 < len(message.message_id) <= SDS_TEXT_MAX:
        raise DecodeError(f"an id has 1 to {SDS_TEXT_MAX} characters", reason=Reason.INVALID_FIELD, about="message_id")
    return parse_time(message.timestamp, "timestamp")


def _schema(message: Publish, topic: str, context: Context) -> Verdict | None:
    name = plain_name(message.schema)
    if name not in context.schemas:
        return reject(Reason.UNKNOWN_SCHEMA, message.schema[:80])
    if topic != topic_of(context.network, name):
        return reject(Reason.INVALID_TOPIC, f"{name} does not belong on {topic[:120]}")
    return None


def _time(message: Publish, kind: str, published_at: int, now: int, context: Context) -> Verdict | None:
    if published_at > now + FUTURE_MAX:
        return reject(Reason.FUTURE_TIMESTAMP, message.timestamp)
    # A ttl limits gossip and delivery, never what QUERY and SYNC bring.
    if kind == "publish" and message.ttl and published_at + message.ttl * SECOND <= now:
        return ignore(Reason.EXPIRED, f"{message.timestamp} + {message.ttl} s")
    # Beyond the memory of ids a replay could not be told from news.
    if context.memory is not None and published_at + context.memory <= now:
        return ignore(Reason.TOO_OLD, message.timestamp)
    return None


@lru_cache(SDS_RATED_PEERS)  # base58 costs a third of a verification, and publishers repeat
def publisher_key(text: str) -> bytes:
    """The key inside a publisher's PeerID, so that signatures are verified without asking anybody.

    Text that is no PeerID is an invalid publisher; a PeerID of another kind of key cannot have signed.
    """
    try:
        raw = base58.b58decode(text) if len(text) <= _PEER_ID_TEXT_MAX else b""
    except ValueError:
        raw = b""
    if raw.startswith(PEER_ID_PREFIX) and len(raw) == len(PEER_ID_PREFIX) + 32:
        return raw[len(PEER_ID_PREFIX) :]
    is_hash = raw[:2] == b"\x12\x20" and len(raw) == 34
    is_other_key = raw[:1] == b"\0" and raw[2:3] == b"\x08" and raw[1:2] == bytes([len(raw) - 2 & 0xFF])
    if is_hash or is_other_key:
        raise DecodeError("only Ed25519 keys sign here", reason=Reason.INVALID_SIGNATURE, about=text[:80])
    raise DecodeError("not a PeerID", reason=Reason.INVALID_PUBLISHER, about=text[:80])


def read_payload(known: Standard, payload: bytes) -> dict[str, Any]:
    """The fields of a payload that verifies against its schema."""
    try:
        return known.reader.decode(payload)
    except DecodeError as error:
        raise DecodeError(error.message, reason=Reason.INVALID_PAYLOAD, about=error.about) from None


def key_of(schema: str, payload: dict[str, Any]) -> str:
    """What a payload is about, as the journal indexes it; empty where the schema names nothing or it is left out."""
    value: Any = payload
    for name in KEY_FIELDS.get(schema, "").split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return key_text(value)


def key_text(value: Any) -> str:
    """A value as a key, or empty if it is too long to be one."""
    text = "" if value is None else str(value)
    return text if len(text) <= SDS_TEXT_MAX else ""


def parse_time(text: str, about: str) -> int:
    """Microseconds since 1970 of an ISO 8601 time; without an offset it is UTC."""
    try:
        if len(text) > _TIME_TEXT_MAX:
            raise ValueError
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise DecodeError("not a time in ISO 8601", reason=Reason.INVALID_FIELD, about=about) from None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)


def signed_publish(key: NodeKey, *, schema: str, payload: bytes, message_id: str, now: int, ttl: int = 0) -> Publish:
    """A publish by the holder of this key."""
    message = Publish(
        message_id=message_id,
        timestamp=iso_time(now),
        ttl=ttl,
        schema=schema,
        payload=payload,
        publisher_id=key.peer_id,
    )
    return msgspec.structs.replace(message, signature=key.sign(signed_bytes(message)))


def held(message: Publish, received_at: int, *, with_signature: bool = True) -> Held:
    """A publish as QUERY and SYNC hand it on."""
    return Held(
        schema=message.schema,
        data=message.payload,
        received_at=iso_time(received_at),
        publisher_id=message.publisher_id,
        signature=message.signature if with_signature else b"",
        message_id=message.message_id,
        timestamp=message.timestamp,
        ttl=message.ttl,
    )


def published(raw: bytes) -> Publish:
    """The publish inside the raw bytes of an accepted record of either kind."""
    message = decode(raw)
    assert isinstance(message, Publish | Held)
    return message if isinstance(message, Publish) else message.published


def kept(record: Held) -> bytes:
    """The raw bytes under which a record from a peer's answer is judged and kept."""
    return encode(record)
