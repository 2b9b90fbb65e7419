"""Parquet files of tables, written by executors, each with the facts Delta wants to know of it. A file counts only once
the driver has committed it; one that never is committed is an orphan, which vacuum removes.
"""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from syncline.lake.roots import make_folder
from syncline.lake.tables import Table

COMPRESSION: Final = "zstd"
LEVEL: Final = 1
ROW_GROUP: Final = 128 * 1024  # rows
# What is read to be written again is checked: a changed bit must not become the new truth.
CHECKED: Final = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)
_STATISTIC_TEXT_MAX: Final = 128  # a longer least value may be cut, a longer greatest one may not: leave both out


class AddedFile(msgspec.Struct, frozen=True):
    """A written file, as the driver commits it."""

    table: str
    path: str  # below the table's folder
    size: int
    rows: int
    partition: dict[str, str]
    statistics: str


class TableWriter:
    """Writes rows of one table into one file per run of equal partition values."""

    def __init__(self, filesystem: Any, table: Table) -> None:
        self._filesystem = filesystem
        self._table = table
        self._schema = table.file_schema
        self._dictionary = [field.name for field in self._schema if _gains_from_dictionary(field, table)]
        # numbers that mostly count up: filters on them read less than half
        self._encodings = {field.name: "DELTA_BINARY_PACKED" for field in self._schema if _counts_up(field)}
        self._open: _OpenFile | None = None
        self.added: list[AddedFile] = []

    def write(self, partition: Mapping[str, str], rows: pa.Table) -> None:
        """Add rows, which have the table's file schema, to the partition's file."""
        if rows.num_rows == 0:
            return
        if self._open is None or self._open.partition != partition:
            self.close()
            self._open = self._start(dict(partition))
        self._open.writer.write_table(rows, row_group_size=ROW_GROUP)
        self._open.rows += rows.num_rows

    def close(self) -> None:
        """Finish the file under way."""
        if self._open is None:
            return
        file, self._open = self._open, None
        file.writer.close()
        file.stream.close()  # an object store shows nothing before
        (info,) = self._filesystem.get_file_info([file.full_path])
        metadata = file.collected[0]
        self.added.append(
            AddedFile(
                self._table.name, file.path, info.size, file.rows, file.partition, _statistics(metadata, self._table)
            )
        )

    def _start(self, partition: dict[str, str]) -> _OpenFile:
        folder = "/".join(f"{name}={partition[name]}" for name in self._table.partition_by)
        path = f"{folder}/{uuid.uuid4().hex}.parquet" if folder else f"{uuid.uuid4().hex}.parquet"
        full_path = f"{self._table.name}/{path}"
        make_folder(self._filesystem, full_path.rpartition("/")[0])
        collected: list[Any] = []
        stream = self._filesystem.open_output_stream(full_path)
        writer = pq.ParquetWriter(
            stream,
            self._schema,
            compression=COMPRESSION,
            compression_level=LEVEL,
            use_dictionary=self._dictionary,
            column_encoding=self._encodings,
            store_decimal_as_integer=False,
            write_page_checksum=True,
            metadata_collector=collected,
        )
        return _OpenFile(path, full_path, partition, stream, writer, collected)


class _OpenFile:
    def __init__(
        self, path: str, full_path: str, partition: dict[str, str], stream: Any, writer: Any, collected: list[Any]
    ) -> None:
        self.path = path
        self.full_path = full_path
        self.partition = partition
        self.stream = stream
        self.writer = writer
        self.collected = collected
        self.rows = 0


def _gains_from_dictionary(field: pa.Field, table: Table) -> bool:
    return (pa.types.is_string(field.type) or pa.types.is_binary(field.type)) and field.name not in table.plain


def _counts_up(field: pa.Field) -> bool:
    return bool(pa.types.is_int64(field.type) or pa.types.is_timestamp(field.type))


def _statistics(metadata: Any, table: Table) -> str:
    """Delta's statistics of a file: its rows, and of some columns the least, the greatest and the absent values."""
    names = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    absent: dict[str, int] = {}
    for name in table.statistics:
        index = names.index(name)
        groups = [metadata.row_group(group).column(index).statistics for group in range(metadata.num_row_groups)]
        if any(group is None or group.null_count is None for group in groups):
            continue
        absent[name] = sum(group.null_count for group in groups)
        spans = [(group.min, group.max) for group in groups if group.has_min_max]
        if spans and len(spans) == sum(group.num_values > 0 for group in groups):
            low, high = _plain(min(span[0] for span in spans)), _plain(max(span[1] for span in spans))
            if low is not None and high is not None:
                least[name], greatest[name] = low, high
    found = {"numRecords": metadata.num_rows, "minValues": least, "maxValues": greatest, "nullCount": absent}
    return json.dumps(found, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """A statistic as Delta writes it in JSON, or None if it is better left out."""
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, Decimal):
        return int(value)
    if isinstance(value, str):
        return value if len(value) <= _STATISTIC_TEXT_MAX else None
    return value if isinstance(value, int) else None
