"""Space data in the lake: every record once in `sds_messages`, whatever its schema, and its payload in the table of that
schema (`sds_omm`, `sds_cdm`, …), which appears with the first record of it. Judging and decoding are the protocol's own,
whole batches at a time.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from syncline.formats.records import RECORD_SCHEMA, TIMESTAMP
from syncline.lake.stages import RECORD, Examined, KeyedRule, Known, ProtocolStages
from syncline.lake.tables import BUCKET, Column, Table, bucket_column, record_columns
from syncline.lake.units import unit_of
from syncline.protocols.sds.catalogue import NAMES
from syncline.protocols.sds.columns import Judged, SchemaRows, decoder, judged, message_columns
from syncline.protocols.sds.rules import KEY_FIELDS, PROTOCOL, TOPIC_PREFIX, Context

# Times inside payloads, which are text there: the schema's field, and the column that has it as a time.
MOMENTS: Final = {
    **dict.fromkeys(("BOV", "CRM", "OMM", "TDM"), ("EPOCH", "epoch_at")),
    "CDM": ("TCA", "tca_at"),
}
_PLAIN: Final = r"^[12]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z?$"
_SECOND: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_ORDINAL: Final = re.compile(r"(\d{4})-(\d{3})(T.*)")


def _record_column(name: str, origin: str, doc: str) -> Column:
    """A column of the record under another name: payloads have an EPOCH, an ID and more of their own."""
    field = RECORD_SCHEMA.field(origin)
    unit = "µs, UTC" if pa.types.is_timestamp(field.type) else ""
    return Column(name, field.type, doc, field.nullable, unit, origin)


_COMMON: Final = (
    _record_column("record_id", "id", "SHA-256 of what its author signed"),
    Column("publish_id", pa.string(), "its author's name for it", nullable=False),
    _record_column("author", "publisher", "PeerID of who wrote and signed it"),
    _record_column("subject", "key", "what it is about: a catalogue number, a message id; empty if nothing"),
    *record_columns("topic", "published_at", "received_at", "peer", "node"),
    _record_column("node_epoch", "epoch", "16 hex digits, new with every journal file of a node"),
    *record_columns("lsn"),
)
_ARRIVAL: Final = ("received_at", "node", "node_epoch", "lsn")

MESSAGES: Final = Table(
    name="sds_messages",
    doc="Every SDS record once, of whatever schema, however many nodes received it.",
    mode="keyed",
    columns=(
        Column("schema", pa.string(), "which standard its payload follows; the payload is in sds_<schema>", False),
        Column("ttl", pa.int64(), "how long it may be gossiped; 0: no limit", nullable=False, unit="s"),
        Column("payload_bytes", pa.int64(), "size of the payload", nullable=False, unit="bytes"),
        *_COMMON,
        bucket_column(),
    ),
    partition_by=(BUCKET,),
    key="publish_id",
    identity=("record_id",),
    span="published_at",
    sort_by=("schema", "published_at"),
    statistics=("schema", "published_at", "received_at"),
    plain=("record_id", "publish_id"),
    arrival=_ARRIVAL,
)


def table_name(schema: str) -> str:
    return f"sds_{schema.lower()}"


@cache
def schema_table(schema: str) -> Table:
    """The table of a standard's payloads: a column per field, nested ones joined by two underscores."""
    fields = [
        Column(
            field.name, field.type, f"the payload's {field.name.replace('__', '.')}", unit=unit_of(schema, field.name)
        )
        for field in decoder(schema).schema
    ]
    moment = MOMENTS.get(schema)
    moments = [Column(moment[1], TIMESTAMP, f"{moment[0]} as a time", unit="µs, UTC")] if moment else []
    key = "subject" if schema in KEY_FIELDS else "publish_id"
    return Table(
        name=table_name(schema),
        doc=f"Every {schema} record once, a column for each field of the standard.",
        mode="keyed",
        columns=(*_COMMON, *moments, *fields, bucket_column()),
        partition_by=(BUCKET,),
        key=key,
        identity=("record_id",),
        span="published_at",
        sort_by=(key, "published_at"),
        statistics=("subject", "published_at", "received_at", *(column.name for column in moments)),
        plain=("record_id", "publish_id"),
        named=False,
        arrival=_ARRIVAL,
    )


def examine(records: pa.Table) -> Examined:
    """Judge and decode records by their bytes, each as a node of the network its topic names does."""
    raw, topic = _whole(records["raw"]), _whole(records["topic"])
    received_at = _whole(records["received_at"]).cast(pa.int64())
    found = [
        (rows, judged(raw.take(rows), topic.take(rows), received_at.take(rows), Context(network=name)))
        for name, rows in _networks(topic)
    ]
    outcome = _put_together([(rows, part.outcome) for rows, part in found], len(raw))
    reason = _put_together([(rows, part.reason) for rows, part in found], len(raw))
    parts = [part for rows, each in found for part in _parts(rows, each)]
    return Examined(outcome, reason, dict(_tables(raw, parts)))


def _networks(topic: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """The rows of each network that occurs; one without rows if there are none."""
    names = pc.struct_field(pc.extract_regex(topic, rf"^{TOPIC_PREFIX}/(?P<network>[^/]+)/[^/]+$"), "network")
    names = pc.fill_null(names, "")  # no such network: what came on a topic of another form is refused for it
    for name in pc.unique(names).to_pylist() or [""]:
        yield name, pc.indices_nonzero(pc.equal(names, name)).cast(pa.int64())


def _put_together(parts: list[tuple[pa.Array, pa.Array]], count: int) -> pa.Array:
    order = np.empty(count, np.int64)
    order[np.concatenate([np.asarray(rows) for rows, _ in parts])] = np.arange(count)
    return pa.concat_arrays([values for _, values in parts]).take(pa.array(order))


def _parts(rows: pa.Array, found: Judged) -> Iterator[SchemaRows]:
    for part in found.parts:
        yield msgspec.structs.replace(part, rows=np.asarray(rows)[part.rows])


def _tables(raw: pa.Array, parts: list[SchemaRows]) -> Iterator[tuple[str, pa.Table]]:
    if not parts:
        yield MESSAGES.name, _messages(raw, np.zeros(0, np.int64), [])
        return
    yield (
        MESSAGES.name,
        _messages(raw, np.concatenate([part.rows for part in parts]), [p.schema for p in parts for _ in p.rows]),
    )
    for schema in sorted({part.schema for part in parts}):
        yield table_name(schema), pa.concat_tables([_payloads(raw, part) for part in parts if part.schema == schema])


def _messages(raw: pa.Array, rows: npt.NDArray[np.int64], schemas: list[str]) -> pa.Table:
    fields = message_columns(raw.take(pa.array(rows))).batch
    payloads = fields.column("payload")
    return pa.table(
        {
            RECORD: pa.array(rows),
            "schema": pa.array(schemas, pa.string()),
            "ttl": fields.column("ttl").cast(pa.int64()),
            "payload_bytes": pc.binary_length(payloads).cast(pa.int64()),
            "publish_id": fields.column("message_id"),
        }
    )


def _payloads(raw: pa.Array, part: SchemaRows) -> pa.Table:
    messages = message_columns(raw.take(pa.array(part.rows))).batch
    found = pa.Table.from_batches([part.columns.batch])
    moment = MOMENTS.get(part.schema)
    if moment is not None:
        found = found.append_column(moment[1], moments_of(_whole(found[moment[0]])))
    return found.append_column("publish_id", messages.column("message_id")).append_column(RECORD, pa.array(part.rows))


def moments_of(texts: pa.Array) -> pa.Array:
    """Times of ISO 8601 texts (UTC unless they say otherwise), null where a text is none.

    Arrow reads more than that, so it is given only texts that both ways read alike: a row must not depend on whether a
    neighbour sends the batch the slow way.
    """
    if pc.all(pc.match_substring_regex(texts, _PLAIN), min_count=0).as_py():
        try:
            return pc.cast(pc.utf8_rtrim(texts, "Z"), pa.timestamp("us")).cast(TIMESTAMP)
        except pa.ArrowInvalid:  # such as the 30th of February
            pass
    return pa.array([_moment(text) for text in texts.to_pylist()], TIMESTAMP)


def _moment(text: Any) -> datetime.datetime | None:
    """The time of one text: by date or, as CCSDS also writes, by day of the year."""
    if text is None:
        return None
    ordinal = _ORDINAL.fullmatch(text)
    try:
        if ordinal:
            day = datetime.date(int(ordinal[1]), 1, 1) + datetime.timedelta(int(ordinal[2]) - 1)
            if day.year != int(ordinal[1]):
                return None
            text = f"{day.isoformat()}{ordinal[3]}"
        if not _SECOND.match(text):
            return None
        moment = datetime.datetime.fromisoformat(text)
        return moment.astimezone(datetime.UTC) if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
    except (ValueError, OverflowError):
        return None


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)


def stages(known: Known) -> ProtocolStages:
    """A table for every standard there is; each waits for its first record."""
    return ProtocolStages(
        protocol=PROTOCOL,
        examine=examine,
        keyed=(*(KeyedRule(schema_table(name)) for name in NAMES), KeyedRule(MESSAGES)),
    )
