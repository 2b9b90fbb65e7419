"""The little of protobuf that our messages need: a walk over fields, and the bytes of one field.

Strict where it protects (bounds, 64-bit varints, field numbers), lenient where protobuf is (order, repeats, unknown
fields). Messages themselves are in the modules that use this.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from syncline.core.errors import DecodeError
from syncline.formats.framing import decode_varint, encode_varint

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """(number, wire type, value) of each field in order; integers for varints, bytes for everything else."""
    position, size = 0, len(data)
    while position < size:
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if not 0 < number < 2**29:
            raise DecodeError(f"{number} is not a field number")
        if wire == VARINT:
            value, position = _varint(data, position)
            yield number, wire, value
            continue
        if wire == BYTES:
            length, position = _varint(data, position)
        elif wire == FIXED64:
            length = 8
        elif wire == FIXED32:
            length = 4
        else:
            raise DecodeError(f"wire type {wire} is not one of ours", about=f"field {number}")
        if position + length > size:
            raise DecodeError("a field is cut short", about=f"field {number}")
        yield number, wire, data[position : position + length]
        position += length


def bytes_field(number: int, content: bytes) -> bytes:
    """A length-delimited field."""
    return encode_varint(number << 3 | BYTES) + encode_varint(len(content)) + content


def varint_field(number: int, value: int) -> bytes:
    return encode_varint(number << 3 | VARINT) + encode_varint(value)


def expect_bytes(value: int | bytes, wire: int, about: str) -> bytes:
    """The value of a field that must be length-delimited."""
    if wire != BYTES or not isinstance(value, bytes):
        raise DecodeError(f"wire type {wire} where bytes belong", about=about)
    return value


def expect_int(value: int | bytes, wire: int, about: str) -> int:
    """The value of a field that must be a varint."""
    if wire != VARINT or not isinstance(value, int):
        raise DecodeError(f"wire type {wire} where a number belongs", about=about)
    return value


def expect_text(value: int | bytes, wire: int, about: str) -> str:
    """The value of a field that must be UTF-8."""
    try:
        return expect_bytes(value, wire, about).decode()
    except UnicodeDecodeError:
        raise DecodeError("not UTF-8", about=about) from None


def _varint(data: bytes, position: int) -> tuple[int, int]:
    found = decode_varint(data, position)
    if found is None:
        raise DecodeError("a number is cut short")
    return found
