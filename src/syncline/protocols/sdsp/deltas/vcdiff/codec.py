"""`X-vcdiff`: VCDIFF (RFC 3284) for texts (as UTF-8) and binaries. Writes the plain form that every decoder reads: the
default code table, no application header, no secondary compression, no checksum.

The reader trusts nothing: every length is checked against what is there and every output against the budget before it
is made. It also reads what xdelta3 adds by default (an application header, Adler-32 per window); custom code tables and
secondary compression are refused.
"""

from __future__ import annotations

import zlib
from typing import Any, Final

from syncline.core.errors import DeltaError
from syncline.core.verdict import Reason
from syncline.protocols.sdsp.deltas.base import Budget
from syncline.protocols.sdsp.deltas.vcdiff.codes import (
    ADD,
    CODES,
    NEAR_SLOTS,
    NOOP,
    RUN,
    AddressCache,
    copy_code,
    varint,
)
from syncline.protocols.sdsp.deltas.vcdiff.matches import Match, matches
from syncline.protocols.sdsp.wire import ObjectKind

MAGIC: Final = bytes.fromhex("d6c3c400")
VCD_SOURCE, VCD_TARGET, VCD_ADLER32 = 0x01, 0x02, 0x04
HDR_DECOMPRESS, HDR_CODETABLE, HDR_APPHEADER = 0x01, 0x02, 0x04
WINDOW: Final = 4 * 1024 * 1024  # bytes of target in one window


class Vcdiff:
    """RFC 3284. A delta is bytes."""

    code = "X-vcdiff"
    kinds = frozenset({ObjectKind.TEXT, ObjectKind.BINARY})

    def make(self, old: Any, new: Any) -> bytes | None:
        if isinstance(old, str) and isinstance(new, str):
            return encode(old.encode(), new.encode())
        return encode(old, new) if isinstance(old, bytes) and isinstance(new, bytes) else None

    def apply(self, old: Any, delta: Any, budget: Budget, *, in_place: bool = False) -> Any:
        if not isinstance(delta, bytes) or not isinstance(old, (str, bytes)):
            raise _malformed("a VCDIFF delta is bytes, and changes a text or a binary")
        if isinstance(old, bytes):
            return decode(old, delta, budget)
        try:
            return decode(old.encode(), delta, budget).decode()
        except UnicodeDecodeError:
            raise DeltaError("the delta makes something that is not UTF-8", reason=Reason.INVALID_PAYLOAD) from None


def encode(source: bytes, target: bytes) -> bytes:
    """A delta that turns `source` into `target`."""
    out = bytearray(MAGIC)
    out.append(0)
    for start in range(0, max(len(target), 1), WINDOW):
        _encode_window(source, target[start : start + WINDOW], out)
    return bytes(out)


def decode(source: bytes, delta: bytes, budget: Budget) -> bytes:
    """What `delta` makes of `source`. Raises DeltaError."""
    reader = _Reader(delta, 0, len(delta))
    _read_header(reader)
    target = bytearray()
    while reader.at < reader.end:
        _decode_window(source, reader, target, budget)
    return bytes(target)


def _encode_window(source: bytes, target: bytes, out: bytearray) -> None:
    data, instructions, addresses = bytearray(), bytearray(), bytearray()
    cache = AddressCache()
    at = 0
    for match in [*matches(source, target), Match(len(target), 0, 0)]:
        if at < match.at:
            literal = target[at : match.at]
            size = len(literal)
            instructions += bytes([1 + size]) if size <= 17 else bytes([1]) + varint(size)
            data += literal
        at = match.at + match.length
        if match.run:
            instructions += b"\0" + varint(match.length)
            data += target[match.at : match.at + 1]
        elif match.length:
            mode, address = cache.encode(match.address, len(source) + match.at)
            instructions += copy_code(mode, match.length)
            addresses += address
    sizes = varint(len(data)) + varint(len(instructions)) + varint(len(addresses))
    body = varint(len(target)) + b"\0" + sizes + data + instructions + addresses
    segment = bytes([VCD_SOURCE]) + varint(len(source)) + b"\0" if source and addresses else b"\0"
    out += segment + varint(len(body)) + body


class _Reader:
    """Reads bytes and numbers between two bounds, and nothing outside of them."""

    __slots__ = ("at", "buffer", "end")

    def __init__(self, buffer: bytes, at: int, end: int) -> None:
        self.buffer, self.at, self.end = buffer, at, end

    def byte(self) -> int:
        if self.at >= self.end:
            raise _malformed("the delta ends too early")
        self.at += 1
        return self.buffer[self.at - 1]

    def number(self) -> int:
        value = 0
        for _ in range(9):
            byte = self.byte()
            value = value << 7 | byte & 0x7F
            if byte < 0x80:
                return value
        raise _malformed("a number of more than nine bytes")

    def take(self, size: int) -> bytes:
        if size > self.end - self.at:
            raise _malformed("the delta ends too early")
        self.at += size
        return self.buffer[self.at - size : self.at]

    def part(self, size: int) -> _Reader:
        """A reader of the next `size` bytes."""
        if size > self.end - self.at:
            raise _malformed("a section is longer than the delta")
        self.at += size
        return _Reader(self.buffer, self.at - size, self.at)


def _read_header(reader: _Reader) -> None:
    if reader.take(4) != MAGIC:
        raise _malformed("not a VCDIFF delta of version 0")
    indicator = reader.byte()
    if indicator & ~HDR_APPHEADER:
        raise DeltaError("custom code tables and secondary compression are not supported", reason=Reason.MALFORMED)
    if indicator & HDR_APPHEADER:
        reader.take(reader.number())


def _decode_window(source: bytes, reader: _Reader, target: bytearray, budget: Budget) -> None:
    indicator = reader.byte()
    if indicator & ~(VCD_SOURCE | VCD_TARGET | VCD_ADLER32) or indicator & 3 == 3:
        raise _malformed("a window indicator that does not exist")
    segment = b""
    if indicator & 3:
        size, position = reader.number(), reader.number()
        origin = source if indicator & VCD_SOURCE else target
        if position + size > len(origin):
            raise _unfit("the delta refers to more than the old object has")
        if position or size != len(origin) or indicator & VCD_TARGET:
            budget.toil(size)
            segment = bytes(origin[position : position + size])
        else:
            segment = source
    body = reader.part(reader.number())
    size = body.number()
    budget.grow(size)
    if body.byte():
        raise DeltaError("secondary compression is not supported", reason=Reason.MALFORMED)
    lengths = body.number(), body.number(), body.number()
    checksum = int.from_bytes(body.take(4)) if indicator & VCD_ADLER32 else None
    data, instructions, addresses = (body.part(length) for length in lengths)
    if body.at != body.end:
        raise _malformed("a window with something behind its sections")
    made = _run(segment, size, data, instructions, addresses)
    if checksum is not None and zlib.adler32(made) != checksum:
        raise _unfit("the window's checksum is wrong")
    target += made


def _run(segment: bytes, size: int, data: _Reader, instructions: _Reader, addresses: _Reader) -> bytearray:
    """Execute the instructions of one window."""
    out = bytearray()
    cache = AddressCache()
    while instructions.at < instructions.end:
        for kind, length, mode in CODES[instructions.byte()]:
            if kind == NOOP:
                continue
            if length == 0:
                length = instructions.number()
            if length > size - len(out):
                raise _malformed("the instructions make more than the window says")
            if kind == ADD:
                out += data.take(length)
            elif kind == RUN:
                out += data.take(1) * length
            else:
                here = len(segment) + len(out)
                _copy(segment, out, _address(cache, mode, here, addresses), length)
    if len(out) != size or data.at != data.end or addresses.at != addresses.end:
        raise _malformed("the instructions do not use up what the window holds")
    return out


def _address(cache: AddressCache, mode: int, here: int, addresses: _Reader) -> int:
    if mode < 2 + NEAR_SLOTS:
        address = cache.resolve(mode, addresses.number(), here)
    else:
        address = cache.resolve_same(mode, addresses.byte())
    if not 0 <= address < here:
        raise _malformed("a copy from where nothing is yet")
    cache.update(address)
    return address


def _copy(segment: bytes, out: bytearray, address: int, length: int) -> None:
    if address < len(segment):
        taken = segment[address : address + length]
        out += taken
        length -= len(taken)
        address = len(segment)
    at = address - len(segment)
    while length:  # a copy may reach into what it is just making: then it repeats
        taken = bytes(out[at : at + length])
        out += taken
        at += len(taken)
        length -= len(taken)


def _malformed(message: str) -> DeltaError:
    return DeltaError(message, reason=Reason.MALFORMED)


def _unfit(message: str) -> DeltaError:
    return DeltaError(message, reason=Reason.INVALID_PAYLOAD)
