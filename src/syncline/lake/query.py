"""Interactive SQL over the tables: DuckDB on the files of each table's newest snapshot, locked so that a query can read
those files and nothing else, one statement at a time, within bounds of time, memory and rows.

Spark SQL, for answers too large for one machine, is in query_spark.
"""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, Self

import duckdb
import duckdb.func
import msgspec
import pyarrow as pa
import pyarrow.dataset as pads
from deltalake import DeltaTable

from syncline.core import limits
from syncline.core.errors import MissingError, SynclineError, UnavailableError, UsageError
from syncline.lake.deadlines import Deadlines
from syncline.lake.deltas import WIDENED_PROPERTY, open_delta
from syncline.lake.landed import next_commit
from syncline.lake.objects import as_json, object_at
from syncline.lake.roots import Lake, Root
from syncline.lake.tables import Table
from syncline.lake.views import VIEWS

READS: Final = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
_WORD: Final = re.compile(rb"\w+|.", re.DOTALL)
_BATCH_ROWS: Final = 2_048
_EXPORT_ROWS: Final = 65_536
_THOROUGH_SECONDS: Final = 60.0
# In this order: the last two close the door behind the others. GLOBAL where a plain SET would hold for the connection
# that says it, and not for the cursors that answer.
_LOCKS: Final = (
    "SET GLOBAL python_enable_replacements = false",  # else a name in SQL may mean a variable of ours
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET allow_community_extensions = false",
    "SET temp_directory = ''",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)


class QueryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one query may use."""

    seconds: float = limits.QUERY_SECONDS
    memory: int = limits.QUERY_MEMORY
    rows: int = limits.QUERY_ROWS
    bytes: int = limits.QUERY_BYTES


class Answer(msgspec.Struct, frozen=True):
    """Rows of a query. `truncated`: there were more than the bounds allow."""

    rows: pa.Table
    truncated: bool
    seconds: float


class Queries:
    """Answers SQL about one lake. Every question sees the newest committed state of every table; threads may share it."""

    def __init__(self, lake: Lake, tables: Iterable[Table], bounds: QueryLimits = QueryLimits()) -> None:  # noqa: B008
        self._lake = lake
        self._tables = list(tables)
        self._bounds = bounds
        self._lock = threading.Lock()
        self._deltas: dict[str, DeltaTable] = {}
        self._versions: dict[str, int] = {}
        self._asked: set[str] = set()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._idle: list[_Desk] = []
        self._remote: dict[str, pads.Dataset] = {}
        self._refreshed = 0.0
        self._deadlines = Deadlines()

    def ask(self, sql: str, parameters: Sequence[Any] = ()) -> Answer:
        """The answer to one reading statement. Raises UsageError for anything else and for faulty SQL."""
        begun = time.monotonic()
        desk = self._desk(sql)
        if not desk.knows(sql):
            check_statement(sql)
        try:
            with self._deadlines.within(self._bounds.seconds, desk.cursor.interrupt) as deadline:
                rows, truncated = desk.answer(sql, parameters, self._bounds)
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            if deadline.passed:
                raise UnavailableError(
                    f"the query was stopped after {self._bounds.seconds:g} s",
                    hint="ask for less, raise lake.query_seconds, or use --engine spark",
                ) from None
            raise _explained(error) from None
        self._give_back(desk)
        return Answer(rows, truncated, time.monotonic() - begun)

    def stream(self, sql: str) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """All rows of the answer as they are found, bounded in memory alone: for exports by whoever runs the lake."""
        desk = self._desk(sql)
        check_statement(sql)
        try:
            asked = desk.cursor.sql(sql)
            assert asked is not None
            reader = asked.to_arrow_reader(_EXPORT_ROWS)
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise _explained(error) from None
        return reader.schema, _explaining(reader)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._deadlines.close()
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
                self._idle.clear()

    def _desk(self, sql: str) -> _Desk:
        """A desk on the newest snapshots; a change of any opens a new database, since a locked one cannot learn."""
        with self._lock:
            versions = self._look() | self._awaited(sql)
            if self._connection is None or versions != self._versions:
                if self._connection is not None:
                    self._connection.close()
                self._connection = self._connect()
                self._versions = versions
                self._idle.clear()
            return self._idle.pop() if self._idle else _Desk(self._connection, self._remote)

    def _give_back(self, desk: _Desk) -> None:
        """Keep a desk whose question went well for the next one; after any trouble it is not used again."""
        with self._lock:
            if desk.database is self._connection and len(self._idle) < limits.QUERY_CURSORS:
                self._idle.append(desk)

    def _look(self) -> dict[str, int]:
        """The version of every table. Between thorough looks only the next commit's file is asked for, which costs a
        hundredth of asking delta-rs.
        """
        thorough = time.monotonic() - self._refreshed > _THOROUGH_SECONDS
        if thorough:
            self._refreshed = time.monotonic()
        for table in self._tables:
            root = self._lake.table(table.name)
            delta = self._deltas.get(table.name)
            if delta is not None:
                if thorough or not root.is_local or next_commit(root, delta.version()).exists():
                    delta.update_incremental()
            elif (found := open_delta(self._lake.table(table.name))) is not None:
                self._deltas[table.name] = found
        return {name: delta.version() for name, delta in self._deltas.items()}

    def _awaited(self, sql: str) -> dict[str, int]:
        """Tables that are not there yet and that somebody asked about. Making all of them known takes a second."""
        words = sql.lower()
        words += " ".join(view.source for view in VIEWS if view.name in words)
        self._asked |= {table.name for table in self._tables if not table.named and table.name in words}
        return {name: -1 for name in self._asked if name not in self._deltas}

    def _connect(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(":memory:")
        connection.execute(f"SET memory_limit = '{self._bounds.memory // limits.MIB} MiB'")
        connection.execute("SET GLOBAL parquet_metadata_cache = true")  # files of a snapshot never change,
        connection.execute("SET validate_external_file_cache = 'NO_VALIDATION'")  # so what was read once stays true
        self._remote = {}
        allowed: list[str] = []
        for table in self._tables:
            delta = self._deltas.get(table.name)
            if delta is None and not table.named and table.name not in self._asked:
                continue
            files = [] if delta is None else delta.file_uris()
            if files and not self._lake.tables.is_local:
                self._remote[table.name] = _dataset(self._lake.table(table.name), table, files)
                continue
            allowed += files
            _define(connection, table, delta, files)
            _define_views(connection, table.name)
        connection.create_function(
            "sdsp_object",
            self._object,
            ["varchar", "bigint"],
            "varchar",
            null_handling=duckdb.func.SPECIAL,  # null is an answer
        )
        connection.execute(f"SET allowed_paths = {_list(allowed)}")
        for lock in _LOCKS:
            connection.execute(lock)
        return connection

    def _object(self, uid: str | None, serial: int | None) -> str | None:
        """`sdsp_object(uid, serial)` in SQL: the object's value at that serial as JSON text, null if it cannot be told."""
        if uid is None or serial is None:
            return None
        try:
            return msgspec.json.encode(as_json(object_at(self._lake, uid, serial))["value"], order="sorted").decode()
        except SynclineError:
            return None


class _Desk:
    """One cursor on a locked database, used by one thread at a time, with the statements it has checked and bound.

    DuckDB binds a statement when it is asked for and again when it runs; on small answers that is a fifth of the time.
    A bound statement runs anew each time, on the same snapshot: the desk is dropped with its database.
    """

    def __init__(self, database: duckdb.DuckDBPyConnection, remote: Mapping[str, pads.Dataset]) -> None:
        self.database = database
        self.cursor = database.cursor()
        for name, dataset in remote.items():  # pyarrow reads these: DuckDB itself has no way out to any store
            self.cursor.register(name, dataset)
            _define_views(self.cursor, name, "TEMP")
        # Some statements that read may yet hold one that writes. Nothing here ever changes, so the desk may stay in it.
        self.cursor.execute("BEGIN TRANSACTION READ ONLY")
        self._bound: OrderedDict[str, duckdb.DuckDBPyRelation] = OrderedDict()

    def knows(self, sql: str) -> bool:
        """Whether this very text was checked and answered here before."""
        return sql in self._bound

    def answer(self, sql: str, parameters: Sequence[Any], bounds: QueryLimits) -> tuple[pa.Table, bool]:
        asked = None if parameters else self._bound.pop(sql, None)
        if asked is None:
            asked = self.cursor.sql(sql, params=list(parameters)) if parameters else self.cursor.sql(sql)
            assert asked is not None
        rows, truncated = _bounded(asked.to_arrow_reader(_BATCH_ROWS), bounds)
        if not parameters and not truncated:  # one that was cut short still holds the rest of its answer
            self._bound[sql] = asked
            if len(self._bound) > limits.QUERY_STATEMENTS:
                self._bound.popitem(last=False)
        return rows, truncated


def check_statement(sql: str) -> None:
    """Refuse anything but one statement that reads."""
    if len(sql) > limits.QUERY_TEXT:
        raise UsageError(f"a statement of more than {limits.QUERY_TEXT:,} characters")
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise _explained(error) from None
    if len(statements) != 1:
        raise UsageError(f"one statement at a time, not {len(statements)}")
    if statements[0].type not in READS or not _explains_a_select(sql, statements[0].type):
        raise UsageError("only SELECT and EXPLAIN: tables are written by the pipeline alone")


def _explains_a_select(sql: str, kind: duckdb.StatementType) -> bool:
    """Whether a statement is no EXPLAIN, or one of a SELECT: EXPLAIN ANALYZE runs what it explains, whatever that is.

    What follows the EXPLAIN and its options is found by DuckDB's own lexer: it alone knows where a comment ends.
    """
    if kind != duckdb.StatementType.EXPLAIN:
        return True
    raw = sql.encode()
    starts = [start for start, token in duckdb.tokenize(sql) if token != duckdb.token_type.comment]
    words = [_WORD.match(raw, start) for start in starts]
    texts = [b"" if word is None else word[0].lower() for word in words]
    at = 1
    if texts[at : at + 1] == [b"("] and texts[at + 1 : at + 2] != [b"select"]:
        at = texts.index(b")") + 1 if b")" in texts else len(texts)
    while texts[at : at + 1] in ([b"analyze"], [b"verbose"]):
        at += 1
    explained = raw[starts[at] :].decode() if at < len(starts) else ""
    try:
        return [each.type for each in duckdb.extract_statements(explained)] == [duckdb.StatementType.SELECT]
    except duckdb.Error:
        return False


def _define(connection: duckdb.DuckDBPyConnection, table: Table, delta: DeltaTable | None, files: list[str]) -> None:
    """Make a table known by its name, with all its columns, even those that no file has yet."""
    widened = delta is not None and delta.metadata().configuration.get(WIDENED_PROPERTY) is not None
    columns = ", ".join(f'"{column.name}"' for column in table.columns)
    source = f"({_nothing(table)})" if widened or not files else ""
    if files:
        parts = (column for column in table.columns if column.name in table.partition_by)
        hive = ", ".join(f"'{column.name}': {_SQL_TYPES[column.type]}" for column in parts)
        options = f"hive_partitioning = true, hive_types = {{{hive}}}, union_by_name = {str(widened).lower()}"
        rows = f"read_parquet({_list(files)}, {options})"
        source = f"(SELECT * FROM {source} UNION ALL BY NAME SELECT * FROM {rows})" if widened else rows  # noqa: S608
    connection.execute(f'CREATE VIEW "{table.name}" AS SELECT {columns} FROM {source}')  # noqa: S608


def _define_views(connection: duckdb.DuckDBPyConnection, source: str, kind: str = "") -> None:
    """Make the views over a table known. `kind` is TEMP where the table is known to this cursor alone."""
    for view in VIEWS:
        if view.source == source:
            head = f"MACRO {view.name}({view.parameter}) AS TABLE" if view.parameter else f"VIEW {view.name} AS"
            connection.execute(f"CREATE {kind} {head} {view.over()}")


def _dataset(root: Root, table: Table, files: Iterable[str]) -> pads.Dataset:
    """A snapshot in an object store. Columns and rows that a query does not want are not fetched."""
    paths = [uri.removeprefix(root.url).lstrip("/") for uri in files]
    parts = pa.schema([table.schema.field(name) for name in table.partition_by])
    return pads.dataset(
        paths,
        schema=table.schema,
        format="parquet",
        filesystem=root.filesystem(),
        partitioning=pads.partitioning(parts, flavor="hive"),
    )


@cache
def _nothing(table: Table) -> str:
    """A SELECT of no rows that has the table's columns: an empty table would take memory for each of them."""
    with duckdb.connect(":memory:") as scratch:
        kinds = scratch.from_arrow(table.schema.empty_table()).types
    columns = ", ".join(f'NULL::{kind} AS "{column.name}"' for column, kind in zip(table.columns, kinds, strict=True))
    return f"SELECT {columns} WHERE false"


_SQL_TYPES: Final = {pa.string(): "VARCHAR", pa.date32(): "DATE", pa.int32(): "INTEGER"}


def _list(texts: Iterable[str]) -> str:
    quoted = (text.replace("'", "''") for text in texts)
    return "[" + ", ".join(f"'{text}'" for text in quoted) + "]"


def _bounded(reader: pa.RecordBatchReader, bounds: QueryLimits) -> tuple[pa.Table, bool]:
    """Read as much as is allowed, and whether there was more."""
    kept: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in reader:
        room = bounds.rows - rows
        if batch.num_rows > room or size > bounds.bytes:
            return pa.Table.from_batches([*kept, batch.slice(0, max(room, 0))], reader.schema), True
        kept.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
    return pa.Table.from_batches(kept, reader.schema), False


def _explaining(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    try:
        yield from reader
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        raise _explained(error) from None


def _explained(error: Exception) -> SynclineError:
    first = " ".join(str(error).split("\n\n")[0].split())
    if isinstance(error, duckdb.OutOfMemoryException) or "Out of Memory" in first:
        return UnavailableError(
            "the query needs more memory than one may use", hint="ask for less, or use --engine spark"
        )
    if "No files found" in first or "No such file" in first:
        return MissingError("a file of the snapshot is gone", hint="ask again: the table was vacuumed")
    return UsageError(first)
