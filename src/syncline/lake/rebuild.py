"""The wide half of a batch, as one task runs it for one bucket of one protocol: keep one row per identity, fold the new
rows into state. Reads and rewrites only that bucket. Runs on executors; commits nothing.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from syncline.lake.exchange import Parcel, read_parcels
from syncline.lake.files import AddedFile, TableWriter
from syncline.lake.roots import Lake
from syncline.lake.stages import ProtocolStages, StateRule
from syncline.lake.tables import BUCKET, Table

# Of several copies in one batch the first one received is kept; the rest decides between equals.
ARRIVAL: Final = ("received_at", "node", "epoch", "lsn")
_POSITION: Final = "__position"


class BucketTask(msgspec.Struct, frozen=True):
    """One bucket with everything that concerns it: what came in, and the files its tables have now."""

    lake: Lake
    bucket: int
    parcels: list[Parcel]
    files: dict[str, list[str]]  # table → paths below the table's folder
    tables: frozenset[str]  # the tables to bring up to date


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
        for table in self._stages.keyed:
            incoming = one_per_identity(self._incoming(table), table)
            if table.name in self._task.tables:
                self._write(table, without_known(incoming, self._known(table, incoming), table))
            for rule in self._stages.states:
                if rule.source == table.name and rule.table.name in self._task.tables:
                    self._fold(rule, table, incoming)
        return BucketReport(self._added, self._replaced)

    def _incoming(self, table: Table) -> pa.Table:
        parcels = sorted(
            (parcel for parcel in self._task.parcels if parcel.table == table.name), key=lambda parcel: parcel.path
        )
        return read_parcels(self._filesystem, parcels, table.file_schema)

    def _known(self, table: Table, incoming: pa.Table) -> pa.Table:
        """The identities, among the incoming keys, that the table has already."""
        keys = pc.unique(incoming[table.key])
        return self._read(table, list(table.identity), pc.field(table.key).isin(keys))

    def _fold(self, rule: StateRule, source: Table, incoming: pa.Table) -> None:
        table = rule.table
        keys = pc.unique(incoming[source.key])
        before = self._read(table, table.file_schema.names, None)
        touched = pc.is_in(before[table.key], value_set=keys)
        old = before.filter(touched)

        def history(wanted: list[Any]) -> pa.Table:
            within = pc.field(source.key).isin(pa.array(wanted, source.schema.field(source.key).type))
            return self._read(source, source.file_schema.names, within)

        new = rule.fold(old, incoming, history).sort_by(table.key)
        if new.equals(old.sort_by(table.key)):  # only repeats came
            return
        self._write(table, pa.concat_tables([before.filter(pc.invert(touched)), new]))
        self._replaced += [(table.name, path) for path in self._task.files.get(table.name, [])]

    def _read(self, table: Table, columns: list[str], where: Any) -> pa.Table:
        paths = [f"{table.name}/{path}" for path in self._task.files.get(table.name, [])]
        schema = table.file_schema
        if not paths:
            return schema.empty_table().select(columns)
        dataset = ds.dataset(paths, schema=schema, format="parquet", filesystem=self._filesystem, partitioning=None)
        return dataset.to_table(columns=columns, filter=where, use_threads=False)

    def _write(self, table: Table, rows: pa.Table) -> None:
        writer = TableWriter(self._filesystem, table)
        ordered = rows.sort_by([(name, "ascending") for name in table.sort_by]) if table.sort_by else rows
        writer.write({BUCKET: str(self._task.bucket)}, ordered.cast(table.file_schema))
        writer.close()
        self._added += writer.added


def one_per_identity(rows: pa.Table, table: Table) -> pa.Table:
    """Of rows with the same identity, the first one received."""
    ordered = rows.sort_by([(name, "ascending") for name in (*table.identity, *ARRIVAL)])
    numbered = ordered.select(list(table.identity)).append_column(_POSITION, pa.array(np.arange(ordered.num_rows)))
    first = numbered.group_by(list(table.identity), use_threads=False).aggregate([(_POSITION, "min")])
    if first.num_rows == ordered.num_rows:
        return ordered
    return ordered.take(first[f"{_POSITION}_min"])


def without_known(rows: pa.Table, known: pa.Table, table: Table) -> pa.Table:
    """The rows whose identity is not among the known ones."""
    if known.num_rows == 0:
        return rows
    return rows.join(known, keys=list(table.identity), join_type="left anti", use_threads=False).select(
        rows.schema.names
    )
