"""State vectors: which sequence number each node has reached. Version 2 is spoken; version 3 is read and written only.

v2   201 { 202 { Name, 204 seq } … }
v3   201 { 202 { Name, 210 { 212 boot, 214 seq } … } … }
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from syncline.core.errors import DecodeError
from syncline.core.limits import SVS_VECTOR_ENTRIES
from syncline.core.verdict import Reason
from syncline.formats.ndn import types as t
from syncline.formats.ndn.names import Name, boundaries_within
from syncline.formats.tlv import elements, encode, integer_element, is_critical, read_header, read_integer

STATE_VECTOR: Final = 201
ENTRY: Final = 202
SEQ: Final = 204
BOOT_ENTRY: Final = 210
BOOT: Final = 212
BOOT_SEQ: Final = 214

StateVector = Mapping[Name, int]


def encode_vector(vector: StateVector) -> bytes:
    """The element, its entries in canonical order of names."""
    return encode(
        STATE_VECTOR,
        b"".join(
            encode(ENTRY, encode(t.NAME, node) + integer_element(SEQ, seq)) for node, seq in sorted(vector.items())
        ),
    )


def decode_vector(wire: bytes) -> tuple[dict[Name, int], int]:
    """The vector at the start of `wire`, and where it ends; mapping data may follow."""
    kind, start, stop = read_header(wire, 0, len(wire))
    if kind != STATE_VECTOR:
        raise DecodeError("a state vector comes first", about="parameters")
    found: dict[Name, int] = {}
    for entry, first, last in elements(wire, start, stop):
        if entry != ENTRY:
            _skip(entry)
            continue
        if len(found) >= SVS_VECTOR_ENTRIES:
            raise DecodeError(f"a vector of more than {SVS_VECTOR_ENTRIES} nodes", reason=Reason.TOO_COMPLEX)
        node, seq = _entry(wire, first, last)
        if seq > found.get(node, -1):
            found[node] = seq
    return found, stop


def _entry(wire: bytes, at: int, end: int) -> tuple[Name, int]:
    kind, start, at = read_header(wire, at, end)
    if kind != t.NAME:
        raise DecodeError("an entry starts with a node's name", about="vector")
    if not boundaries_within(wire, start, at):
        raise DecodeError("a node has a name", about="vector")
    node = wire[start:at]
    seq: int | None = None
    for kind, first, last in elements(wire, at, end):
        if kind == SEQ:
            seq = read_integer(wire, first, last)
        else:
            _skip(kind)
    if seq is None:
        raise DecodeError("an entry names a sequence number", about="vector")
    return node, seq


BootVector = Mapping[Name, Mapping[int, int]]  # node → boot time in seconds → seq


def encode_boot_vector(vector: BootVector) -> bytes:
    """The element of version 3."""
    return encode(STATE_VECTOR, b"".join(_boot_entry(node, boots) for node, boots in sorted(vector.items())))


def decode_boot_vector(wire: bytes) -> dict[Name, dict[int, int]]:
    """The vector of version 3 that `wire` is."""
    kind, start, stop = read_header(wire, 0, len(wire))
    if kind != STATE_VECTOR or stop != len(wire):
        raise DecodeError("not a state vector")
    found: dict[Name, dict[int, int]] = {}
    for _, first, last in elements(wire, start, stop):
        kind, at, after = read_header(wire, first, last)
        if kind != t.NAME or len(found) >= SVS_VECTOR_ENTRIES:
            raise DecodeError("an entry starts with a node's name", about="vector")
        boundaries_within(wire, at, after)
        boots = found.setdefault(wire[at:after], {})
        for kind, inner, outer in elements(wire, after, last):
            if kind == BOOT_ENTRY:
                numbers = {each: read_integer(wire, a, b) for each, a, b in elements(wire, inner, outer)}
                if BOOT not in numbers or BOOT_SEQ not in numbers:
                    raise DecodeError("an entry names a boot time and a sequence number", about="vector")
                boots[numbers[BOOT]] = numbers[BOOT_SEQ]
            else:
                _skip(kind)
    return found


def _boot_entry(node: Name, boots: Mapping[int, int]) -> bytes:
    return encode(
        ENTRY,
        encode(t.NAME, node)
        + b"".join(
            encode(BOOT_ENTRY, integer_element(BOOT, boot) + integer_element(BOOT_SEQ, seq))
            for boot, seq in sorted(boots.items())
        ),
    )


def _skip(kind: int) -> None:
    if is_critical(kind):
        raise DecodeError("an unknown critical element in a vector", about=f"type {kind}")
