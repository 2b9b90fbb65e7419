"""A record as a row of SQLite and back, with the checksum that travels with it.

Only the shape of a row is decided here; files, transactions and queries are not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final
from zlib import crc32

import msgspec
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
WIDTH: Final = len(COLUMNS) + 1
Row = tuple[Any, ...]
# From (lsn, *row) to the columns of the table. The stored `crc` covers the lsn too: a row cannot pass for another.
STORED: Final = ", ".join(
    f"column{n} + column1" if name == "crc" else f"column{n}" for n, name in enumerate(("lsn", *COLUMNS), 1)
)
SELECT: Final = f"SELECT lsn, {', '.join(COLUMNS)} FROM records"  # noqa: S608 - names from the tuple above

_DIRECTIONS: Final = {value.value: value for value in Direction}
_OUTCOMES: Final = {value.value: value for value in Outcome}
_REASONS: Final[dict[str | None, Reason | None]] = {None: None, **{value.value: value for value in Reason}}
_ACCEPT: Final = Outcome.ACCEPT  # looking up a member of an enum takes as long as checking a record does
_TIME_MAX: Final = 2**63 - 1
_YEAR_9999: Final = 253_402_300_799_999_999  # the day of received_at names a folder
_PROTOCOL: Final = re.compile(r"[0-9A-Za-z_.-]+")  # the protocol names one too
_encode: Final = msgspec.msgpack.Encoder().encode


def row_of(a: Arrival) -> Row:
    """The columns of an arrival, without its lsn. Raises UsageError for what the journal cannot hold.

    `crc` covers all of them; the lsn is added to it when the row is stored.
    """
    if (problem := _problem(a)) is not None:
        raise UsageError(problem, about=a.protocol)
    try:
        columns = (
            a.protocol, a.direction, a.topic, a.kind, a.key, a.publisher, a.peer,
            None if a.seq is None else a.seq.to_bytes(8, "big"), a.id, a.published_at, a.received_at, a.expires_at,
            a.verdict, a.reason, a.raw_ref,
        )  # fmt: skip
        return (*columns, crc32(_encode((columns, a.raw))), a.raw)
    except OverflowError:
        raise UsageError(f"seq must lie between 0 and {SEQ_MAX}", about=a.protocol) from None
    except UnicodeEncodeError:
        raise UsageError("a field holds text that is not Unicode", about=a.protocol) from None


def _problem(a: Arrival) -> str | None:
    most = limits.TEXT_MAX
    if len(a.topic) > most or len(a.key) > most or len(a.publisher) > most or len(a.peer) > most:
        return f"topic, key, publisher and peer have at most {most} characters"
    if len(a.id) > limits.ID_MAX:
        return f"an id has at most {limits.ID_MAX} bytes"
    if a.verdict is not _ACCEPT and a.reason is None:
        return "a record that is not accepted needs a reason"
    if not (
        0 <= a.received_at <= _YEAR_9999
        and (a.published_at is None or 0 <= a.published_at <= _TIME_MAX)
        and (a.expires_at is None or 0 <= a.expires_at <= _TIME_MAX)
    ):
        return "times are microseconds since 1970, in 63 bits; received_at lies before the year 10000"
    if not _names_a_folder(a.protocol):
        return "a protocol's name has letters, digits, underscores, dots and dashes only"
    return None


@lru_cache(maxsize=256)
def _names_a_folder(protocol: str) -> bool:
    return _PROTOCOL.fullmatch(protocol) is not None and len(protocol) <= 64


def check_row(row: Row) -> None:
    """Raise CorruptionError unless the stored row is the one that was written under this lsn."""
    if crc32(_encode((row[1:-2], row[-1]))) + row[0] != row[-2]:
        raise CorruptionError(
            f"record {row[0]} does not match its checksum",
            hint="run `syncline journal verify`, then `syncline journal recover`",
        )


def seq_bytes(seq: int) -> bytes:
    """A sequence number as it is stored: SQLite's integers are signed, but blobs compare in the right order."""
    if not 0 <= seq <= SEQ_MAX:
        raise UsageError(f"seq must lie between 0 and {SEQ_MAX}")
    return seq.to_bytes(8, "big")


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
    return pa.Array.from_buffers(SEQ, len(values), [present.buffers()[1], pa.py_buffer(data)])
