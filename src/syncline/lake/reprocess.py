"""History judged and decoded anew, after a decoder or a rule was mended: every table but `records` and `segments` can be
made again from the raw bytes in `records`. Each table is replaced by one commit, so a kill leaves it as it was or as it
shall be, and running it again ends in the same rows.

Rows whose records were dropped for their age, or whose bytes are gone, stay as they are: there is nothing left to make
them from.
"""

from __future__ import annotations

import datetime
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import structlog

from syncline.core import limits
from syncline.core.crash import crash_point
from syncline.core.errors import ConflictError, UnavailableError, UsageError
from syncline.formats.records import RECORD_SCHEMA
from syncline.lake.batch import Runner, clear_exchange, clear_left_exchanges
from syncline.lake.blobs import pieces, with_raw
from syncline.lake.decode import rows_of
from syncline.lake.deltas import LakeTable, dropped_before, open_delta
from syncline.lake.distinct import distinct, unknown
from syncline.lake.exchange import ExchangeWriter, Parcel, buckets_of, read_parcels
from syncline.lake.files import CHECKED, AddedFile, TableWriter
from syncline.lake.lock import only_pipeline
from syncline.lake.rebuild import partition_of
from syncline.lake.refold import refold
from syncline.lake.roots import EXCHANGE, Lake
from syncline.lake.stages import KeyedRule, ProtocolStages, Stages, journal_stages, table_named
from syncline.lake.tables import AUDIT, RECORDS, REJECTED, SEGMENTS, Table
from syncline.lake.verify import unexamined, verify

CRASH_POINTS: Final = ("lake.reprocessed",)  # after each table
JUDGED: Final = (REJECTED, AUDIT)
Arrival = tuple[str, str, int]  # node, epoch, lsn
R = TypeVar("R")
log = structlog.get_logger("syncline.lake")


class JudgeTask(msgspec.Struct, frozen=True):
    """Some files of `records`, each with the day it is of, and what is wanted of them."""

    lake: Lake
    protocol: str
    files: list[tuple[str, str]]  # path below the table's folder, date
    wanted: frozenset[str]
    exchange: str
    buckets: int


class JudgeReport(msgspec.Struct, frozen=True):
    added: list[AddedFile]
    parcels: list[Parcel]
    unreadable: list[Arrival]  # records whose bytes are gone


class DistinctTask(msgspec.Struct, frozen=True):
    """One bucket of one table: the rows decoded anew, and the old files, of which only what nobody can decode anew is
    kept.
    """

    lake: Lake
    protocol: str
    bucket: int
    parcels: list[Parcel]
    old_files: list[str]
    keep_before: datetime.date | None
    unreadable: list[Arrival]

    @property
    def keeps(self) -> bool:
        return self.keep_before is not None or bool(self.unreadable)


def reprocess(lake: Lake, stages: Stages, runner: Runner, tables: Sequence[str] = ()) -> dict[str, int]:
    """Make these tables anew (by default all that can be), with the states folded from them. Says how many rows each
    has now.
    """
    names = frozenset(tables)
    for name in names:
        if table_named(name, stages).name in (RECORDS.name, SEGMENTS.name):
            raise UsageError(f"{name} is what the other tables are made from", hint="remove it and land segments again")
    with only_pipeline(lake):
        clear_left_exchanges(lake, alone=True)
        work = _Reprocessing(lake, stages, runner, names)
        try:
            return work.run()
        finally:
            clear_exchange(lake, work.exchange)


class _Reprocessing:
    def __init__(self, lake: Lake, stages: Stages, runner: Runner, names: frozenset[str]) -> None:
        self._lake = lake
        self._stages = stages
        self._runner = runner
        self._names = names
        self.exchange = uuid.uuid4().hex
        self._rows: defaultdict[str, int] = defaultdict(int)

    def run(self) -> dict[str, int]:
        if open_delta(self._lake.table(RECORDS.name)) is None:
            return {}
        for protocol in self._protocols():
            for name, rows in _until_nobody_interferes(partial(self._protocol, protocol)).items():
                self._rows[name] += rows
        for stages in (*self._stages.values(), journal_stages()):
            for rule in stages.states:
                if self._is_wanted(rule.table, rule.source) and open_delta(self._lake.table(rule.source)) is not None:
                    self._rows[rule.table.name] += refold(self._lake, stages, rule, self._runner)
                    crash_point("lake.reprocessed")
        return dict(self._rows)

    def _is_wanted(self, table: Table, source: str = "") -> bool:
        return not self._names or table.name in self._names or source in self._names

    def _protocols(self) -> list[str]:
        records = open_delta(self._lake.table(RECORDS.name))
        assert records is not None
        return sorted({str(part["protocol"]) for part in records.partitions()})

    def _protocol(self, protocol: str) -> dict[str, int]:
        stages = self._stages.get(protocol)
        keyed = [] if stages is None else [rule for rule in stages.keyed if self._is_wanted(rule.table)]
        judged = [table for table in JUDGED if self._is_wanted(table)]
        done: dict[str, int] = {}
        if not keyed and not judged:
            return done
        # First the tables to replace, then `records`: what a pipeline has landed there by now is in `records` too, which
        # it commits first; and what it lands there later makes our commit fail, and all of this run again.
        targets = {table.name: self._present(table) for table in (*judged, *(rule.table for rule in keyed))}
        records = self._open(RECORDS)
        buckets = self._open(stages.ledger).buckets if stages is not None and stages.keyed else 1
        wanted = frozenset(table.name for table in (*judged, *(rule.table for rule in keyed)))
        reports = self._runner.run(
            partial(judge_files, stages=stages),
            [
                JudgeTask(self._lake, protocol, files, wanted, f"{EXCHANGE}/{self.exchange}", buckets)
                for files in _groups(records.files_with_dates(protocol), self._runner.parallelism)
            ],
            f"judge {protocol} again",
        )
        unreadable = [name for each in reports for name in each.unreadable]
        if unreadable:
            log.error(
                "lake.unreadable", protocol=protocol, records=len(unreadable), first="/".join(map(str, unreadable[0]))
            )
        for table in judged:
            added = [file for each in reports for file in each.added if file.table == table.name]
            done[table.name] = self._replace(targets[table.name] or self._new(table), added, records, protocol)
        for rule in keyed:
            parcels = [parcel for each in reports for parcel in each.parcels if parcel.table == rule.table.name]
            target = targets[rule.table.name]
            if target is not None or parcels:  # else a schema that never occurred
                own = target or self._new(rule.table)
                done[rule.table.name] = self._keyed(rule, own, parcels, records, protocol, unreadable)
        return done

    def _keyed(
        self,
        rule: KeyedRule,
        target: LakeTable,
        parcels: list[Parcel],
        records: LakeTable,
        protocol: str,
        unreadable: list[Arrival],
    ) -> int:
        old = target.files_by_bucket(protocol)
        by_bucket: defaultdict[int, list[Parcel]] = defaultdict(list)
        for parcel in parcels:
            by_bucket[parcel.bucket].append(parcel)
        before = dropped_before(self._lake.table(RECORDS.name))
        kept = old if before is not None or unreadable else {}
        tasks = [
            DistinctTask(self._lake, protocol, bucket, by_bucket[bucket], kept.get(bucket, []), before, unreadable)
            for bucket in sorted({*by_bucket, *kept})
        ]
        found = self._runner.run(partial(write_bucket, rule=rule), tasks, f"write {rule.table.name} again")
        return self._replace(target, [file for each in found for file in each], records, protocol)

    def _replace(self, target: LakeTable, added: list[AddedFile], records: LakeTable, protocol: str) -> int:
        target.replace(added, records, protocol)
        crash_point("lake.reprocessed")
        return sum(file.rows for file in added)

    def _present(self, table: Table) -> LakeTable | None:
        """The open table, or None if it is not there and may stay so until it has a row."""
        if table.named or open_delta(self._lake.table(table.name)) is not None:
            return self._open(table)
        return None

    def _new(self, table: Table) -> LakeTable:
        """The table, which was not there when we began."""
        made = self._open(table)
        if made.version > 0:
            raise ConflictError("somebody else made the table meanwhile", about=table.name)
        return made

    def _open(self, table: Table) -> LakeTable:
        buckets = limits.LAKE_BUCKETS
        for stages in self._stages.values():
            if table in stages.tables and table is not stages.ledger:
                buckets = self._open(stages.ledger).buckets
        return LakeTable.open(self._lake.table(table.name), table, buckets=buckets)


def judge_files(task: JudgeTask, stages: ProtocolStages | None) -> JudgeReport:
    """Judge and decode files of `records` as if their segments had just landed."""
    filesystem = task.lake.tables.filesystem()
    writers = {table.name: TableWriter(filesystem, table) for table in JUDGED if table.name in task.wanted}
    rules = [] if stages is None else [rule for rule in stages.keyed if rule.table.name in task.wanted]
    outgoing = {
        rule.table.name: ExchangeWriter(filesystem, task.exchange, rule.table.name, rule.table.file_schema)
        for rule in rules
    }
    unreadable: list[Arrival] = []
    for path, date in sorted(task.files, key=lambda file: (file[1], file[0])):
        partition = {"protocol": task.protocol, "date": date}
        for records in _record_pieces(filesystem, path, task.protocol):
            whole, gone = (records, []) if stages is None else with_raw(records, task.lake.blobs)
            unreadable += _without_bytes(whole) if gone else []
            examined = unexamined(whole) if stages is None else stages.examine(whole)
            verified = verify(records, examined)
            for name, rows in ((REJECTED.name, verified.rejected), (AUDIT.name, verified.differing)):
                if name in writers:
                    writers[name].write(partition, rows.select([field.name for field in _schema_of(name)]))
            for rule in rules:
                if rule.table.name in examined.rows:
                    found = rows_of(rule.table, records, examined, verified.accepted)
                    outgoing[rule.table.name].write(found, buckets_of(found[rule.table.key], task.buckets))
    for writer in writers.values():
        writer.close()
    parcels = [parcel for each in outgoing.values() for parcel in each.close()]
    return JudgeReport([file for writer in writers.values() for file in writer.added], parcels, unreadable)


def write_bucket(task: DistinctTask, rule: KeyedRule) -> list[AddedFile]:
    """One row per message of a bucket, as files of its own."""
    filesystem, table = task.lake.tables.filesystem(), rule.table
    rows = distinct(read_parcels(filesystem, task.parcels, table.file_schema), rule)
    if task.keeps and task.old_files:
        names = [*table.identity, *([rule.content] if rule.content else [])]
        old = _kept(filesystem, table, task)
        rows = pa.concat_tables([unknown(old, rows.select(names), rule), rows])  # another node's copy may be readable
    writer = TableWriter(filesystem, table)
    order = [(name, "ascending") for name in table.sort_by]
    writer.write(partition_of(table, task.protocol, task.bucket), rows.sort_by(order))
    writer.close()
    return writer.added


def _kept(filesystem: Any, table: Table, task: DistinctTask) -> pa.Table:
    """The rows as they are of records that were dropped for their age, or whose bytes are gone."""
    paths = [f"{table.name}/{path}" for path in task.old_files]
    dataset = ds.dataset(paths, schema=table.file_schema, format=CHECKED, filesystem=filesystem, partitioning=None)
    midnight = datetime.datetime.combine(task.keep_before or datetime.date.min, datetime.time(), datetime.UTC)
    where = pc.field("received_at") < midnight if task.keep_before is not None else pc.scalar(False)
    lost = frozenset(task.unreadable)
    if lost:
        where = where | pc.field("lsn").isin(pa.array([lsn for _, _, lsn in lost], pa.int64()))
    found = dataset.to_table(filter=where, use_threads=False)
    received, *arrival = (found[name].to_pylist() for name in table.arrival)
    keep = [
        name in lost or (task.keep_before is not None and at < midnight)
        for at, name in zip(received, zip(*arrival, strict=True), strict=True)
    ]
    return found.filter(pa.array(keep, pa.bool_()))


def _without_bytes(records: pa.Table) -> list[Arrival]:
    gone = records.filter(pc.and_(pc.is_null(records["raw"]), pc.is_valid(records["raw_ref"])))
    return list(zip(*(gone[name].to_pylist() for name in ("node", "epoch", "lsn")), strict=True))


def _record_pieces(filesystem: Any, path: str, protocol: str) -> Any:
    """The records of one file, a row group at a time."""
    with filesystem.open_input_file(f"{RECORDS.name}/{path}") as stream:
        file = pq.ParquetFile(stream, page_checksum_verification=True)
        for group in range(file.num_row_groups):
            found = file.read_row_group(group, use_threads=False)
            named = found.append_column("protocol", pa.array([protocol] * found.num_rows, pa.string()))
            yield from pieces(named.select(RECORD_SCHEMA.names).cast(RECORD_SCHEMA))


def _schema_of(name: str) -> pa.Schema:
    return {table.name: table.file_schema for table in JUDGED}[name]


def _groups(files: list[tuple[str, str, int]], parallelism: int) -> list[list[tuple[str, str]]]:
    """Files in groups of about equal size."""
    total = sum(size for _, _, size in files)
    count = max(1, min(len(files), max(parallelism, total // limits.LAKE_TASK_BYTES)))
    groups: list[list[tuple[str, str]]] = [[] for _ in range(count)]
    sizes = [0] * count
    for path, date, size in sorted(files, key=lambda file: (-file[2], file[0])):
        smallest = sizes.index(min(sizes))
        groups[smallest].append((path, date))
        sizes[smallest] += size
    return [group for group in groups if group]


def _until_nobody_interferes(work: Callable[[], R]) -> R:
    for _ in range(limits.LAKE_COMMIT_ATTEMPTS):
        try:
            return work()
        except ConflictError:
            continue
    raise UnavailableError("another pipeline committed first each time", hint="stop it, then try again")
