"""`spark.read.format("syncline")`: a table of the lake at its newest version, or an older one, a partition for each file.

Executors read the files themselves, with pyarrow. Which columns and rows are wanted is said in options (`columns`, `where`)
or by a schema: Spark tells a Python source no columns, and its push-down of filters is not safe (GOTCHAS.md).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as pads
from deltalake import DeltaTable
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from syncline.core.errors import NotFoundError, UsageError
from syncline.lake.deltas import open_delta
from syncline.lake.roots import Root

BATCH_ROWS: Final = 10_000


class TableFile(InputPartition):
    """One file of a snapshot, with the values of the columns that its path stands for."""

    def __init__(self, path: str, values: dict[str, Any]) -> None:
        super().__init__(path)
        self.path = path
        self.values = values


def table_schema(options: Mapping[str, str]) -> StructType:
    """The table's columns, or those that `columns` names, in that order."""
    schema = _arrow_schema(_snapshot(options))
    names = [name.strip() for name in options.get("columns", "").split(",") if name.strip()]
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        raise UsageError(f"the table has no column {unknown[0]!r}", hint="see docs/tables.md")
    return from_arrow_schema(pa.schema([schema.field(name) for name in names]) if names else schema)


class TableReader(DataSourceReader):
    """Reads the files of one snapshot."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        delta = _snapshot(options)
        self._options = {**options, "version": str(delta.version())}  # planned and read at the same version
        self._schema = schema
        self._wheres = parse_where(options.get("where", ""), _arrow_schema(delta))

    def partitions(self) -> Sequence[TableFile]:
        delta = _snapshot(self._options)
        by = delta.metadata().partition_columns
        actions = pa.table(delta.get_add_actions(flatten=True)).to_pylist()
        return [
            TableFile(file["path"], {name: file[f"partition.{name}"] for name in by})
            for file in actions
            if all(where.may_hold(file) for where in self._wheres)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TableFile)
        wanted = to_arrow_schema(self._schema, timezone="UTC")
        filesystem = _root(self._options).filesystem()
        file = pads.ParquetFileFormat().make_fragment(partition.path, filesystem)
        held = file.physical_schema
        if any(where.column not in (*held.names, *partition.values) for where in self._wheres):
            return  # the table got the column later: it is null in every row here, and null passes no comparison
        own = [where for where in self._wheres if where.column in held.names]
        scanner = file.scanner(
            columns=[name for name in wanted.names if name in held.names],
            filter=_together(own),
            batch_size=BATCH_ROWS,
        )
        for batch in scanner.to_batches():
            if batch.num_rows:
                yield _completed(batch, partition.values, wanted)


class Where:
    """A comparison of one column with a value."""

    def __init__(self, column: str, sign: str, value: pa.Scalar) -> None:
        self.column = column
        self.sign = sign
        self.value = value

    @property
    def expression(self) -> pads.Expression:
        return _SIGNS[self.sign](pads.field(self.column), self.value)

    def may_hold(self, file: Mapping[str, Any]) -> bool:
        """Whether a file of which Delta knows this may hold a row that passes."""
        value = self.value.as_py()
        if f"partition.{self.column}" in file:
            found = file[f"partition.{self.column}"]
            return found is not None and bool(_SIGNS[self.sign](found, value))
        least, greatest = file.get(f"min.{self.column}"), file.get(f"max.{self.column}")
        if least is None or greatest is None:
            return True
        if self.sign == "=":
            return bool(least <= value <= greatest)
        return bool(_SIGNS[self.sign](least if self.sign.startswith("<") else greatest, value))


_COMPARISON: Final = re.compile(r"\s*(\w+)\s*(=|<=|>=|<|>)\s*('(?:[^']|'')*'|[-+.\w:]+)\s*")
_AND: Final = re.compile(r"and\b", re.IGNORECASE)


def parse_where(text: str, schema: pa.Schema) -> list[Where]:
    """Comparisons with AND between them: `date >= '2026-03-01' AND protocol = 'sds'`."""
    found: list[Where] = []
    position = 0
    while text.strip():
        match = _COMPARISON.match(text, position)
        if match is None:
            raise UsageError("where takes comparisons with AND between them", about=text[position:][:80])
        found.append(_where(match[1], match[2], match[3], schema))
        position = match.end()
        if position == len(text):
            break
        between = _AND.match(text, position)
        if between is None:
            raise UsageError("where takes comparisons with AND between them", about=text[position:][:80])
        position = between.end()
    return found


def _where(column: str, sign: str, literal: str, schema: pa.Schema) -> Where:
    if column not in schema.names:
        raise UsageError(f"the table has no column {column!r}", hint="see docs/tables.md")
    text = literal[1:-1].replace("''", "'") if literal.startswith("'") else literal
    try:
        value = pa.scalar(text).cast(schema.field(column).type)
    except pa.ArrowException:
        raise UsageError(f"{text!r} is no value of the column {column}") from None
    return Where(column, sign, value)


_SIGNS: Final[Mapping[str, Any]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _together(wheres: Iterable[Where]) -> pads.Expression | None:
    found = None
    for where in wheres:
        found = where.expression if found is None else found & where.expression
    return found


def _completed(batch: pa.RecordBatch, values: Mapping[str, Any], wanted: pa.Schema) -> pa.RecordBatch:
    """The batch with the columns its file does not hold: those of the path, and those the table got later."""
    columns = []
    for field in wanted:
        if field.name in batch.schema.names:
            columns.append(batch.column(field.name).cast(field.type))
        else:
            columns.append(pa.repeat(pa.scalar(values.get(field.name), field.type), batch.num_rows))
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _root(options: Mapping[str, str]) -> Root:
    """The table's folder: `path` (of `.load`) is the folder of tables, or of the one table if none is named."""
    place = options.get("path") or options.get("lake") or "data/lake"
    root = Root.at(place)
    return root.below(options["table"]) if "table" in options else root


def _snapshot(options: Mapping[str, str]) -> DeltaTable:
    root = _root(options)
    delta = open_delta(root)
    if delta is None:
        raise NotFoundError("there is no such table", hint="`syncline lake tables` lists them", about=root.url)
    if options.get("version"):
        delta.load_as_version(int(options["version"]))
    elif options.get("timestamp"):
        delta.load_as_version(options["timestamp"])
    return delta


def _arrow_schema(delta: DeltaTable) -> pa.Schema:
    return pa.schema(delta.schema().to_arrow())
