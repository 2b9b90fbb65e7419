"""Sealed segments without a node: records as a journal would number them, and the files its drainer would seal."""

from __future__ import annotations

import datetime
import hashlib
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from syncline.core.keys import peer_id
from syncline.core.record import Arrival, Record
from syncline.formats.records import to_arrow
from syncline.formats.segments import SegmentInfo, SegmentName, stamped

DAY_ZERO: Final = 1_772_323_200_000_000  # 2026-03-01 00:00 UTC


class FakeJournal:
    """Numbers arrivals as a node's journal does. `life` stands for the journal file: another one, another epoch."""

    def __init__(self, node: str, life: int = 1) -> None:
        self.node = peer_id(hashlib.sha256(node.encode()).digest())
        self.epoch = hashlib.sha256(f"{node}/{life}".encode()).hexdigest()[:16]
        self.lsn = 0

    def keep(self, arrivals: Iterable[Arrival]) -> list[Record]:
        return [self._keep(arrival) for arrival in arrivals]

    def _keep(self, arrival: Arrival) -> Record:
        self.lsn += 1
        return Record(node=self.node, epoch=self.epoch, lsn=self.lsn, **msgspec.structs.asdict(arrival))


def write_segments(folder: Path, records: Sequence[Record]) -> list[Path]:
    """Seal records of one journal, in their order, as one range: one file per protocol and day."""
    first, last = records[0], records[-1]
    groups: dict[SegmentName, list[Record]] = {}
    for record in records:
        name = SegmentName(first.node, first.epoch, first.lsn, last.lsn, record.protocol, _day(record))
        groups.setdefault(name, []).append(record)
    siblings = {name.path: len(group) for name, group in groups.items()}
    return [write_segment(folder, to_arrow(group), SegmentInfo.of(name, siblings)) for name, group in groups.items()]


def write_segment(folder: Path, records: pa.RecordBatch, info: SegmentInfo) -> Path:
    """One sealed file, which appears whole."""
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, records.schema, compression="zstd", write_page_checksum=True) as writer:
        writer.write_batch(records)
        writer.add_key_value_metadata(info.metadata())
    path = folder / info.path
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}")
    hidden.write_bytes(stamped(buffer.getvalue()))
    return hidden.rename(path)


def in_pieces(records: Sequence[Record], size: int) -> Iterator[Sequence[Record]]:
    """The records as a drainer would take them, `size` at a time."""
    for start in range(0, len(records), size):
        yield records[start : start + size]


def _day(record: Record) -> str:
    return datetime.datetime.fromtimestamp(record.received_at / 1e6, datetime.UTC).date().isoformat()
