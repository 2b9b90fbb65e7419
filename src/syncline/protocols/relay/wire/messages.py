"""The network message: what one relay server hands another, and what the journal keeps.

    irn | version u8 | tag u8 (v1) or u32 (v2) | prompt u8 | timestamp u64 ms | ttl u64 s | length u64 | UTF-8

All integers are big-endian. Whether the values are acceptable is decided in rules; the topic travels beside the message.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final

import msgspec

from syncline.core.errors import DecodeError
from syncline.core.verdict import Reason

PREFIX: Final = b"irn"
V1: Final = struct.Struct(">3sBB?QQQ")
V2: Final = struct.Struct(">3sBI?QQQ")
TAG_V1_MAX: Final = 255
TAG_MAX: Final = 2**32 - 1
U64_MAX: Final = 2**64 - 1


class NetworkMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One message as it travels. `message` is UTF-8."""

    tag: int
    prompt: bool
    timestamp: int  # milliseconds since 1970, when the first server took it in
    ttl: int  # seconds from then
    message: bytes

    @property
    def version(self) -> int:
        """Relay network: the tag is a u8. Real clients use tags up to 3001, so version 2 widens it."""
        return 1 if self.tag <= TAG_V1_MAX else 2

    @property
    def hash(self) -> bytes:
        """Relay network: the message id is the sha256 of the message itself."""
        return hashlib.sha256(self.message).digest()

    @property
    def published_at(self) -> int:
        """Microseconds since 1970."""
        return self.timestamp * 1_000

    @property
    def expires_at(self) -> int:
        """Microseconds since 1970: the same on every server, because it follows from the message alone."""
        return self.timestamp * 1_000 + self.ttl * 1_000_000


def encode(message: NetworkMessage) -> bytes:
    """The bytes of a message. Values outside their fields are the caller's mistake and raise struct.error."""
    layout, version = (V1, 1) if message.tag <= TAG_V1_MAX else (V2, 2)
    return (
        layout.pack(PREFIX, version, message.tag, message.prompt, message.timestamp, message.ttl, len(message.message))
        + message.message
    )


def decode(raw: bytes) -> NetworkMessage:
    """The message in these bytes, all of them; raises DecodeError."""
    if raw[:3] != PREFIX:
        raise DecodeError("a network message starts with 'irn'", about="prefix")
    version = raw[3] if len(raw) > 3 else 0
    if version not in (1, 2):
        raise DecodeError(f"unknown version {version}", reason=Reason.UNSUPPORTED_VERSION, about="version")
    layout = V1 if version == 1 else V2
    if len(raw) < layout.size:
        raise DecodeError(f"shorter than the {layout.size}-byte header", about="header")
    if raw[layout.size - 25] > 1:
        raise DecodeError("prompt is neither 0 nor 1", reason=Reason.INVALID_FIELD, about="prompt")
    _, _, tag, prompt, timestamp, ttl, length = layout.unpack_from(raw)
    if length != len(raw) - layout.size:
        raise DecodeError(f"length says {length}, {len(raw) - layout.size} bytes follow", about="length")
    message = raw[layout.size :]
    try:
        message.decode()
    except UnicodeDecodeError:
        raise DecodeError("the message is not UTF-8", about="message") from None
    return NetworkMessage(tag=tag, prompt=prompt, timestamp=timestamp, ttl=ttl, message=message)
