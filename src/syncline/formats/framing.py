"""Messages in a byte stream, each with its length in front: a varint (libp2p), 16 or 32 bits (Noise, FlatBuffers).

Sans-I/O: chunks in, whole frames out, whatever the cuts between chunks. A length beyond the limit is refused before
anything is buffered for it. What the frames mean is not known here.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from syncline.core.errors import DecodeError
from syncline.core.verdict import Reason

VARINT_MAX: Final = 10  # bytes of a 64-bit varint
_FIXED: Final[dict[str, tuple[int, Literal["big", "little"]]]] = {"u16be": (2, "big"), "u32le": (4, "little")}


class Framing(msgspec.Struct, frozen=True):
    """How frames are delimited and how long their content may be.

    `varint`: an unsigned varint, then that many bytes. `u32le`: FlatBuffers' size prefix, four bytes little-endian.
    `u16be`: two bytes big-endian, as Noise messages have. A frame's content never includes the length.
    """

    kind: Literal["varint", "u16be", "u32le"]
    max_bytes: int

    def wrap(self, content: bytes) -> bytes:
        """The content with its length in front."""
        if len(content) > self.max_bytes:
            raise DecodeError(f"{len(content)} bytes do not fit a frame of {self.max_bytes}", reason=Reason.OVERSIZE)
        if self.kind == "varint":
            return encode_varint(len(content)) + content
        return len(content).to_bytes(*_FIXED[self.kind]) + content

    def reader(self) -> FrameReader:
        return FrameReader(self)


class FrameReader:
    """Cuts a stream into frames. After an error the stream cannot be followed any further."""

    __slots__ = ("_buffer", "_framing", "_wanted")

    def __init__(self, framing: Framing) -> None:
        self._framing = framing
        self._buffer = bytearray()
        self._wanted = 1  # bytes the buffer must reach before looking at it again can help

    @property
    def buffered(self) -> int:
        """Bytes held of a frame that is not whole yet; never more than one frame and one chunk."""
        return len(self._buffer)

    def feed(self, chunk: bytes) -> list[bytes]:
        """The contents of all frames that `chunk` completes."""
        if self._buffer:
            self._buffer += chunk
            if len(self._buffer) < self._wanted:
                return []  # a big frame in small chunks costs linear work, not quadratic
            chunk = bytes(self._buffer)
        frames, position, self._wanted = [], 0, 1
        while (found := self._header(chunk, position)) is not None:
            start, length = found
            if start + length > len(chunk):
                self._wanted = start + length - position
                break
            frames.append(chunk[start : start + length])
            position = start + length
        self._buffer = bytearray(chunk[position:])
        return frames

    def finish(self) -> None:
        """Say that the stream has ended; raises if a frame is cut short."""
        if self._buffer:
            raise DecodeError("the stream ends inside a frame", about=f"{len(self._buffer)} bytes left")

    def _header(self, data: bytes, position: int) -> tuple[int, int] | None:
        """Where the content starting at `position` begins and how long it is; None when the length is not whole."""
        if self._framing.kind == "varint":
            found = decode_varint(data, position)
            if found is None:
                return None
            length, start = found
        else:
            size, order = _FIXED[self._framing.kind]
            start = position + size
            if start > len(data):
                return None
            length = int.from_bytes(data[position:start], order)
        if length > self._framing.max_bytes:
            raise DecodeError(
                f"a frame of {length} bytes, {self._framing.max_bytes} are allowed", reason=Reason.OVERSIZE
            )
        return start, length


def encode_varint(value: int) -> bytes:
    """An unsigned LEB128 varint, as protobuf and libp2p write it."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_varint(data: bytes, position: int) -> tuple[int, int] | None:
    """The varint at `position` and where it ends; None when the data ends before it does."""
    value = shift = 0
    for index in range(position, min(position + VARINT_MAX, len(data))):
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 2**64:
                raise DecodeError("a varint is larger than 64 bits")
            return value, index + 1
        shift += 7
    if position + VARINT_MAX <= len(data):
        raise DecodeError("a varint is longer than ten bytes")
    return None
