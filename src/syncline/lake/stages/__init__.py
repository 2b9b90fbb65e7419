"""How the records of each protocol become tables: pure functions on Arrow tables, gathered in one `ProtocolStages`
each.

A protocol joins the lake by adding a module here and its name to `BUILT_IN`; the pipeline knows none of them. Nothing
here touches Spark, files or the clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, Final, Protocol

import msgspec
import pyarrow as pa

from syncline.core.errors import SettingsError, UsageError
from syncline.core.settings import Settings
from syncline.lake.tables import BASE_TABLES, Table

BUILT_IN: Final[tuple[str, ...]] = ("relay", "sds", "sdsp", "shrex", "svs")
RECORD: Final = "record"


class Known(msgspec.Struct, frozen=True):
    """What judging needs beside the bytes, as the node's settings name it. Where it is empty, the node's word stands."""

    svs_keys: tuple[str, ...] = ()  # lines of the setting svs.keys

    @classmethod
    def of(cls, settings: Settings) -> Known:
        """As far as the protocols are installed."""
        return cls(svs_keys=tuple(_setting(settings, "svs", "keys") or ()))


NOTHING_KNOWN: Final = Known()


class Examined(msgspec.Struct, frozen=True):
    """What the bytes of some records say.

    `outcome` and `reason` are the content verdict on each record, both null where there are no bytes to judge. `rows` are
    the decoded rows by table: the column `record` is the position of the record a row was read from, the others are the
    table's own; columns of the record itself are added by the lake.
    """

    outcome: pa.Array
    reason: pa.Array
    rows: Mapping[str, pa.Table]


class Examine(Protocol):
    """Judges and decodes in one look, by the protocol's own rules, with received_at for now. Bad bytes never raise."""

    def __call__(self, records: pa.Table) -> Examined: ...


class SameContent(Protocol):
    """Whether two messages of one identity say the same, though their bytes differ. If not, both rows are kept."""

    def __call__(self, one: Any, other: Any) -> bool: ...


class KeyedRule(msgspec.Struct, frozen=True):
    """A table with one row per identity (and content), however many nodes saw it.

    `content` is the column with the message's bytes; without `same`, rows of one identity are the same.
    """

    table: Table
    content: str = ""
    same: SameContent | None = None


class History(Protocol):
    """Reads the rows of these keys that landed earlier: all, or with `least`, a column and a value, those not below it,
    which touches only the files that hold such rows.
    """

    def __call__(self, keys: list[Any], least: tuple[str, Any] | None = None) -> pa.Table: ...


def no_history(source: Table) -> History:
    """The history of keys of which nothing landed earlier."""
    nothing = source.file_schema.empty_table()
    return lambda keys, least=None: nothing


class Fold(Protocol):
    """The new state of every key in `new`.

    `old` has the present state rows of those keys, `new` the rows of the source table that came with this batch; after a
    crash some of them may be part of the state already. What landed earlier, `history` reads. The answer must depend only
    on the set of all rows of a key, never on how they were split into batches or in which order they came.
    """

    def __call__(self, old: pa.Table, new: pa.Table, history: History) -> pa.Table: ...


class StateRule(msgspec.Struct, frozen=True):
    """A state table, the keyed table it is folded from, and how.

    `on` is the source's column that holds the state's key, if it is not the source's own key: rows of one value of it must
    be in one bucket all the same. `columns` are those of the source that the fold looks at; empty: all.
    """

    table: Table
    source: str
    fold: Fold
    on: str = ""
    columns: tuple[str, ...] = ()


class ProtocolStages(msgspec.Struct, frozen=True, kw_only=True):
    """All the lake knows of one protocol."""

    protocol: str
    examine: Examine
    keyed: tuple[KeyedRule, ...] = ()
    states: tuple[StateRule, ...] = ()

    @property
    def tables(self) -> tuple[Table, ...]:
        """Its tables in the order of commits: those that name no segments, then sources before what is folded from
        them.
        """
        every = (*(rule.table for rule in self.keyed), *(rule.table for rule in self.states))
        return tuple(sorted(every, key=lambda table: table.named))

    @property
    def ledger(self) -> Table:
        """The first table that names segments: where it holds one, so do those that name none."""
        return next(table for table in self.tables if table.named)


Stages = Mapping[str, ProtocolStages]


def built_in_stages(known: Known = NOTHING_KNOWN) -> Stages:
    """The stages of every protocol this package knows."""
    found = [import_module(f"syncline.lake.stages.{name}").stages(known) for name in BUILT_IN]
    return {stages.protocol: stages for stages in found}


def journal_stages() -> ProtocolStages:
    """What is made of every segment, whatever its protocol."""
    found: ProtocolStages = import_module("syncline.lake.stages.journal").STAGES
    return found


def all_tables(stages: Iterable[ProtocolStages]) -> dict[str, Table]:
    """Every table: those of all records, those of protocols, those of the segments themselves."""
    tables = [*BASE_TABLES, *(table for protocol in (*stages, journal_stages()) for table in protocol.tables)]
    return {table.name: table for table in tables}


def table_named(name: str, stages: Stages) -> Table:
    tables = all_tables(stages.values())
    if name not in tables:
        raise UsageError(f"there is no table {name!r}", hint=f"tables are {', '.join(tables)}")
    return tables[name]


def _setting(settings: Settings, section: str, name: str) -> Any:
    try:
        return getattr(settings.plugin_section(section), name, None)
    except SettingsError:  # the protocol is not installed here
        return None
