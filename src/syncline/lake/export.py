"""A table, a view or any answer as one file, Parquet or CSV, however many rows it has. The file appears whole or not at
all. Interactive answers, which are bounded, are query's business.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from syncline.core.errors import UsageError
from syncline.lake.query import Queries

Form = Literal["parquet", "csv"]
FORMS: Final[dict[str, Form]] = {".parquet": "parquet", ".csv": "csv"}


class Exported(msgspec.Struct, frozen=True):
    """What was written."""

    path: str
    rows: int
    bytes: int


def form_of(path: Path) -> Form:
    """The form that a file's name asks for."""
    found = FORMS.get(path.suffix.lower())
    if found is None:
        raise UsageError("the name says neither Parquet nor CSV", hint="end it in .parquet or .csv", about=str(path))
    return found


def export(queries: Queries, what: str, path: Path) -> Exported:
    """Write all rows of a table, of a view or of a SELECT."""
    form = form_of(path)
    schema, batches = queries.stream(f'SELECT * FROM "{what}"' if what.isidentifier() else what)  # noqa: S608
    half_made = path.with_name(f".{path.name}.tmp")
    try:
        rows = (_parquet if form == "parquet" else _csv)(half_made, schema, batches)
        half_made.replace(path)
    except OSError as error:
        raise UsageError(f"the file cannot be written: {error.strerror}", about=str(path)) from None
    finally:
        half_made.unlink(missing_ok=True)
    return Exported(os.fspath(path), rows, path.stat().st_size)


def _parquet(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    rows = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _csv(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Bytes as hex, lists and structures as JSON: CSV has no words for them."""
    plain = pa.schema([pa.field(field.name, _csv_type(field.type)) for field in schema])
    rows = 0
    with pacsv.CSVWriter(path, plain) as writer:
        for batch in batches:
            columns = [_csv_column(batch.column(index), field.type) for index, field in enumerate(plain)]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=plain))
            rows += batch.num_rows
    return rows


def _csv_type(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_nested(kind) or _is_bytes(kind) else kind


def _csv_column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    return pa.array([None if value is None else _csv_text(value) for value in column.to_pylist()], pa.string())


def _csv_text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else msgspec.json.encode(value, enc_hook=str).decode()


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
