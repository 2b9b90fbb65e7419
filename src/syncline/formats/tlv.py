"""NDN's Type-Length-Value encoding: flat reading and writing on bytes, and splitting a byte stream into elements.

Only the encoding itself: what the types mean is in `formats/ndn`. Non-shortest numbers are refused, so equal elements are
equal bytes everywhere, which is what lets names be compared, sorted and matched as plain bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from syncline.core.errors import DecodeError
from syncline.core.verdict import Reason

NUMBER_MAX = 2**64 - 1


def encode_number(value: int) -> bytes:
    """A TLV-TYPE or TLV-LENGTH."""
    if value < 253:
        return bytes((value,))
    if value < 0x1_0000:
        return b"\xfd" + value.to_bytes(2, "big")
    if value < 0x1_0000_0000:
        return b"\xfe" + value.to_bytes(4, "big")
    return b"\xff" + value.to_bytes(8, "big")


def encode(kind: int, value: bytes) -> bytes:
    """One element."""
    length = len(value)
    if kind < 253 and length < 253:
        return bytes((kind, length)) + value
    return encode_number(kind) + encode_number(length) + value


def encode_integer(value: int) -> bytes:
    """A NonNegativeInteger in the fewest of 1, 2, 4 or 8 octets, without type and length."""
    if value < 0x100:
        return bytes((value,))
    if value < 0x1_0000:
        return value.to_bytes(2, "big")
    return value.to_bytes(4 if value < 0x1_0000_0000 else 8, "big")


def integer_element(kind: int, value: int) -> bytes:
    """One element that holds a NonNegativeInteger."""
    return encode(kind, encode_integer(value))


def read_header(wire: bytes, at: int, end: int) -> tuple[int, int, int]:
    """The type of the element at `at`, and where its value starts and stops; it must lie before `end`."""
    try:
        kind = wire[at]
        if kind < 253:
            at += 1
        else:
            kind, at = _long_number(wire, at)
        length = wire[at]
        if length < 253:
            at += 1
        else:
            length, at = _long_number(wire, at)
    except IndexError:
        raise _truncated(at) from None
    stop = at + length
    if stop > end:
        raise _truncated(at)
    if kind == 0 or kind > 0xFFFF_FFFF:
        raise DecodeError(f"no element has type {kind}", about=f"byte {at}")
    return kind, at, stop


def read_integer(wire: bytes, start: int, stop: int) -> int:
    """The NonNegativeInteger between `start` and `stop`."""
    if stop - start == 1:
        return wire[start]
    if stop - start not in (2, 4, 8):
        raise DecodeError(f"a number has 1, 2, 4 or 8 octets, not {stop - start}", about=f"byte {start}")
    return int.from_bytes(wire[start:stop], "big")


def elements(wire: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(type, start, stop) of each element from `at` up to `end`, which they must fill exactly."""
    while at < end:
        kind, start, stop = read_header(wire, at, end)
        yield kind, start, stop
        at = stop


def whole(wire: bytes, kind: int) -> tuple[int, int]:
    """Where the value starts and stops of the one element of this type that `wire` consists of."""
    found, start, stop = read_header(wire, 0, len(wire))
    if found != kind:
        raise DecodeError(f"expected an element of type {kind}, not {found}")
    if stop != len(wire):
        raise DecodeError(f"{len(wire) - stop} bytes follow the element", about=f"byte {stop}")
    return start, stop


def is_critical(kind: int) -> bool:
    """Whether an unknown element of this type makes its packet invalid (NDN packet format, evolvability)."""
    return kind <= 31 or kind % 2 == 1


def split(stream: bytes, largest: int) -> tuple[list[bytes], int]:
    """The complete elements at the start of `stream`, and how many bytes they take.

    An element announced as larger than `largest` is refused at once, before its bytes have come.
    """
    found: list[bytes] = []
    at, end = 0, len(stream)
    while at < end:
        size = _announced_size(stream, at, end)
        if size is None:
            break
        if size > largest:
            raise DecodeError(f"a packet of {size} bytes", reason=Reason.OVERSIZE, about=f"byte {at}")
        if at + size > end:
            break
        found.append(stream[at : at + size])
        at += size
    return found, at


def _announced_size(stream: bytes, at: int, end: int) -> int | None:
    """Bytes of the element at `at`, header included; None while the header itself is incomplete."""
    start = at
    at += _number_size(stream[at])
    if at >= end or at + _number_size(stream[at]) > end:
        return None
    length = stream[at]
    if length < 253:
        return at + 1 + length - start
    length, at = _long_number(stream, at)
    return at + length - start


def _number_size(first: int) -> int:
    return 1 if first < 253 else 3 if first == 253 else 5 if first == 254 else 9


def _long_number(wire: bytes, at: int) -> tuple[int, int]:
    first = wire[at]
    after = at + _number_size(first)
    if after > len(wire):
        raise IndexError
    value = int.from_bytes(wire[at + 1 : after], "big")
    if value < (253 if first == 253 else 0x1_0000 if first == 254 else 0x1_0000_0000):
        raise DecodeError("a number is not in its shortest form", about=f"byte {at}")
    return value, after


def _truncated(at: int) -> DecodeError:
    return DecodeError("an element ends after its packet", about=f"byte {at}")
