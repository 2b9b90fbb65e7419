"""The notification: the data hash and the height of a block whose data can be asked for. Protobuf, 36 to 45 bytes.

# ShrEx/Sub: "fixed 40-byte payload" is the logical size, 32 bytes of hash and 8 of height; the encoding is protobuf
Decoding is as lenient as protobuf (order, repeats, unknown fields); what a sane notification is, is in rules.
"""

from __future__ import annotations

from typing import Final

import msgspec

from syncline.core.errors import DecodeError
from syncline.formats.protobuf import bytes_field, expect_bytes, expect_int, fields, varint_field

TOPIC: Final = "/eds-sub/0.0.1"
HASH_BYTES: Final = 32
HEIGHT_MAX: Final = 2**64 - 1


class Notification(msgspec.Struct, frozen=True, order=True):
    """What a peer announces: the data of the block at `height`, whose root is `data_hash`, is to be had."""

    height: int
    data_hash: bytes


def encode(notification: Notification) -> bytes:
    """The bytes every implementation writes."""
    return varint_field(1, notification.height) + bytes_field(2, notification.data_hash)


def decode(data: bytes) -> Notification:
    """Read a notification; an absent height is 0 and an absent hash empty, as protobuf has it."""
    height, data_hash = 0, b""
    for number, wire, value in fields(data):
        if number == 1:
            height = expect_int(value, wire, "height")
        elif number == 2:
            data_hash = expect_bytes(value, wire, "data_hash")
    return Notification(height, data_hash)


def topic_of(profile: str, network: str) -> str:
    """The topic: that of the specification, or the one the Celestia network uses."""
    return f"{network}/eds-sub/v0.2.0" if profile == "celestia" else TOPIC


def parse_hash(text: str, about: str = "data_hash") -> bytes:
    """32 bytes given as hex."""
    try:
        found = bytes.fromhex(text)
    except ValueError:
        raise DecodeError("not hex", about=about) from None
    if len(found) != HASH_BYTES:
        raise DecodeError(f"{HASH_BYTES} bytes as hex are needed", about=about)
    return found
