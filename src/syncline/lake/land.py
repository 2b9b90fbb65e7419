"""The narrow half of a batch, as one task runs it: read segments, judge them again, write the rows of `records`,
`rejected` and `audit`, decode, and hand the decoded rows to the exchange. One pass over each segment, nothing kept in
memory but the segment at hand. Runs on executors; commits nothing.
"""

from __future__ import annotations

import msgspec
import pyarrow as pa

from syncline.core.errors import CorruptionError
from syncline.formats.segments import SegmentInfo
from syncline.lake.blobs import pieces, with_raw
from syncline.lake.decode import rows_of
from syncline.lake.exchange import ExchangeWriter, Parcel, buckets_of
from syncline.lake.files import AddedFile, TableWriter
from syncline.lake.roots import Lake
from syncline.lake.segments import Segment, read_segment
from syncline.lake.stages import Examined, ProtocolStages, Stages
from syncline.lake.stages.journal import PROTOCOL as JOURNAL
from syncline.lake.stages.journal import segment_row
from syncline.lake.tables import AUDIT, RECORDS, REJECTED, SEGMENTS, Table
from syncline.lake.verify import Mask, unexamined, verify


class SegmentTask(msgspec.Struct, frozen=True):
    """One segment and the tables that still lack it."""

    segment: Segment
    tables: frozenset[str]


class LandTask(msgspec.Struct, frozen=True):
    """What one executor task is to land."""

    lake: Lake
    segments: list[SegmentTask]
    exchange: str  # folder of this batch's exchange files, below the tables
    buckets: dict[str, int]  # protocol → how many


class Damaged(msgspec.Struct, frozen=True):
    """A file of ours that is not what it was: a segment, which is put aside, or bytes that a record refers to."""

    path: str
    why: str
    is_segment: bool = True


class LandReport(msgspec.Struct, frozen=True):
    """What a task did. Small, whatever the data: it goes to the driver."""

    added: list[AddedFile]
    parcels: list[Parcel]
    landed: list[str]  # paths of the segments read
    damaged: list[Damaged]
    rows: int
    differing: int  # records whose content the lake judges otherwise than the node did


def land(task: LandTask, stages: Stages) -> LandReport:
    """Land the task's segments. A damaged segment is reported and leaves no row behind; the others go on."""
    return _Landing(task, stages).run()


class _Landing:
    def __init__(self, task: LandTask, stages: Stages) -> None:
        self._task = task
        self._stages = stages
        self._tables = task.lake.tables.filesystem()
        self._segments = task.lake.segments.filesystem()
        self._records = TableWriter(self._tables, RECORDS)
        self._rejected = TableWriter(self._tables, REJECTED)
        self._audit = TableWriter(self._tables, AUDIT)
        self._outgoing: dict[str, ExchangeWriter] = {}
        self._landed: list[str] = []
        self._damaged: list[Damaged] = []
        self._rows = 0
        self._differing = 0

    def run(self) -> LandReport:
        for item in sorted(self._task.segments, key=lambda item: item.segment.path):
            try:
                info, records = read_segment(self._segments, item.segment)
            except FileNotFoundError:  # put aside, or removed after landing, by somebody else since it was listed
                continue
            except CorruptionError as error:
                self._damaged.append(Damaged(item.segment.path, error.message))
                continue
            self._land(item, records)
            self._trace(item, info)
        writers = (self._records, self._rejected, self._audit)
        for writer in writers:
            writer.close()
        parcels = [parcel for outgoing in self._outgoing.values() for parcel in outgoing.close()]
        return LandReport(
            [file for writer in writers for file in writer.added],
            parcels,
            self._landed,
            self._damaged,
            self._rows,
            self._differing,
        )

    def _land(self, item: SegmentTask, records: pa.Table) -> None:
        segment = item.segment
        partition = {"protocol": segment.protocol, "date": segment.date}
        if RECORDS.name in item.tables:
            self._records.write(partition, records.select(RECORDS.file_schema.names))
        stages = self._stages.get(segment.protocol)
        if item.tables - {RECORDS.name, SEGMENTS.name}:
            for piece in pieces(records):
                examined = self._examine(stages, piece)
                verified = verify(piece, examined)
                self._differing += verified.differing.num_rows
                if REJECTED.name in item.tables:
                    self._rejected.write(partition, verified.rejected.select(REJECTED.file_schema.names))
                if AUDIT.name in item.tables:
                    self._audit.write(partition, verified.differing.select(AUDIT.file_schema.names))
                if stages is not None and item.tables & {table.name for table in stages.tables}:
                    self._decode(stages, piece, examined, verified.accepted)
        self._landed.append(segment.path)
        self._rows += records.num_rows

    def _trace(self, item: SegmentTask, info: SegmentInfo) -> None:
        if SEGMENTS.name in item.tables:
            row = segment_row(item.segment, info)
            self._writer_of(SEGMENTS).write(row, buckets_of(row[SEGMENTS.key], self._task.buckets[JOURNAL]))

    def _examine(self, stages: ProtocolStages | None, records: pa.Table) -> Examined:
        if stages is None:
            return unexamined(records)
        whole, problems = with_raw(records, self._task.lake.blobs)
        self._damaged += [Damaged(f"blobs/{error.about}", error.message, is_segment=False) for error in problems]
        return stages.examine(whole)

    def _decode(self, stages: ProtocolStages, records: pa.Table, examined: Examined, accepted: Mask) -> None:
        buckets = self._task.buckets[stages.protocol]
        for table in (rule.table for rule in stages.keyed if rule.table.name in examined.rows):
            rows = rows_of(table, records, examined, accepted)
            self._writer_of(table).write(rows, buckets_of(rows[table.key], buckets))

    def _writer_of(self, table: Table) -> ExchangeWriter:
        if table.name not in self._outgoing:
            self._outgoing[table.name] = ExchangeWriter(
                self._tables, self._task.exchange, table.name, table.file_schema
            )
        return self._outgoing[table.name]
