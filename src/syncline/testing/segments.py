"""Sealed segments without a node: records as a journal would number them, and the files its drainer would seal."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

import msgspec
import pyarrow.parquet as pq

from syncline.core.keys import peer_id
from syncline.core.record import Arrival, Record
from syncline.formats.records import SEGMENT_VERSION, to_arrow

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
    """Seal records of one journal, in their order: one file per protocol and day."""
    ordered = sorted(records, key=lambda record: (record.protocol, _day(record), record.lsn))
    return [
        _write(folder / f"protocol={protocol}" / f"date={day}", list(group))
        for (protocol, day), group in groupby(ordered, key=lambda record: (record.protocol, _day(record)))
    ]


def in_pieces(records: Sequence[Record], size: int) -> Iterator[Sequence[Record]]:
    """The records as a drainer would take them, `size` at a time."""
    for start in range(0, len(records), size):
        yield records[start : start + size]


def _write(folder: Path, records: list[Record]) -> Path:
    first, last = records[0], records[-1]
    head = {
        "version": SEGMENT_VERSION,
        "node": first.node,
        "epoch": first.epoch,
        "lo": first.lsn,
        "hi": last.lsn,
        "rows": len(records),
    }
    batch = to_arrow(records)
    schema = batch.schema.with_metadata({"syncline.segment": msgspec.json.encode(head)})
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{first.node}-{first.epoch}-{first.lsn:020d}-{last.lsn:020d}.parquet"
    with pq.ParquetWriter(folder / f".{path.name}", schema, compression="zstd", write_page_checksum=True) as writer:
        writer.write_batch(batch.replace_schema_metadata(schema.metadata))
    return (folder / f".{path.name}").rename(path)


def _day(record: Record) -> str:
    return datetime.datetime.fromtimestamp(record.received_at / 1e6, datetime.UTC).date().isoformat()
