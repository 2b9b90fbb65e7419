"""Sealed segments as the lake meets them: their names, which of them are there, reading one with every check, and
putting a damaged one aside. What a segment is, docs/segments.md says; nodes write them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from syncline.core.errors import CorruptionError
from syncline.formats.records import RECORD_SCHEMA, SEGMENT_VERSION
from syncline.lake.roots import QUARANTINE, Root

METADATA_KEY: Final = b"syncline.segment"
_NAME: Final = re.compile(
    r"protocol=(?P<protocol>[^/]+)/date=(?P<date>\d{4}-\d\d-\d\d)/"
    r"(?P<node>[0-9A-Za-z]+)-(?P<epoch>[0-9a-f]{16})-(?P<lo>\d{20})-(?P<hi>\d{20})\.parquet"
)


class Segment(msgspec.Struct, frozen=True, order=True):
    """One sealed file: the records `lo` to `hi` of one journal that belong to one protocol and day."""

    protocol: str
    date: str
    node: str
    epoch: str
    lo: int
    hi: int
    size: int = 0

    @property
    def path(self) -> str:
        """Below the segments folder; also the segment's identity, since it holds node, epoch and range."""
        return (
            f"protocol={self.protocol}/date={self.date}/{self.node}-{self.epoch}-{self.lo:020d}-{self.hi:020d}.parquet"
        )

    @property
    def chain(self) -> str:
        """Names the sequence of segments that one journal makes of one protocol."""
        return f"{self.node}/{self.epoch}/{self.protocol}"


class SegmentHead(msgspec.Struct, frozen=True):
    """What a segment says of itself in its Parquet metadata; further keys are for others."""

    version: int
    node: str
    epoch: str
    lo: int
    hi: int
    rows: int


def parse_path(path: str, size: int = 0) -> Segment | None:
    """The segment of this path below the segments folder, or None if no segment is named so."""
    match = _NAME.fullmatch(path)
    if match is None:
        return None
    return Segment(
        match["protocol"], match["date"], match["node"], match["epoch"], int(match["lo"]), int(match["hi"]), size
    )


def list_segments(root: Root) -> Iterator[Segment | str]:
    """Every sealed file that is there now; a Parquet file with a name no node gives comes as its bare path."""
    filesystem = root.filesystem()
    for info in filesystem.get_file_info(pafs.FileSelector("", recursive=True)):
        hidden = any(part.startswith((".", "_")) for part in info.path.split("/"))
        if info.type == pafs.FileType.File and info.path.endswith(".parquet") and not hidden:
            yield parse_path(info.path, info.size) or info.path


def read_segment(filesystem: Any, segment: Segment) -> pa.Table:
    """All records of a segment. Raises CorruptionError unless it is whole and says of itself what its name says."""
    try:
        with pq.ParquetFile(filesystem.open_input_file(segment.path), page_checksum_verification=True) as file:
            head = _head(file)
            table = file.read(use_threads=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, ValueError) as error:
        raise _damaged(segment, f"is not readable: {error}") from None
    except OSError as error:
        if error.errno is not None:  # the disk's or network's fault, not the file's
            raise
        raise _damaged(segment, f"is not readable: {error}") from None
    _check(segment, head, table)
    return table


def quarantine(root: Root, path: str, why: str) -> str:
    """Put a damaged file aside, with the reason beside it, and say where. It is never deleted."""
    filesystem = root.filesystem()
    target = f"{QUARANTINE}/{path}"
    filesystem.create_dir(target.rpartition("/")[0], recursive=True)
    with filesystem.open_output_stream(target + ".reason.txt") as note:
        note.write(why.encode() + b"\n")
    filesystem.move(path, target)
    return target


def _head(file: pq.ParquetFile) -> SegmentHead:
    raw = (file.schema_arrow.metadata or {}).get(METADATA_KEY) or (file.metadata.metadata or {}).get(METADATA_KEY)
    if raw is None:
        raise ValueError(f"no {METADATA_KEY.decode()} in its metadata")
    return msgspec.json.decode(raw, type=SegmentHead)


def _check(segment: Segment, head: SegmentHead, table: pa.Table) -> None:
    if head.version != SEGMENT_VERSION:
        raise _damaged(segment, f"is of version {head.version}, this program reads {SEGMENT_VERSION}")
    if (head.node, head.epoch, head.lo, head.hi) != (segment.node, segment.epoch, segment.lo, segment.hi):
        raise _damaged(segment, "was renamed: its metadata names another segment")
    if head.rows != table.num_rows:
        raise _damaged(segment, f"holds {table.num_rows} records, not the {head.rows} it was sealed with")
    if not table.schema.remove_metadata().equals(RECORD_SCHEMA):
        raise _damaged(segment, "has other columns than a record")
    span = pc.min_max(table["lsn"]).as_py()
    if not segment.lo <= span["min"] <= span["max"] <= segment.hi:
        raise _damaged(segment, "holds records outside its range")
    for name, value in (("node", segment.node), ("epoch", segment.epoch), ("protocol", segment.protocol)):
        if pc.min_max(table[name]).as_py() != {"min": value, "max": value}:
            raise _damaged(segment, f"holds records of another {name}")


def _damaged(segment: Segment, what: str) -> CorruptionError:
    return CorruptionError(
        f"a segment {what}", hint="put back a good copy and run `syncline lake run`", about=segment.path
    )
