"""Records of a journal as a file others can read: Parquet, Arrow, NDJSON or CSV."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from syncline.core.errors import UsageError
from syncline.core.ports import RecordQuery
from syncline.formats.records import RECORD_SCHEMA, from_arrow, to_json
from syncline.journal.reading import reading
from syncline.journal.rows import batch_of

Format = Literal["parquet", "arrow", "ndjson", "csv"]
Progress = Callable[[int, int], None]  # done, of
WriteBatch = Callable[[pa.RecordBatch], None]
FIELDS: Final = ("name", *RECORD_SCHEMA.names)


def check_export(path: Path, format: str) -> None:
    """Raise before anything is written: the format must be one of ours, the journal there and sound enough to open."""
    if format not in _WRITERS:
        raise UsageError(f"{format!r} is not a format", hint=f"use one of {', '.join(_WRITERS)}")
    with reading(path):
        pass


def export(
    path: Path, query: RecordQuery, out: IO[bytes], format: Format, progress: Progress = lambda done, of: None
) -> int:
    """Write the records that match to `out`, oldest first, and return their number.

    NDJSON and CSV show a record as the HTTP API does (`formats.records.to_json`).
    """
    check_export(path, format)
    with reading(path) as journal, _WRITERS[format](out) as write:
        last, done = journal.about.newest, 0
        for rows in journal.pages(query):
            write(batch_of(rows, journal.about.node, journal.about.epoch))
            done += len(rows)
            progress(rows[-1][0], last)
    return done


@contextmanager
def _parquet(out: IO[bytes]) -> Iterator[WriteBatch]:
    with pq.ParquetWriter(out, RECORD_SCHEMA, compression="zstd") as writer:
        yield writer.write_batch


@contextmanager
def _arrow(out: IO[bytes]) -> Iterator[WriteBatch]:
    with pa.ipc.new_stream(out, RECORD_SCHEMA) as writer:
        yield writer.write_batch


@contextmanager
def _ndjson(out: IO[bytes]) -> Iterator[WriteBatch]:
    encoder = msgspec.json.Encoder()

    def write(batch: pa.RecordBatch) -> None:
        out.write(encoder.encode_lines([to_json(record) for record in from_arrow(batch)]))

    yield write


@contextmanager
def _csv(out: IO[bytes]) -> Iterator[WriteBatch]:
    class Encoded:
        """csv writes text; `out` takes bytes."""

        def write(self, text: str) -> int:
            return out.write(text.encode())

    writer = csv.DictWriter(Encoded(), FIELDS, lineterminator="\n")
    writer.writeheader()

    def write(batch: pa.RecordBatch) -> None:
        writer.writerows(to_json(record) for record in from_arrow(batch))

    yield write


_WRITERS: Final[dict[str, Callable[[IO[bytes]], Any]]] = {
    "parquet": _parquet,
    "arrow": _arrow,
    "ndjson": _ndjson,
    "csv": _csv,
}
