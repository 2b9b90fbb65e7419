"""How the records of each protocol become tables: pure functions on Arrow tables, gathered in one `ProtocolStages`
each.

A protocol joins the lake by adding a module here and its name to `BUILT_IN`; the pipeline knows none of them. Nothing
here touches Spark, files or the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, Final, Protocol

import msgspec
import pyarrow as pa

from syncline.core.errors import UsageError
from syncline.lake.tables import BASE_TABLES, Table

BUILT_IN: Final[tuple[str, ...]] = ()


class Judged(msgspec.Struct, frozen=True):
    """The content verdict on each record: outcome and reason, both null where there are no bytes to judge."""

    outcome: pa.Array
    reason: pa.Array


class Judge(Protocol):
    """Judges content again with the protocol's own rules, taking received_at for now. Never raises for bad bytes."""

    def __call__(self, records: pa.Table) -> Judged: ...


class Decode(Protocol):
    """Accepted records → rows of the protocol's keyed tables, by table name; a row per record, in the table's
    columns.
    """

    def __call__(self, records: pa.Table) -> Mapping[str, pa.Table]: ...


History = Callable[[list[Any]], pa.Table]


class Fold(Protocol):
    """The new state of every key in `new`.

    `old` has the present state rows of those keys, `new` the rows of the source table that came with this batch, some
    of which may have come before. `history(keys)` reads all rows of these keys that landed earlier. The answer must
    depend only on the set of all rows of a key, never on how they were split into batches or in which order they
    came.
    """

    def __call__(self, old: pa.Table, new: pa.Table, history: History) -> pa.Table: ...


class StateRule(msgspec.Struct, frozen=True):
    """A state table, the keyed table it is folded from, and how."""

    table: Table
    source: str
    fold: Fold


class ProtocolStages(msgspec.Struct, frozen=True, kw_only=True):
    """All the lake knows of one protocol."""

    protocol: str
    judge: Judge
    decode: Decode
    keyed: tuple[Table, ...] = ()
    states: tuple[StateRule, ...] = ()

    @property
    def tables(self) -> tuple[Table, ...]:
        return (*self.keyed, *(rule.table for rule in self.states))


Stages = Mapping[str, ProtocolStages]


def built_in_stages() -> Stages:
    """The stages of every protocol this package knows."""
    found = [import_module(f"syncline.lake.stages.{name}").STAGES for name in BUILT_IN]
    return {stages.protocol: stages for stages in found}


def all_tables(stages: Iterable[ProtocolStages]) -> dict[str, Table]:
    """Every table, in the order in which a batch commits them: sources before what is folded from them."""
    tables = [*BASE_TABLES, *(table for protocol in stages for table in protocol.tables)]
    return {table.name: table for table in tables}


def table_named(name: str, stages: Stages) -> Table:
    tables = all_tables(stages.values())
    if name not in tables:
        raise UsageError(f"there is no table {name!r}", hint=f"tables are {', '.join(tables)}")
    return tables[name]
