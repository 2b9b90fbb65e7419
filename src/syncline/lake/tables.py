"""The tables of the lake as data: every column with its type and meaning, how a table is split and how its rows are
told apart. docs/tables.md is written from here. Files and commits are made elsewhere; protocols add their tables in
stages.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
import pyarrow as pa

from syncline.formats.records import RECORD_SCHEMA, SEQ, TIMESTAMP

BUCKET: Final = "bucket"
ARRIVAL: Final = ("received_at", "node", "epoch", "lsn")


class Column(msgspec.Struct, frozen=True):
    """One column. `unit` is empty where the type says it all; `origin` is the record's column it repeats under another
    name.
    """

    name: str
    type: pa.DataType
    doc: str
    nullable: bool = True
    unit: str = ""
    origin: str = ""

    @property
    def field(self) -> pa.Field:
        return pa.field(self.name, self.type, nullable=self.nullable)


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """One Delta table.

    `append`: a row per arrival, told apart by the segment it came in. `keyed`: one row per `identity`, however many
    nodes saw it. `state`: one row per `key`, rewritten as it changes. Keyed and state tables are split by `bucket`, a
    hash of `key`, so that all rows of one key are in one partition. `span` is a column of a keyed table that follows from
    the identity and mostly grows with time: copies of a batch's messages are only among rows within the batch's own span
    of it, so that looking for them does not read all history.

    Commits of a `named` table name the segments in it, and it is asked for them. One that is not named appears with its
    first row and is committed before the named ones of its protocol, so it holds what they hold; what a crash makes it
    take twice changes nothing.
    """

    name: str
    doc: str
    mode: Literal["append", "keyed", "state"]
    columns: tuple[Column, ...]
    partition_by: tuple[str, ...]
    key: str = ""
    identity: tuple[str, ...] = ()
    span: str = ""
    sort_by: tuple[str, ...] = ()
    statistics: tuple[str, ...] = ()  # columns whose least and greatest value is kept per file, to skip files by
    plain: tuple[str, ...] = ()  # columns of bytes that never repeat: a dictionary would only cost time
    named: bool = True
    arrival: tuple[str, ...] = ARRIVAL  # of several copies in one batch the first in this order is kept

    @property
    def schema(self) -> pa.Schema:
        """What a reader of the table sees."""
        return pa.schema([column.field for column in self.columns])

    @property
    def file_schema(self) -> pa.Schema:
        """What its files hold: the partition columns are in the paths."""
        return pa.schema([column.field for column in self.file_columns])

    @property
    def file_columns(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.name not in self.partition_by)


def bucket_column() -> Column:
    return Column(BUCKET, pa.int32(), "hash of the key, which decides the partition", nullable=False)


_RECORD_DOCS: Final = {
    "node": "PeerID of the node that kept the record",
    "epoch": "16 hex digits, new with every journal file of a node",
    "lsn": "position in the node's journal; with node and epoch, the record's name",
    "protocol": "the protocol it belongs to",
    "direction": "in: received; out: published by the node itself",
    "topic": "where it was published, in the protocol's own words",
    "kind": "what it is, in the protocol's own words",
    "key": "what it is about (an object, a satellite), empty if nothing",
    "publisher": "who wrote it, empty if the protocol does not say",
    "peer": "who handed it to the node",
    "seq": "serial, sequence number or height",
    "id": "the protocol's identity of the message",
    "published_at": "when its publisher says it was written",
    "received_at": "when the node received it",
    "expires_at": "when it stops being valid",
    "raw": "the exact bytes, enough to judge it again; absent for ignored arrivals",
    "raw_ref": "where the bytes are, if they were too large to keep inside",
    "verdict": "accept, reject or ignore",
    "reason": "why it was not accepted",
}
_UNITS: Final = {"published_at": "µs, UTC", "received_at": "µs, UTC", "expires_at": "µs, UTC"}


def record_columns(*names: str) -> tuple[Column, ...]:
    """Columns of the record (all, or those named), as other tables repeat them."""
    wanted = names or tuple(RECORD_SCHEMA.names)
    fields = [RECORD_SCHEMA.field(name) for name in wanted]
    return tuple(
        Column(field.name, field.type, _RECORD_DOCS[field.name], field.nullable, _UNITS.get(field.name, ""))
        for field in fields
    )


_DATE: Final = Column("date", pa.date32(), "day of received_at, UTC", nullable=False)

RECORDS: Final = Table(
    name="records",
    doc="Every arrival at every node, good or bad, with its raw bytes: what all other tables can be made from again.",
    mode="append",
    columns=(*record_columns(), _DATE),
    partition_by=("protocol", "date"),
    statistics=("node", "epoch", "lsn", "received_at", "key"),
    plain=("raw", "id"),
)

REJECTED: Final = Table(
    name="rejected",
    doc="Arrivals that broke a rule: turned away by the node, or by the lake when it judged the bytes again.",
    mode="append",
    columns=(
        *record_columns(),
        Column("judged_by", pa.string(), "node or lake: who turned it away", nullable=False),
        _DATE,
    ),
    partition_by=("protocol", "date"),
    statistics=("node", "epoch", "lsn", "received_at", "peer", "reason"),
    plain=("raw", "id"),
)

AUDIT: Final = Table(
    name="audit",
    doc="Records whose content the lake judges otherwise than the node did. Must be empty.",
    mode="append",
    columns=(
        *record_columns(),
        Column("lake_verdict", pa.string(), "what the bytes say: accept, reject or ignore", nullable=False),
        Column("lake_reason", pa.string(), "why the lake would not have accepted it"),
        _DATE,
    ),
    partition_by=("protocol", "date"),
    statistics=("node", "epoch", "lsn", "received_at"),
    plain=("raw", "id"),
)

BASE_TABLES: Final = (RECORDS, REJECTED, AUDIT)

SEGMENTS: Final = Table(
    name="segments",
    doc="Every sealed file that landed: where records came from.",
    mode="keyed",
    columns=(
        Column("journal", pa.string(), "node and epoch: the journal it was sealed from", nullable=False),
        Column("path", pa.string(), "its place below the segments folder", nullable=False),
        *record_columns("node", "epoch", "protocol"),
        Column("day", pa.date32(), "day of received_at of its records, UTC", nullable=False),
        Column("first_lsn", pa.int64(), "start of the range of positions sealed together", nullable=False),
        Column("last_lsn", pa.int64(), "end of that range, which all siblings share", nullable=False),
        Column("rows", pa.int64(), "records in this file", nullable=False),
        Column("siblings", pa.int64(), "files the range was sealed into, this one included", nullable=False),
        bucket_column(),
    ),
    partition_by=(BUCKET,),
    key="journal",
    identity=("path",),
    span="first_lsn",
    sort_by=("journal", "first_lsn"),
    statistics=("node", "epoch", "first_lsn", "last_lsn"),
    arrival=("path",),
)

GAPS: Final = Table(
    name="gaps",
    doc="Numbers that are missing, or were for a time, between others that came.",
    mode="state",
    columns=(
        Column("protocol", pa.string(), "the protocol, or journal for a node's own positions", nullable=False),
        Column("series", pa.string(), "what is numbered: an object, a publisher in a group, a chain", nullable=False),
        Column("what", pa.string(), "serial, sequence, height or lsn", nullable=False),
        Column("first", SEQ, "the first number of the gap", nullable=False),
        Column("last", SEQ, "the last number of the gap", nullable=False),
        Column("missing", SEQ, "how many of them have not come; 0 once it is closed", nullable=False),
        Column("opened_at", TIMESTAMP, "when a number beyond the gap came; absent for lsn", unit="µs, UTC"),
        Column("closed_at", TIMESTAMP, "when the last missing number came", unit="µs, UTC"),
        bucket_column(),
    ),
    partition_by=("protocol", BUCKET),
    key="series",
    identity=("protocol", "series", "first"),
    sort_by=("series", "first"),
    statistics=("series", "missing"),
    named=False,
)
