"""Sealed segments as the lake meets them: which of them are there, reading one with every check, and putting a damaged
one aside. What a segment is, formats and docs/segments.md say; nodes write them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from syncline.core.errors import CorruptionError
from syncline.formats.records import RECORD_SCHEMA
from syncline.formats.segments import SegmentInfo, SegmentName, check_segment
from syncline.lake.roots import BLOBS, QUARANTINE, Root, make_folder

_DATE: Final = "date="


class Segment(SegmentName, frozen=True, order=True):
    """One sealed file, named by its path below the segments folder, which holds node, epoch and range."""

    size: int = 0

    @property
    def chain(self) -> str:
        """Names the sequence of segments that one journal makes of one protocol."""
        return f"{self.node}/{self.epoch}/{self.protocol}"


def parse_path(path: str, size: int = 0) -> Segment | None:
    """The segment of this path below the segments folder, or None if no segment is named so."""
    name = SegmentName.parse(path)
    if name is None:
        return None
    return Segment(name.node, name.epoch, name.lo, name.hi, name.protocol, name.date, size)


def list_segments(root: Root, since: str = "") -> Iterator[Segment | str]:
    """Every sealed file that is there now, folder by folder; a Parquet file with a name no node gives comes as its bare
    path. With `since`, a date, folders of earlier days are not even listed.
    """
    return _listed(root.filesystem(), "", f"{_DATE}{since}")


def _listed(filesystem: Any, folder: str, earliest: str) -> Iterator[Segment | str]:
    for info in filesystem.get_file_info(pafs.FileSelector(folder, allow_not_found=True)):
        name = info.path.rpartition("/")[2]
        if name.startswith((".", "_")) or (name.startswith(_DATE) and name < earliest) or info.path == BLOBS:
            continue
        if info.type == pafs.FileType.Directory:
            yield from _listed(filesystem, info.path, earliest)
        elif info.path.endswith(".parquet"):
            yield parse_path(info.path, info.size) or info.path


def read_segment(filesystem: Any, segment: Segment) -> tuple[SegmentInfo, pa.Table]:
    """What a segment says of itself, and all its records. Raises CorruptionError unless every bit is as it was sealed,
    under its own name.
    """
    with filesystem.open_input_file(segment.path) as file:
        data = file.read()
    info = check_segment(data, segment.path)
    try:
        table = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise CorruptionError(f"the segment cannot be read: {error}", about=segment.path) from None
    _check(segment, table)
    return info, table


def quarantine(root: Root, path: str, why: str) -> str:
    """Put a damaged file aside, with the reason beside it, and say where. It is never deleted."""
    filesystem = root.filesystem()
    target = f"{QUARANTINE}/{path}"
    make_folder(filesystem, target.rpartition("/")[0])
    with filesystem.open_output_stream(target + ".reason.txt") as note:
        note.write(why.encode() + b"\n")
    filesystem.move(path, target)
    return target


def _check(segment: Segment, table: pa.Table) -> None:
    if not table.schema.remove_metadata().equals(RECORD_SCHEMA):
        raise CorruptionError("the segment has other columns than a record", about=segment.path)
    span = pc.min_max(table["lsn"]).as_py()
    if not segment.lo <= span["min"] <= span["max"] <= segment.hi:
        raise CorruptionError("the segment holds records outside its range", about=segment.path)
    for name, value in (("node", segment.node), ("epoch", segment.epoch), ("protocol", segment.protocol)):
        if pc.min_max(table[name]).as_py() != {"min": value, "max": value}:
            raise CorruptionError(f"the segment holds records of another {name}", about=segment.path)
