"""Records as Arrow columns: the one schema of segments, exports, API pages and the `records` table.

The version below is written into every segment; docs/segments.md states it. Files and tables are made elsewhere.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from syncline.core.record import Direction, Record
from syncline.core.verdict import Outcome, Reason

SEGMENT_VERSION: Final = 1
TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
SEQ: Final = pa.decimal128(20, 0)  # sequence numbers and heights reach 2^64 - 1

RECORD_SCHEMA: Final = pa.schema(
    [
        pa.field("node", pa.string(), nullable=False),
        pa.field("epoch", pa.string(), nullable=False),
        pa.field("lsn", pa.int64(), nullable=False),
        pa.field("protocol", pa.string(), nullable=False),
        pa.field("direction", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("publisher", pa.string(), nullable=False),
        pa.field("peer", pa.string(), nullable=False),
        pa.field("seq", SEQ),
        pa.field("id", pa.binary(), nullable=False),
        pa.field("published_at", TIMESTAMP),
        pa.field("received_at", TIMESTAMP, nullable=False),
        pa.field("expires_at", TIMESTAMP),
        pa.field("raw", pa.binary()),
        pa.field("raw_ref", pa.string()),
        pa.field("verdict", pa.string(), nullable=False),
        pa.field("reason", pa.string()),
    ]
)
_STAMPS: Final = frozenset({"published_at", "received_at", "expires_at"})


def to_arrow(records: Sequence[Record]) -> pa.RecordBatch:
    """Records as one batch, in their order."""
    columns = []
    for field in RECORD_SCHEMA:
        values: list[Any] = [getattr(record, field.name) for record in records]
        if field.name == "seq":
            values = [None if value is None else Decimal(value) for value in values]
        columns.append(
            pa.array(values, pa.int64()).cast(TIMESTAMP) if field.name in _STAMPS else pa.array(values, field.type)
        )
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def from_arrow(batch: pa.RecordBatch) -> list[Record]:
    """The records of a batch that has RECORD_SCHEMA."""
    columns: dict[str, list[Any]] = {}
    for name in RECORD_SCHEMA.names:
        column = batch.column(name)
        columns[name] = (column.cast(pa.int64()) if name in _STAMPS else column).to_pylist()
    columns["seq"] = [None if value is None else int(value) for value in columns["seq"]]
    columns["direction"] = [Direction(value) for value in columns["direction"]]
    columns["verdict"] = [Outcome(value) for value in columns["verdict"]]
    columns["reason"] = [None if value is None else Reason(value) for value in columns["reason"]]
    return [Record(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]


def to_json(record: Record) -> dict[str, Any]:
    """A record as JSON shows it: bytes as base64 (`id` as hex), `seq` as text, times in ISO 8601."""
    fields: dict[str, Any] = {"name": str(record.name)}
    for field in RECORD_SCHEMA.names:
        value = getattr(record, field)
        if field == "id":
            value = value.hex()
        elif field == "seq":
            value = None if value is None else str(value)
        elif field in _STAMPS:
            value = None if value is None else iso_time(value)
        elif isinstance(value, bytes):
            value = b64encode(value).decode()
        fields[field] = value
    return fields


def iso_time(microseconds: int) -> str:
    """`2026-03-01T12:00:00.000000Z`"""
    seconds, rest = divmod(microseconds, 1_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:06d}Z"
