"""One batch of segments, landed exactly once: computed by tasks, committed table by table, in an order that can be cut
anywhere and begun again. Knows neither Spark nor where the batch came from; a `Runner` runs its tasks.

Every table's commit names the segments in it. What a crash, a replay or a rival leaves undone is found by asking each
table which segments it lacks, so the same code path is the normal one and the recovery.
"""

from __future__ import annotations

import heapq
import math
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

import msgspec
import pyarrow.fs as pafs
import structlog

from syncline.core import limits
from syncline.core.crash import crash_point
from syncline.core.errors import ConflictError, UnavailableError
from syncline.lake.deltas import BatchName, LakeTable, open_delta
from syncline.lake.exchange import Parcel
from syncline.lake.files import AddedFile
from syncline.lake.land import Damaged, LandReport, LandTask, SegmentTask, land
from syncline.lake.rebuild import BucketTask, rebuild
from syncline.lake.roots import EXCHANGE, Lake
from syncline.lake.segments import Segment, quarantine
from syncline.lake.stages import ProtocolStages, Stages, StateRule, all_tables, journal_stages
from syncline.lake.stages.journal import PROTOCOL as JOURNAL
from syncline.lake.tables import BASE_TABLES, Table

T = TypeVar("T")
R = TypeVar("R")
CRASH_POINTS: Final = ("lake.begun", "lake.landed", "lake.rebuilt", "lake.committed")  # the last: after each table
EXCHANGE_SECONDS: Final = 86_400  # older exchange files belong to no running batch
log = structlog.get_logger("syncline.lake")


class Runner(Protocol):
    """Runs a function on every task, anywhere, at least once each, and gives the answers in the tasks' order."""

    parallelism: int

    def run(self, function: Callable[[T], R], tasks: Sequence[T], title: str) -> list[R]: ...


class InProcess:
    """Runs tasks one after the other, here."""

    parallelism = 1

    def run(self, function: Callable[[T], R], tasks: Sequence[T], title: str) -> list[R]:
        return [function(task) for task in tasks]


class BatchResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one batch did."""

    batch: int | None = None  # as Spark counts; None for segments found by looking
    segments: int = 0  # landed in at least one table
    records: int = 0  # in them
    added: dict[str, int] = {}  # rows added per append or keyed table; rows in the rewritten buckets of a state table
    damaged: list[Damaged] = []
    differing: int = 0
    seconds: float = 0.0


class Lander:
    """Lands batches into the tables of one lake."""

    def __init__(self, lake: Lake, stages: Stages, runner: Runner, *, buckets: int = limits.LAKE_BUCKETS) -> None:
        self.lake = lake
        self.stages = stages
        self.runner = runner
        self._journal = journal_stages()
        self._new_buckets = buckets
        self._tables: dict[str, LakeTable] = {}

    def table(self, table: Table) -> LakeTable:
        """The open table; made if it is not there."""
        if table.name not in self._tables:
            root = self.lake.table(table.name)
            self._tables[table.name] = LakeTable.open(root, table, buckets=self._buckets_for(table))
        return self._tables[table.name]

    def present(self, table: Table) -> LakeTable | None:
        """The open table, or None if it is not there and may stay so until it has a row."""
        if table.named or table.name in self._tables or open_delta(self.lake.table(table.name)) is not None:
            return self.table(table)
        return None

    def buckets(self, protocol: str) -> int:
        """How many buckets the protocol's tables have: fixed when the first of them was made."""
        stages = self._stages_of(protocol)
        return self.table(stages.ledger).buckets if stages and stages.keyed else 1

    @property
    def everything(self) -> tuple[ProtocolStages, ...]:
        """The stages of all protocols, then those of the segments themselves."""
        return (*self.stages.values(), self._journal)

    def _stages_of(self, protocol: str) -> ProtocolStages | None:
        return self._journal if protocol == self._journal.protocol else self.stages.get(protocol)

    def _buckets_for(self, table: Table) -> int:
        """All tables of a protocol are split alike, whenever they are made: rows of one key must meet."""
        for stages in self.everything:
            if table in stages.tables and stages.keyed and table is not stages.ledger:
                return self.table(stages.ledger).buckets
        return self._new_buckets

    def tables_of(self, protocol: str) -> tuple[Table, ...]:
        """The tables that name the segments of this protocol, in the order of commits."""
        stages = self.stages.get(protocol)
        tables = (*BASE_TABLES, *(() if stages is None else stages.tables), *self._journal.tables)
        return tuple(table for table in tables if table.named)

    def lacking(self, segments: Sequence[Segment]) -> dict[Segment, frozenset[str]]:
        """Each segment that is not in all its tables yet, with the tables that lack it."""
        by_table: defaultdict[str, list[Segment]] = defaultdict(list)
        for segment in segments:
            for table in self.tables_of(segment.protocol):
                by_table[table.name].append(segment)
        lacking: defaultdict[Segment, set[str]] = defaultdict(set)
        for name, table in all_tables(self.stages.values()).items():
            if name in by_table:
                opened = self.table(table)
                opened.refresh()
                for segment in opened.lacking(by_table[name]):
                    lacking[segment].add(name)
        return {segment: frozenset(names) for segment, names in lacking.items()}

    def land(self, segments: Sequence[Segment], batch: BatchName | None = None) -> BatchResult:
        """Land what is not landed yet. Damaged segments are put aside and named in the result; the others go on."""
        begun = time.monotonic()
        for attempt in range(1, limits.LAKE_COMMIT_ATTEMPTS + 1):
            try:
                result = self._attempt(segments, batch)
            except ConflictError as error:
                log.info("lake.conflict", table=error.about, attempt=attempt)
                continue
            return msgspec.structs.replace(result, seconds=time.monotonic() - begun)
        raise UnavailableError(
            f"others committed first {limits.LAKE_COMMIT_ATTEMPTS} times in a row",
            hint="stop the other pipeline, or let its compaction end",
            about=self.lake.tables.url,
        )

    def _attempt(self, segments: Sequence[Segment], batch: BatchName | None) -> BatchResult:
        lacking = self.lacking(segments)
        if not lacking:
            return BatchResult(batch=batch.number if batch else None)
        attempt = _Attempt(self, lacking, batch)
        try:
            return attempt.run()
        finally:
            clear_exchange(self.lake, attempt.exchange)


class _Attempt:
    """One attempt at one batch."""

    def __init__(self, lander: Lander, lacking: dict[Segment, frozenset[str]], batch: BatchName | None) -> None:
        self._lander = lander
        self._lacking = lacking
        self._batch = batch
        self._landed: set[str] = set()
        self._added: dict[str, int] = {}
        self.exchange = uuid.uuid4().hex

    def run(self) -> BatchResult:
        crash_point("lake.begun")
        reports = self._land()
        crash_point("lake.landed")
        self._landed = {path for report in reports for path in report.landed}
        added = [file for report in reports for file in report.added]
        for table in BASE_TABLES:  # the proof is kept first, whatever becomes of its decoding
            self._commit(table, added, [])
        parcels = [parcel for report in reports for parcel in report.parcels]
        for stages in self._lander.everything:
            self._rebuild(stages, parcels)
        damaged = [damage for report in reports for damage in report.damaged]
        for damage in damaged:
            if damage.is_segment:
                quarantine(self._lander.lake.segments, damage.path, damage.why)
            log.error("lake.damaged", path=damage.path, why=damage.why)
        return BatchResult(
            batch=self._batch.number if self._batch else None,
            segments=len(self._landed),
            records=sum(report.rows for report in reports),
            added=self._added,
            damaged=damaged,
            differing=sum(report.differing for report in reports),
        )

    def _land(self) -> list[LandReport]:
        lander = self._lander
        items = [SegmentTask(segment, tables) for segment, tables in self._lacking.items()]
        protocols = {*(item.segment.protocol for item in items), JOURNAL}
        buckets = {protocol: lander.buckets(protocol) for protocol in protocols}
        tasks = [
            LandTask(lander.lake, group, f"{EXCHANGE}/{self.exchange}", buckets)
            for group in _groups(items, lander.runner.parallelism)
        ]
        return lander.runner.run(partial(land, stages=lander.stages), tasks, f"land {len(items)} segments")

    def _rebuild(self, stages: ProtocolStages, parcels: list[Parcel]) -> None:
        present = {parcel.table for parcel in parcels}
        if not any(table.named and self._segments_for(table) for table in stages.tables):
            return
        states = {rule.table.name for rule in stages.states}
        behind = [
            table
            for table in stages.tables
            if (self._segments_for(table) if table.named else table.name in present | states)
        ]
        reports = self._lander.runner.run(
            partial(rebuild, stages=stages), self._bucket_tasks(stages, behind, parcels), f"rebuild {stages.protocol}"
        )
        crash_point("lake.rebuilt")
        added = [file for report in reports for file in report.added]
        replaced = [pair for report in reports for pair in report.replaced]
        for table in behind:
            self._commit(table, added, [path for name, path in replaced if name == table.name])

    def _bucket_tasks(self, stages: ProtocolStages, behind: list[Table], parcels: list[Parcel]) -> list[BucketTask]:
        own = {rule.table.name for rule in stages.keyed}
        by_bucket: defaultdict[int, list[Parcel]] = defaultdict(list)
        for parcel in parcels:
            if parcel.table in own:
                by_bucket[parcel.bucket].append(parcel)
        opened = [self._lander.present(table) for table in stages.tables if table.named or table in behind]
        files = {each.table.name: each.files_by_bucket(stages.protocol) for each in opened if each is not None}
        states = [each for each in opened if each is not None and each.table.mode == "state"]
        large = {each.table.name: each.large_files(limits.LAKE_STATE_FILE_BYTES) for each in states}
        wanted = frozenset(table.name for table in behind)
        repeated = frozenset(rule.table.name for rule in stages.states if self._lags_behind_source(rule))
        return [
            BucketTask(
                self._lander.lake,
                bucket,
                found,
                {name: paths.get(bucket, []) for name, paths in files.items()},
                {name: paths.intersection(files[name].get(bucket, ())) for name, paths in large.items()},
                wanted,
                repeated,
            )
            for bucket, found in sorted(by_bucket.items())
        ]

    def _lags_behind_source(self, rule: StateRule) -> bool:
        """Whether a crash between two commits left the state without segments that its source has."""
        return any(rule.table.name in names and rule.source not in names for names in self._lacking.values())

    def _commit(self, table: Table, added: list[AddedFile], removed: list[str]) -> None:
        own = [file for file in added if file.table == table.name]
        segments = self._segments_for(table) if table.named else []
        if not (segments or own or removed):
            return
        self._lander.table(table).commit(own, removed, segments, self._batch)
        self._added[table.name] = self._added.get(table.name, 0) + sum(file.rows for file in own)
        crash_point("lake.committed")

    def _segments_for(self, table: Table) -> list[Segment]:
        """The segments of this attempt that the table lacks and that could be read."""
        return [
            segment
            for segment, tables in self._lacking.items()
            if table.name in tables and segment.path in self._landed
        ]


def clear_exchange(lake: Lake, name: str) -> None:
    """Remove the exchange files of one attempt."""
    filesystem = lake.tables.filesystem()
    folder = f"{EXCHANGE}/{name}"
    if filesystem.get_file_info(folder).type != pafs.FileType.NotFound:
        filesystem.delete_dir(folder)


def clear_left_exchanges(lake: Lake, *, alone: bool = False) -> None:
    """Remove exchange files that killed runs left behind: all if nobody else is at work on the lake, which only a lake
    with a lock can know; else those so old that no running batch can want them.
    """
    filesystem = lake.tables.filesystem()
    newest: dict[str, float] = {}
    for info in filesystem.get_file_info(pafs.FileSelector(EXCHANGE, recursive=True, allow_not_found=True)):
        if info.type == pafs.FileType.File:  # an object store has no folders, and so no times of them
            name = info.path.split("/")[1]
            newest[name] = max(newest.get(name, 0.0), info.mtime.timestamp())
    for name, written in newest.items():
        if (alone and lake.tables.is_local) or time.time() - written > EXCHANGE_SECONDS:
            clear_exchange(lake, name)


def _groups(items: list[SegmentTask], parallelism: int) -> list[list[SegmentTask]]:
    """The segments in groups of about equal size, as many as keep every core busy and no task too large."""
    total = sum(item.segment.size for item in items)
    count = min(len(items), max(parallelism, math.ceil(total / limits.LAKE_TASK_BYTES)))
    heap: list[tuple[int, int]] = [(0, index) for index in range(count)]
    groups: list[list[SegmentTask]] = [[] for _ in range(count)]
    for item in sorted(items, key=lambda item: (-item.segment.size, item.segment)):
        size, index = heapq.heappop(heap)
        groups[index].append(item)
        heapq.heappush(heap, (size + item.segment.size, index))
    return groups
