"""One Delta table as the driver handles it: made or widened when needed, asked what it holds, committed to. The only
module that talks to delta-rs for writing, and the home of its traps (GOTCHAS.md).
"""

from __future__ import annotations

import datetime
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from syncline.core.errors import ConflictError, CorruptionError, SynclineError
from syncline.lake.files import AddedFile
from syncline.lake.landed import (
    BATCH_PREFIX,
    SEGMENT_PREFIX,
    chain_name,
    is_of_protocol,
    newest_of_chains,
    read_transactions,
    segment_name,
)
from syncline.lake.roots import Root
from syncline.lake.segments import Segment
from syncline.lake.tables import BUCKET, Table

BUCKETS_PROPERTY: Final = "syncline.buckets"
STATISTICS_PROPERTY: Final = "delta.dataSkippingStatsColumns"
WIDENED_PROPERTY: Final = "syncline.widened"  # set once columns were added: older files lack them
DROPPED_PROPERTY: Final = "syncline.droppedBefore"  # records of earlier days were removed
_ASKED_ONE_BY_ONE: Final = 4
_PROPERTIES: Final = {"delta.checkpointInterval": "50"}


class BatchName(msgspec.Struct, frozen=True):
    """A batch as Spark counts it: the streaming query's id, which lives in its checkpoint, and the number.

    Commits carry it so that one can see where rows came from. It is never asked whether something has landed: a checkpoint
    put back from a copy would count other segments under old numbers. The segments' own names decide.
    """

    query: str
    number: int

    @property
    def app(self) -> str:
        return BATCH_PREFIX + self.query


class LakeTable:
    """An open Delta table."""

    def __init__(self, root: Root, table: Table, delta: DeltaTable) -> None:
        self.root = root
        self.table = table
        self._delta = delta

    @classmethod
    def open(cls, root: Root, table: Table, *, buckets: int) -> LakeTable:
        """Open the table, making it if it is not there and adding columns that it does not know yet."""
        delta = _open(root)
        if delta is None:
            _create(root, table, buckets)
            delta = _open(root)
            assert delta is not None
        opened = cls(root, table, delta)
        opened._widen()
        return opened

    @property
    def version(self) -> int:
        return self._delta.version()

    @property
    def buckets(self) -> int:
        return int(self._delta.metadata().configuration.get(BUCKETS_PROPERTY) or 1)

    def refresh(self) -> None:
        """See what others have committed."""
        self._delta.update_incremental()

    def newest(self, chains: Iterable[str]) -> dict[str, int]:
        """The newest lsn of each chain, by the chain's name in the log, that the table holds; 0 if none.

        delta-rs looks through all names for each it is asked for: for more than a few the log is read here, once.
        """
        names = sorted(set(chains))
        if len(names) > _ASKED_ONE_BY_ONE:
            known = read_transactions(self.root, self.version, names)
            return {name: known.get(name, 0) for name in names}
        return {name: self._delta.transaction_version(name) or 0 for name in names}

    def lacking(self, segments: Sequence[Segment]) -> list[Segment]:
        """Those of the segments that the table does not hold yet."""
        newest = self.newest(chain_name(segment) for segment in segments)
        doubtful = [segment for segment in segments if segment.lo <= newest[chain_name(segment)]]
        if not doubtful:  # nothing so new can have landed: the usual case, and no name was looked up
            return list(segments)
        known = read_transactions(self.root, self.version, [segment_name(segment) for segment in doubtful])
        landed = {segment.path for segment in doubtful if segment_name(segment) in known}
        return [segment for segment in segments if segment.path not in landed]

    def files_by_bucket(self, protocol: str) -> dict[int, list[str]]:
        """The paths of the files of every bucket, below the table's folder; of a shared table only the protocol's."""
        found: defaultdict[int, list[str]] = defaultdict(list)
        actions = self._delta.get_add_actions(flatten=True)
        paths, buckets = actions.column("path").to_pylist(), actions.column(f"partition.{BUCKET}").to_pylist()
        shared = "protocol" in self.table.partition_by
        owners = actions.column("partition.protocol").to_pylist() if shared else [protocol] * len(paths)
        for path, bucket, owner in zip(paths, buckets, owners, strict=True):
            if owner == protocol:
                found[int(bucket)].append(path)
        return dict(found)

    def large_files(self, least: int) -> frozenset[str]:
        """The paths of files of at least so many bytes."""
        actions = self._delta.get_add_actions(flatten=True)
        files = zip(actions.column("path").to_pylist(), actions.column("size_bytes").to_pylist(), strict=True)
        return frozenset(path for path, size in files if size >= least)

    def commit(
        self,
        added: Sequence[AddedFile],
        removed: Sequence[str],
        segments: Sequence[Segment],
        batch: BatchName | None,
    ) -> None:
        """Make the added files part of the table, the removed ones not, and the segments known: all or nothing.

        Raises ConflictError if somebody else committed what this was not computed from: refresh, look again, recompute.
        """
        now = int(time.time() * 1000)
        self._commit(added, removed, self._names(segments, batch, now), now)

    def replace(self, added: Sequence[AddedFile], source: LakeTable, protocol: str) -> None:
        """Put these files in the place of all there were (of a shared table, of the protocol's), computed from all the
        segments that `source` holds now.

        Raises ConflictError if either table has changed since it was refreshed.
        """
        now = int(time.time() * 1000)
        held = read_transactions(source.root, source.version) if self.table.named else {}
        names = [
            Transaction(name, version, now if name.startswith(SEGMENT_PREFIX) else None)
            for name, version in held.items()
            if is_of_protocol(name, protocol)
        ]
        self._commit(added, self._files_of(protocol), names, now, retries=0)

    def files_with_dates(self, protocol: str) -> list[tuple[str, str, int]]:
        """Path, date and size of every file of a protocol, of a table that is split by both."""
        actions = self._delta.get_add_actions(flatten=True)
        columns = [actions.column(name).to_pylist() for name in ("path", "partition.date", "size_bytes")]
        owners = actions.column("partition.protocol").to_pylist()
        files = zip(*columns, owners, strict=True)
        return [(path, str(date), int(size)) for path, date, size, owner in files if owner == protocol]

    def _files_of(self, protocol: str) -> list[str]:
        actions = self._delta.get_add_actions(flatten=True)
        paths = [str(path) for path in actions.column("path").to_pylist()]
        if "protocol" not in self.table.partition_by:
            return paths
        owners = actions.column("partition.protocol").to_pylist()
        return [path for path, owner in zip(paths, owners, strict=True) if owner == protocol]

    def _commit(
        self,
        added: Sequence[AddedFile],
        removed: Sequence[str],
        names: list[Transaction],
        now: int,
        retries: int | None = None,
    ) -> None:
        self._check_files(added)
        adds = [AddAction(file.path, file.size, file.partition, now, True, file.statistics) for file in added]
        removes = [RemoveAction(path, True, now) for path in removed]
        # Rows of append tables are new whatever else was committed, unless it was the same segment, which delta-rs
        # finds out by the names below. The others were computed from the snapshot and must not be carried past a
        # change of it.
        retries = retries if self.table.mode == "append" else 0
        properties = CommitProperties(app_transactions=names, max_commit_retries=retries)
        try:
            self._delta.create_write_transaction(
                [*adds, *removes],
                "append",
                self._delta.schema(),
                list(self.table.partition_by),
                commit_properties=properties,
            )
        except CommitFailedError as error:
            self.refresh()
            raise ConflictError(f"somebody else committed first: {error}", about=self.table.name) from error
        self.refresh()

    def _names(self, segments: Iterable[Segment], batch: BatchName | None, now: int) -> list[Transaction]:
        landed = list(segments)
        names = [Transaction(segment_name(segment), 0, now) for segment in landed]
        chains = newest_of_chains(landed)
        known = self.newest(chains)
        names += [Transaction(name, max(lsn, known[name])) for name, lsn in chains.items()]
        if batch is not None:
            names.append(Transaction(batch.app, batch.number))
        return names

    def _check_files(self, added: Sequence[AddedFile]) -> None:
        """delta-rs would commit files that are not there."""
        infos = self.root.filesystem().get_file_info([file.path for file in added])
        for file, info in zip(added, infos, strict=True):
            if info.size != file.size:
                raise SynclineError(
                    "a file an executor wrote is not where the driver sees it",
                    hint="tables must be on storage that driver and executors share",
                    about=f"{self.table.name}/{file.path}",
                )

    def _widen(self) -> None:
        """Add the columns a newer version of this package brought: a wider commit alone would hide them."""
        present = {field.name for field in self._delta.schema().fields}
        wanted = Schema.from_arrow(_commented(self.table))
        missing: list[Field] = [field for field in wanted.fields if field.name not in present]
        if (
            missing
        ):  # said first: killed in between, the table is not left with columns that nobody expects to be absent
            self._delta.alter.set_table_properties({WIDENED_PROPERTY: "true"}, raise_if_not_exists=False)
            self._delta.alter.add_columns(missing)
            self.refresh()


def dropped_before(root: Root) -> datetime.date | None:
    """The day before which rows of a table were dropped for their age, if they ever were."""
    delta = _open(root)
    day = None if delta is None else delta.metadata().configuration.get(DROPPED_PROPERTY)
    return None if day is None else datetime.date.fromisoformat(day)


def open_delta(root: Root, *, version: int | None = None) -> DeltaTable | None:
    """The Delta table at this place for reading, or None if there is none."""
    return _open(root, version)


def _open(root: Root, version: int | None = None) -> DeltaTable | None:
    options = dict(root.options) or None
    if not DeltaTable.is_deltatable(root.url, options):
        return None
    try:
        return DeltaTable(root.url, version=version, storage_options=options)
    except DeltaError as error:
        raise CorruptionError(f"a table's log cannot be read: {error}", about=root.url) from error


def _create(root: Root, table: Table, buckets: int) -> None:
    properties = _PROPERTIES | ({} if table.mode == "append" else {BUCKETS_PROPERTY: str(buckets)})
    # Said aloud, because delta-rs takes a column without statistics for one that no row passes a filter on.
    properties |= (
        {STATISTICS_PROPERTY: ",".join(table.statistics)}
        if table.statistics
        else {"delta.dataSkippingNumIndexedCols": "0"}
    )
    DeltaTable.create(
        root.url,
        _commented(table),
        mode="ignore",
        partition_by=list(table.partition_by),
        name=table.name,
        description=table.doc,
        configuration=properties,
        storage_options=dict(root.options) or None,
        raise_if_key_not_exists=False,
    )


def _commented(table: Table) -> pa.Schema:
    """The schema with every column's meaning, which other readers of the table show."""
    return pa.schema([column.field.with_metadata({"comment": column.doc}) for column in table.columns])
