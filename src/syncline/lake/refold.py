"""A state table made anew from the table it is folded from: after a change of the fold, or where the state was lost. Every
bucket is read, folded from nothing and written by a task of its own; one commit replaces the old state by the new.
"""

from __future__ import annotations

from functools import partial

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds

from syncline.core import limits
from syncline.core.errors import ConflictError, UnavailableError
from syncline.lake.batch import Runner
from syncline.lake.deltas import LakeTable
from syncline.lake.files import CHECKED, AddedFile, TableWriter
from syncline.lake.rebuild import partition_of
from syncline.lake.roots import Lake
from syncline.lake.stages import ProtocolStages, StateRule, no_history
from syncline.lake.tables import Table


class RefoldTask(msgspec.Struct, frozen=True):
    """One bucket of the source: its files, below the source's folder."""

    lake: Lake
    bucket: int
    files: list[str]


def refold(lake: Lake, stages: ProtocolStages, rule: StateRule, runner: Runner) -> int:
    """Fold the whole source into the state table anew. Says how many rows that gave."""
    [source_table] = [keyed.table for keyed in stages.keyed if keyed.table.name == rule.source]
    source = LakeTable.open(lake.table(rule.source), source_table, buckets=limits.LAKE_BUCKETS)
    state = LakeTable.open(lake.table(rule.table.name), rule.table, buckets=source.buckets)
    source.refresh()  # after the state was opened: whatever landed there landed here before
    for _ in range(limits.LAKE_COMMIT_ATTEMPTS):
        tasks = [
            RefoldTask(lake, bucket, files) for bucket, files in sorted(source.files_by_bucket(stages.protocol).items())
        ]
        found = runner.run(
            partial(fold_bucket, stages=stages, rule=rule, source=source_table), tasks, f"fold {rule.table.name}"
        )
        added = [file for file in found if file is not None]
        try:
            state.replace(added, source, stages.protocol)
        except ConflictError:
            source.refresh()
            continue
        return sum(file.rows for file in added)
    raise UnavailableError("the pipeline committed first each time", hint="stop it, then try again")


def fold_bucket(task: RefoldTask, stages: ProtocolStages, rule: StateRule, source: Table) -> AddedFile | None:
    """Fold one bucket from nothing, and write its state."""
    filesystem = task.lake.tables.filesystem()
    paths = [f"{source.name}/{path}" for path in task.files]
    dataset = ds.dataset(paths, schema=source.file_schema, format=CHECKED, filesystem=filesystem, partitioning=None)
    rows = dataset.to_table(use_threads=False)
    table = rule.table
    state: pa.Table = rule.fold(table.file_schema.empty_table(), rows, no_history(source))
    writer = TableWriter(filesystem, table)
    writer.write(
        partition_of(table, stages.protocol, task.bucket),
        state.sort_by([(name, "ascending") for name in table.sort_by]),
    )
    writer.close()
    return writer.added[0] if writer.added else None
