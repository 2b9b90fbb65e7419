"""Mappings: which application name a node's sequence number stands for, with further blocks such as the time.

205 { Name of the node, 206 { 204 seq, Name, further blocks … } … }
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from syncline.core.errors import DecodeError
from syncline.core.limits import SVS_EXTRA_BYTES, SVS_MAPPING_ENTRIES
from syncline.core.verdict import Reason
from syncline.formats.ndn import types as t
from syncline.formats.ndn.names import Name, boundaries_within, number
from syncline.formats.tlv import elements, encode, integer_element, is_critical, read_header, read_integer

MAPPING_DATA: Final = 205
MAPPING_ENTRY: Final = 206
SEQ: Final = 204


class MappingEntry(msgspec.Struct, frozen=True, gc=False):
    """One publication's number and name. `extra` holds the further blocks as they came."""

    seq: int
    name: Name
    extra: bytes = b""

    @property
    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """(type, value) of each further block."""
        for kind, start, stop in elements(self.extra, 0, len(self.extra)):
            yield kind, self.extra[start:stop]

    @property
    def timestamp(self) -> int | None:
        """When it was published, in microseconds since 1970, if the publisher says so."""
        for kind, value in self.blocks:
            if kind == t.TIMESTAMP:
                return _time(value)
        return None


class MappingData(msgspec.Struct, frozen=True, gc=False):
    """Entries of one node."""

    node: Name
    entries: tuple[MappingEntry, ...]


def timestamp_block(microseconds: int) -> bytes:
    """The well-known block that says when something was published."""
    return number(t.TIMESTAMP, microseconds)


def encode_entry(entry: MappingEntry) -> bytes:
    return encode(MAPPING_ENTRY, integer_element(SEQ, entry.seq) + encode(t.NAME, entry.name) + entry.extra)


def encode_mapping(node: Name, entries: Sequence[MappingEntry]) -> bytes:
    """A MappingData element."""
    return encode(MAPPING_DATA, encode(t.NAME, node) + b"".join(map(encode_entry, entries)))


def decode_mapping(wire: bytes, at: int = 0) -> MappingData:
    """The MappingData that `wire` is, from `at` on."""
    kind, start, stop = read_header(wire, at, len(wire))
    if kind != MAPPING_DATA or stop != len(wire):
        raise DecodeError("not mapping data", about="mapping")
    kind, first, last = read_header(wire, start, stop)
    if kind != t.NAME:
        raise DecodeError("mapping data starts with the node's name", about="mapping")
    boundaries_within(wire, first, last)
    node = wire[first:last]
    entries: list[MappingEntry] = []
    for kind, begin, end in elements(wire, last, stop):
        if kind == MAPPING_ENTRY:
            if len(entries) >= SVS_MAPPING_ENTRIES:
                raise DecodeError(f"more than {SVS_MAPPING_ENTRIES} entries", reason=Reason.TOO_COMPLEX)
            entries.append(_entry(wire, begin, end))
    return MappingData(node, tuple(entries))


def mapping_after(wire: bytes, at: int) -> MappingData | None:
    """The one MappingData among the elements from `at` on, if there is one; unknown ones are passed over."""
    found: MappingData | None = None
    while at < len(wire):
        kind, _, stop = read_header(wire, at, len(wire))
        if kind == MAPPING_DATA and found is None:
            found = decode_mapping(wire[at:stop])
        elif is_critical(kind):
            raise DecodeError("an unknown critical element after the vector", about=f"type {kind}")
        at = stop
    return found


def _entry(wire: bytes, at: int, end: int) -> MappingEntry:
    kind, start, at = read_header(wire, at, end)
    if kind != SEQ:
        raise DecodeError("an entry starts with a sequence number", about="mapping")
    seq = read_integer(wire, start, at)
    kind, start, at = read_header(wire, at, end)
    if kind != t.NAME:
        raise DecodeError("an entry names its publication", about="mapping")
    boundaries_within(wire, start, at)
    if end - at > SVS_EXTRA_BYTES:
        raise DecodeError(f"{end - at} bytes of further blocks", reason=Reason.OVERSIZE, about="mapping")
    for _ in elements(wire, at, end):
        pass  # they must at least be elements
    return MappingEntry(seq, wire[start:at], wire[at:end])


def _time(value: bytes) -> int | None:
    """The number of a Timestamp component; NDNts wraps the component twice."""
    if len(value) in (1, 2, 4, 8):
        return int.from_bytes(value, "big")
    if len(value) in (3, 6, 10) and value[0] == t.TIMESTAMP and value[1] == len(value) - 2:
        return int.from_bytes(value[2:], "big")
    return None
