"""Housekeeping: fewer and larger files, no files that nothing refers to, nothing older than asked for. Safe beside a
running pipeline: whoever commits second finds out and starts anew, and files are removed only when they are old.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec
from deltalake import CommitProperties, DeltaTable, WriterProperties
from deltalake.exceptions import CommitFailedError

from syncline.core import limits
from syncline.core.errors import ConflictError
from syncline.lake.batch import InProcess, Lander, clear_left_exchanges
from syncline.lake.deltas import DROPPED_PROPERTY, open_delta
from syncline.lake.files import LEVEL
from syncline.lake.roots import Lake
from syncline.lake.segments import Segment, list_segments
from syncline.lake.stages import Stages
from syncline.lake.tables import BASE_TABLES, Table

R = TypeVar("R")


class TableFacts(msgspec.Struct, frozen=True):
    """A table in numbers."""

    name: str
    rows: int
    files: int
    bytes: int
    version: int


class Optimized(msgspec.Struct, frozen=True):
    name: str
    files_before: int
    files_after: int


def table_facts(lake: Lake, tables: Iterable[Table]) -> list[TableFacts]:
    """The tables that are there, in numbers from their logs alone."""
    return [_facts(table.name, delta) for table in tables if (delta := open_delta(lake.table(table.name))) is not None]


def optimize(lake: Lake, tables: Iterable[Table], *, by_key: bool = False) -> list[Optimized]:
    """Merge small files. With `by_key` rows are also put together by the table's key, so that queries for one key skip
    most files; that rewrites everything. Files of state tables are merged as they are
    rewritten, and need none of this.
    """
    done = []
    for table in tables:
        delta = open_delta(lake.table(table.name))
        if delta is None or table.mode == "state":
            continue
        before = len(delta.file_uris())
        _until_nobody_interferes(delta, table.name, _Rewrite(table, by_key))
        done.append(Optimized(table.name, before, len(delta.file_uris())))
    return done


def vacuum(lake: Lake, tables: Iterable[Table], *, hours: int, dry_run: bool = False) -> dict[str, int]:
    """Remove files that the tables have not referred to for `hours`: of older versions, and orphans of killed batches."""
    removed: dict[str, int] = {}
    for table in tables:
        delta = open_delta(lake.table(table.name))
        if delta is not None:
            gone = delta.vacuum(hours, dry_run=dry_run, enforce_retention_duration=False, full=True)
            removed[table.name] = len(gone)
    if not dry_run:
        clear_left_exchanges(lake)
    return removed


def drop_old_records(lake: Lake, *, days: int, today: datetime.date) -> dict[str, int]:
    """Take whole days out of `records` and `rejected`; vacuum removes their files later. Says how many files."""
    oldest = today - datetime.timedelta(days=days)
    removed: dict[str, int] = {}
    for table in BASE_TABLES:
        delta = open_delta(lake.table(table.name))
        if delta is not None:
            delta.alter.set_table_properties({DROPPED_PROPERTY: oldest.isoformat()}, raise_if_not_exists=False)
            metrics = delta.delete(f"date < '{oldest.isoformat()}'")
            removed[table.name] = int(metrics["num_removed_files"])
    return removed


def drop_old_segments(lake: Lake, stages: Stages, *, days: int, today: datetime.date, dry_run: bool = False) -> int:
    """Remove segments older than `days` that every table holds. Says how many."""
    oldest = (today - datetime.timedelta(days=days)).isoformat()
    old = [found for found in list_segments(lake.segments) if isinstance(found, Segment) and found.date < oldest]
    lacking = Lander(lake, stages, InProcess()).lacking(old)
    landed = [segment for segment in old if segment not in lacking]
    if not dry_run:
        filesystem = lake.segments.filesystem()
        for segment in landed:
            filesystem.delete_file(segment.path)
    return len(landed)


class _Rewrite:
    """One kind of compaction. Keeps our compression, and never carries a rewrite past somebody else's."""

    def __init__(self, table: Table, by_key: bool) -> None:
        self._table = table
        self._by_key = by_key and bool(table.key)

    def __call__(self, delta: DeltaTable) -> dict[str, Any]:
        writer = WriterProperties(compression="ZSTD", compression_level=LEVEL)
        commit = CommitProperties(max_commit_retries=None if self._table.mode == "append" else 0)
        if self._by_key:
            return delta.optimize.z_order([self._table.key], writer_properties=writer, commit_properties=commit)
        return delta.optimize.compact(writer_properties=writer, commit_properties=commit)


def _until_nobody_interferes(delta: DeltaTable, name: str, work: Callable[[DeltaTable], R]) -> R:
    for _ in range(limits.LAKE_COMMIT_ATTEMPTS):
        try:
            return work(delta)
        except CommitFailedError:
            delta.update_incremental()
    raise ConflictError("the table kept changing", hint="try again when the pipeline is idle", about=name)


def _facts(name: str, delta: DeltaTable) -> TableFacts:
    actions = delta.get_add_actions(flatten=True)
    rows, sizes = _numbers(actions, "num_records"), _numbers(actions, "size_bytes")
    return TableFacts(name, sum(rows), len(sizes), sum(sizes), delta.version())


def _numbers(actions: Any, column: str) -> Sequence[int]:
    return [int(value or 0) for value in actions.column(column).to_pylist()]
