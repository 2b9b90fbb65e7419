"""What a relay must not forget, as state of the journal: cached messages, subscriptions, how far each client has come.

Only the spelling of keys and values; when they are written is decided by the session.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from syncline.core.ports import StateChange
from syncline.protocols.relay.session.cache import Entry

MESSAGES: Final = "relay.messages"  # position → where the message is in the journal
SUBSCRIPTIONS: Final = "relay.subscriptions"  # client, topic → when it ends
CURSORS: Final = "relay.cursors"  # client, topic → what the client has acknowledged
COUNTERS: Final = "relay.counters"
POSITION: Final = b"position"
EPOCH: Final = b"epoch"
_MESSAGE: Final = struct.Struct(">32s32sqI")


def position_key(position: int) -> bytes:
    return position.to_bytes(8, "big")


def message_change(entry: Entry) -> StateChange:
    """Remember where a cached message is, until it expires."""
    value = _MESSAGE.pack(bytes.fromhex(entry.topic), entry.digest, entry.expires_at, entry.size)
    return StateChange(
        space=MESSAGES,
        key=position_key(entry.position),
        value=value + entry.source.encode(),
        expires_at=entry.expires_at,
    )


def message_entry(key: bytes, value: bytes) -> Entry:
    topic, digest, expires_at, size = _MESSAGE.unpack_from(value)
    source = value[_MESSAGE.size :].decode()
    return Entry(int.from_bytes(key, "big"), topic.hex(), digest, size, expires_at, source)


def counter_change(name: bytes, number: int) -> StateChange:
    return StateChange(space=COUNTERS, key=name, value=number.to_bytes(8, "big"))


def client_key(public: bytes, topic: str) -> bytes:
    return public + bytes.fromhex(topic)


def split_client_key(key: bytes) -> tuple[bytes, str]:
    return key[:32], key[32:].hex()


def subscription_change(public: bytes, topic: str, expires_at: int | None) -> StateChange:
    """Remember a subscription until then, or forget it."""
    value = None if expires_at is None else expires_at.to_bytes(8, "big")
    return StateChange(space=SUBSCRIPTIONS, key=client_key(public, topic), value=value, expires_at=expires_at)


class CursorValue(msgspec.Struct, frozen=True, array_like=True):
    """Everything up to `through` is dealt with, and so are these later ones."""

    through: int
    acked: list[int]


def cursor_change(public: bytes, topic: str, value: CursorValue, expires_at: int) -> StateChange:
    return StateChange(
        space=CURSORS, key=client_key(public, topic), value=msgspec.msgpack.encode(value), expires_at=expires_at
    )


def cursor_value(value: bytes) -> CursorValue:
    return msgspec.msgpack.decode(value, type=CursorValue)
