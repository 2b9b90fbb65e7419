"""What a relay must not forget, as state of the journal: cached messages, subscriptions, how far each client has come.

Only the spelling of keys and values; when they are written is decided by the session.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from syncline.core.ports import StateChange
from syncline.protocols.relay.session.cache import Entry

MESSAGES: Final = "relay.messages"  # position of the first → the messages one commit has cached
SUBSCRIPTIONS: Final = "relay.subscriptions"  # client, topic → when it ends
CURSORS: Final = "relay.cursors"  # client, topic → what the client has acknowledged
COUNTERS: Final = "relay.counters"
POSITION: Final = b"position"
EPOCH: Final = b"epoch"
_MESSAGE: Final = struct.Struct(">Q32s32sqIB")


def position_key(position: int) -> bytes:
    return position.to_bytes(8, "big")


def messages_changes(entries: Sequence[Entry]) -> list[StateChange]:
    """Remember what a commit has cached, until the last of it expires. One row for all: it is read only at a start."""
    pieces, pack, unhex = [], _MESSAGE.pack, bytes.fromhex
    for entry in entries:
        source = entry.source.encode()
        pieces.append(
            pack(entry.position, unhex(entry.topic), entry.digest, entry.expires_at, entry.size, len(source)) + source
        )
    return [
        StateChange(
            space=MESSAGES,
            key=position_key(entries[0].position),
            value=b"".join(pieces),
            expires_at=max([entry.expires_at for entry in entries]),
        ),
        counter_change(POSITION, entries[-1].position),
    ]


def entries_of(value: bytes) -> Iterator[Entry]:
    """The entries one commit has cached."""
    start = 0
    while start < len(value):
        position, topic, digest, expires_at, size, length = _MESSAGE.unpack_from(value, start)
        start += _MESSAGE.size
        source = value[start : start + length].decode()
        start += length
        yield Entry(position, topic.hex(), digest, size, expires_at, source)


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
