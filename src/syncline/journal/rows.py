"""A record as a row of SQLite and back, with the checksum that travels with it.

Only the shape of a row is decided here; files, transactions and queries are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from zlib import crc32

import pyarrow as pa

from syncline.core import limits
from syncline.core.errors import CorruptionError, UsageError
from syncline.core.record import SEQ_MAX, Arrival, Direction, Record
from syncline.core.verdict import Outcome, Reason
from syncline.formats.records import RECORD_SCHEMA, SEQ, TIMESTAMP

# Everything after `lsn`; raw comes last, so that reading the other columns never walks its overflow pages.
COLUMNS: Final = (
    "protocol", "direction", "topic", "kind", "key", "publisher", "peer", "seq", "id",
    "published_at", "received_at", "expires_at", "verdict", "reason", "raw_ref", "crc", "raw",
)  # fmt: skip
Row = tuple[Any, ...]
SELECT: Final = f"SELECT lsn, {', '.join(COLUMNS)} FROM records"  # noqa: S608 - names from the tuple above
INSERT: Final = f"INSERT INTO records VALUES ({', '.join('?' * (len(COLUMNS) + 1))})"  # noqa: S608

_DIRECTIONS: Final = {value.value: value for value in Direction}
_OUTCOMES: Final = {value.value: value for value in Outcome}
_REASONS: Final[dict[str | None, Reason | None]] = {None: None, **{value.value: value for value in Reason}}
_INT64: Final = 2**63


def row_of(arrival: Arrival) -> Row:
    """The columns of an arrival, without its lsn. Raises UsageError for what the journal cannot hold.

    `crc` covers all of them but the lsn, which is mixed in when it is known (`sealed_row`).
    """
    a = arrival
    if not a.verdict.value == "accept" and a.reason is None:
        raise UsageError("a record that is not accepted needs a reason", about=a.protocol)
    longest = max(len(a.protocol), len(a.topic), len(a.kind), len(a.key), len(a.publisher), len(a.peer))
    if longest > limits.TEXT_MAX or len(a.id) > limits.TEXT_MAX:
        raise UsageError(f"a field is longer than {limits.TEXT_MAX}", about=a.protocol)
    if a.raw is not None and len(a.raw) > limits.RAW_INLINE_MAX:
        raise UsageError(f"raw bytes over {limits.RAW_INLINE_MAX} go to a blob store", about=a.protocol)
    try:
        seq = None if a.seq is None else a.seq.to_bytes(8, "big")
    except OverflowError:
        raise UsageError(f"seq must lie between 0 and {SEQ_MAX}", about=a.protocol) from None
    for stamp in (a.published_at, a.received_at, a.expires_at):
        if stamp is not None and not -_INT64 <= stamp < _INT64:
            raise UsageError("a time must fit 64 bits of microseconds", about=a.protocol)
    row = (
        a.protocol, a.direction.value, a.topic, a.kind, a.key, a.publisher, a.peer, seq, a.id,
        a.published_at, a.received_at, a.expires_at, a.verdict.value, None if a.reason is None else a.reason.value,
        a.raw_ref,
    )  # fmt: skip
    try:
        return (*row, checksum(row, a.raw), a.raw)
    except UnicodeEncodeError:
        raise UsageError("a field holds text that is not Unicode", about=a.protocol) from None


def checksum(columns: Row, raw: bytes | None) -> int:
    """CRC-32 over the columns before `crc`, then the raw bytes."""
    total = crc32(repr(columns).encode())
    return total if raw is None else crc32(raw, total) ^ 1  # absent and empty raw must differ


def sealed_row(lsn: int, row: Row) -> Row:
    """The row as stored: with its lsn, which the checksum now covers too."""
    return (lsn, *row[:-2], row[-2] ^ _fold(lsn), row[-1])


def check_row(row: Row) -> None:
    """Raise CorruptionError unless the stored row is the one that was written under this lsn."""
    if checksum(row[1:-2], row[-1]) ^ _fold(row[0]) != row[-2]:
        raise CorruptionError(
            f"record {row[0]} does not match its checksum",
            hint="run `syncline journal verify`, then `syncline journal recover`",
        )


def record_of(row: Row, node: str, epoch: str) -> Record:
    """The record of a stored row, verified."""
    check_row(row)
    (lsn, protocol, direction, topic, kind, key, publisher, peer, seq, id_, published_at, received_at, expires_at,
     verdict, reason, raw_ref, _, raw) = row  # fmt: skip
    return Record(
        node=node, epoch=epoch, lsn=lsn, protocol=protocol, direction=_DIRECTIONS[direction], topic=topic, kind=kind,
        key=key, publisher=publisher, peer=peer, seq=None if seq is None else int.from_bytes(seq, "big"), id=id_,
        published_at=published_at, received_at=received_at, expires_at=expires_at, verdict=_OUTCOMES[verdict],
        reason=_REASONS[reason], raw_ref=raw_ref, raw=raw,
    )  # fmt: skip


def batch_of(rows: Sequence[Row], node: str, epoch: str) -> pa.RecordBatch:
    """Stored rows, verified, as one Arrow batch of RECORD_SCHEMA, without making a Record of each."""
    for row in rows:
        check_row(row)
    names = ("lsn", *COLUMNS)
    columns: dict[str, Any] = dict(zip(names, zip(*rows, strict=True) if rows else [()] * len(names), strict=True))
    columns["node"], columns["epoch"] = [node] * len(rows), [epoch] * len(rows)
    arrays = []
    for field in RECORD_SCHEMA:
        values = columns[field.name]
        if field.name == "seq":
            arrays.append(_decimals(values))
        elif field.type == TIMESTAMP:
            arrays.append(pa.array(values, pa.int64()).cast(TIMESTAMP))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA)


def _decimals(values: Sequence[bytes | None]) -> pa.Array:
    """8-byte big-endian numbers as decimals: their little-endian bytes, widened, are Arrow's own form."""
    data = b"".join(bytes(16) if value is None else value[::-1] + bytes(8) for value in values)
    present = pa.array([value is not None for value in values], pa.bool_())
    bitmap = present.buffers()[1] if values else None
    return pa.Array.from_buffers(SEQ, len(values), [bitmap, pa.py_buffer(data)])


def _fold(lsn: int) -> int:
    return (lsn ^ lsn >> 32) & 0xFFFFFFFF
