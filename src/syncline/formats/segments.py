"""The sealed segment: a Parquet file that says where it belongs and whether a single bit of it has changed.

Name, metadata and checksum of a segment, and how to check one. docs/segments.md states the format. Sealing, storing
and listing segments belong to the journal, landing them to the lake.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from syncline.core.errors import CorruptionError
from syncline.formats.records import RECORD_SCHEMA, SEGMENT_VERSION

METADATA_KEY: Final = b"syncline.segment"
_NAME: Final = re.compile(
    r"protocol=(?P<protocol>[0-9A-Za-z_.-]+)/date=(?P<date>\d{4}-\d{2}-\d{2})/"
    r"(?P<node>[0-9A-Za-z]+)-(?P<epoch>[0-9a-f]{16})-(?P<lo>\d{20})-(?P<hi>\d{20})\.parquet"
)
_UNSET: Final = "0" * 64
_DIGEST: Final = re.compile(rb'"sha256":"([0-9a-f]{64})"')
_TAIL: Final = 8  # bytes: length of the footer, then PAR1
_MAGIC: Final = b"PAR1"


class SegmentName(msgspec.Struct, frozen=True, order=True):
    """Where a segment belongs. Records lo to hi of a node's epoch were sealed together, a file per protocol and day."""

    node: str
    epoch: str
    lo: int
    hi: int
    protocol: str
    date: str  # of received_at, UTC

    @property
    def path(self) -> str:
        """Below the folder or bucket of segments."""
        return (
            f"protocol={self.protocol}/date={self.date}/{self.node}-{self.epoch}-{self.lo:020d}-{self.hi:020d}.parquet"
        )

    @classmethod
    def parse(cls, path: str) -> SegmentName | None:
        """The name in a path below the folder of segments; None if it is not a segment's."""
        match = _NAME.fullmatch(path)
        if match is None:
            return None
        parts = match.groupdict()
        return cls(parts["node"], parts["epoch"], int(parts["lo"]), int(parts["hi"]), parts["protocol"], parts["date"])


class SegmentInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a segment says of itself, under METADATA_KEY as JSON."""

    version: int
    path: str
    node: str
    epoch: str
    lo: int
    hi: int
    rows: int
    siblings: dict[str, int]  # rows of every file of this range by path, this one included
    sha256: str = _UNSET  # of the file with 64 zeros in this place

    @classmethod
    def of(cls, name: SegmentName, siblings: dict[str, int]) -> SegmentInfo:
        return cls(
            version=SEGMENT_VERSION, path=name.path, node=name.node, epoch=name.epoch, lo=name.lo, hi=name.hi,
            rows=siblings[name.path], siblings=siblings,
        )  # fmt: skip

    def metadata(self) -> dict[bytes, bytes]:
        return {METADATA_KEY: msgspec.json.encode(self)}


def stamped(data: bytes) -> bytes:
    """A segment as its writer left it, with its checksum in place."""
    start, digest = _digest(data)
    return b"".join((data[:start], digest, data[start + 64 :]))


def check_segment(data: bytes, path: str) -> SegmentInfo:
    """What these bytes say of themselves, after every one of them was checked. Raises CorruptionError."""
    try:
        start, digest = _digest(data)
    except CorruptionError as error:
        raise CorruptionError(error.message, about=path) from None
    if data[start : start + 64] != digest:  # before a parser sees a byte of it
        raise CorruptionError("the segment does not match its checksum", about=path)
    metadata = pq.ParquetFile(pa.BufferReader(data)).metadata
    info = msgspec.json.decode(metadata.metadata[METADATA_KEY], type=SegmentInfo)
    if info.version != SEGMENT_VERSION:
        raise CorruptionError(f"the segment has version {info.version}, not {SEGMENT_VERSION}", about=path)
    if info.path != path:
        raise CorruptionError(f"the segment belongs at {info.path}", about=path)
    if metadata.num_rows != info.rows or info.siblings.get(path) != info.rows:
        raise CorruptionError(f"the segment has {metadata.num_rows} rows, not {info.rows}", about=path)
    return info


def read_segment(data: bytes, path: str) -> tuple[SegmentInfo, pa.Table]:
    """What a segment says of itself, and its records, checked."""
    info = check_segment(data, path)
    return info, pq.read_table(pa.BufferReader(data), schema=RECORD_SCHEMA, partitioning=None)


def _digest(data: bytes) -> tuple[int, bytes]:
    """Where in the footer the checksum stands, and what it ought to be. Trusts no length but the footer's."""
    if len(data) < 2 * _TAIL or data[-4:] != _MAGIC:
        raise CorruptionError("not a whole Parquet file")
    footer = max(len(data) - _TAIL - int.from_bytes(data[-8:-4], "little"), 0)
    found = [match.start(1) for match in _DIGEST.finditer(data, footer)]
    if len(found) != 1:
        raise CorruptionError("the segment carries no checksum")
    hasher = sha256(memoryview(data)[: found[0]])
    hasher.update(_UNSET.encode())
    hasher.update(memoryview(data)[found[0] + 64 :])
    return found[0], hasher.hexdigest().encode()
