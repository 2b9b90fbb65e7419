"""The wide half of a batch, as one task runs it for one bucket of one protocol: keep one row per message, fold the new
rows into state. Reads and rewrites only that bucket. Runs on executors; commits nothing.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from syncline.core.errors import CorruptionError
from syncline.lake.distinct import distinct, unknown
from syncline.lake.exchange import Parcel, read_parcels
from syncline.lake.files import CHECKED, AddedFile, TableWriter
from syncline.lake.roots import Lake
from syncline.lake.stages import KeyedRule, ProtocolStages, StateRule
from syncline.lake.tables import BUCKET, Table


def partition_of(table: Table, protocol: str, bucket: int) -> dict[str, str]:
    """The partition of a bucket: tables that several protocols share are split by these too."""
    values = {"protocol": protocol, BUCKET: str(bucket)}
    return {name: values[name] for name in table.partition_by}


class BucketTask(msgspec.Struct, frozen=True):
    """One bucket with everything that concerns it: what came in, and the files its tables have now."""

    lake: Lake
    bucket: int
    parcels: list[Parcel]
    files: dict[str, list[str]]  # table → paths below the table's folder
    large: dict[str, frozenset[str]]  # state table → those of its files that stay unless a key in them changes
    tables: frozenset[str]  # the tables to bring up to date
    repeated: frozenset[str]  # state tables that lag behind their source: what is known there may be new here


class BucketReport(msgspec.Struct, frozen=True):
    """What a task wrote, and which files its rewrites replace."""

    added: list[AddedFile]
    replaced: list[tuple[str, str]]  # table, path


def rebuild(task: BucketTask, stages: ProtocolStages) -> BucketReport:
    """Bring the bucket's tables up to date with the rows that came in."""
    return _Rebuilding(task, stages).run()


class _Rebuilding:
    def __init__(self, task: BucketTask, stages: ProtocolStages) -> None:
        self._task = task
        self._stages = stages
        self._filesystem = task.lake.tables.filesystem()
        self._added: list[AddedFile] = []
        self._replaced: list[tuple[str, str]] = []

    def run(self) -> BucketReport:
        for rule in self._stages.keyed:
            if not any(parcel.table == rule.table.name for parcel in self._task.parcels):
                continue
            incoming = distinct(self._incoming(rule.table), rule)
            fresh = unknown(incoming, self._known(rule, incoming), rule)
            if rule.table.name in self._task.tables:
                self._write(rule.table, fresh)
            for state in self._stages.states:
                if state.source == rule.table.name and state.table.name in self._task.tables:
                    self._fold(state, rule.table, incoming if state.table.name in self._task.repeated else fresh)
        return BucketReport(self._added, self._replaced)

    def _incoming(self, table: Table) -> pa.Table:
        parcels = [parcel for parcel in self._task.parcels if parcel.table == table.name]
        return read_parcels(self._filesystem, parcels, table.file_schema)

    def _known(self, rule: KeyedRule, incoming: pa.Table) -> pa.Table:
        """The identities among the incoming ones that the table has already, with their contents if these matter."""
        table = rule.table
        names = list(table.identity)
        where = pc.field(table.key).isin(pc.unique(incoming[table.key]))
        there = self._read(table, names, where if not table.span else where & _within_span(table.span, incoming))
        both = there.join(incoming.select(names), keys=names, join_type="left semi", use_threads=False)
        if rule.same is None or both.num_rows == 0:
            return both.append_column(rule.content, pa.nulls(0, pa.string())) if rule.content else both
        return self._read(table, [*names, rule.content], pc.field(names[0]).isin(both[names[0]].combine_chunks()))

    def _fold(self, rule: StateRule, source: Table, rows: pa.Table) -> None:
        if rows.num_rows == 0:
            return
        table = rule.table
        on = rule.on or source.key
        keys = pc.unique(rows[on])
        files = [path for path in self._task.files.get(table.name, ()) if self._is_rewritten(table, path, keys)]
        before = self._read(table, table.file_schema.names, None, files)
        touched = pc.is_in(before[table.key], value_set=keys)
        old = before.filter(touched)

        def history(keys: list[Any], least: tuple[str, Any] | None = None) -> pa.Table:
            where = pc.field(on).isin(pa.array(keys, source.schema.field(on).type))
            if least is not None:
                bound = pa.scalar(least[1], source.schema.field(least[0]).type)
                where = (pc.field(least[0]) >= bound) & where
            return self._read(source, list(rule.columns) or source.file_schema.names, where)

        new = rule.fold(old, rows, history)
        order = [(name, "ascending") for name in table.sort_by]
        if new.sort_by(order).equals(old.sort_by(order)):
            return
        self._write(table, pa.concat_tables([before.filter(pc.invert(touched)), new]))
        self._replaced += [(table.name, path) for path in files]

    def _is_rewritten(self, table: Table, path: str, keys: pa.Array) -> bool:
        """Small files are merged with what is new; a large one is left alone if it holds none of the keys, so that a batch
        does not write all that a bucket ever came to hold.
        """
        if path not in self._task.large.get(table.name, ()):
            return True
        return bool(self._read(table, [table.key], pc.field(table.key).isin(keys), [path]).num_rows)

    def _read(self, table: Table, columns: list[str], where: Any, files: list[str] | None = None) -> pa.Table:
        """Columns of the rows of these files, or all of the bucket's, that fulfil a condition."""
        chosen = self._task.files.get(table.name, []) if files is None else files
        paths = [f"{table.name}/{path}" for path in chosen]
        schema = table.file_schema
        if not paths:
            return schema.empty_table().select(columns)
        try:
            dataset = ds.dataset(paths, schema=schema, format=CHECKED, filesystem=self._filesystem, partitioning=None)
            return dataset.to_table(columns=columns, filter=where, use_threads=False)
        except (pa.ArrowInvalid, OSError) as error:
            if not isinstance(error, FileNotFoundError | pa.ArrowInvalid) and not self._task.lake.tables.is_local:
                raise  # a store that does not answer
            raise CorruptionError(f"a file of a table is damaged or gone: {error}", about=table.name) from None

    def _write(self, table: Table, rows: pa.Table) -> None:
        writer = TableWriter(self._filesystem, table)
        writer.write(
            partition_of(table, self._stages.protocol, self._task.bucket),
            rows.sort_by([(name, "ascending") for name in table.sort_by]),
        )
        writer.close()
        self._added += writer.added


def _within_span(name: str, rows: pa.Table) -> pc.Expression:
    """That a row's value is among those of these rows, or absent. Files whose statistics say otherwise are not read."""
    span = pc.min_max(rows[name])
    column = pc.field(name)
    return ((column >= span["min"]) & (column <= span["max"])) | column.is_null()
