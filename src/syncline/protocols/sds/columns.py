"""Whole Arrow batches of SDS records to typed columns: the messages' own fields, and the payloads' by schema.

No loop runs over rows. Every payload is verified as `rules.py` verifies one; a bad row is null and says what is wrong.
Who is to blame is decided by the rules, and which tables come of it by the lake.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from syncline.core.verdict import Outcome
from syncline.formats.flatbuffers import Fault
from syncline.formats.flatbuffers.columns import ColumnDecoder, Columns
from syncline.protocols.sds.catalogue import NAMES, plain_name, standard
from syncline.protocols.sds.rules import Context, content, quick_verdict
from syncline.protocols.sds.wire import Publish, codec

Mask = npt.NDArray[np.bool_]
MESSAGE_COLUMNS: Final = ("message_id", "timestamp", "ttl", "schema", "payload", "publisher_id", "signature")
CACHED_DECODERS: Final = 128
_HELD_NAMES: Final = {"data": "payload"}  # SDSRecord has another word for it
_TEXTS: Final = pa.array([fault.text or None for fault in Fault], pa.string())


class SchemaRows(msgspec.Struct, frozen=True):
    """The rows of a batch that are of one schema: which they are, their columns, and what is wrong with each."""

    schema: str
    rows: npt.NDArray[np.int64]
    columns: Columns


def payload_columns(
    schema: str, payloads: pa.Array | pa.ChunkedArray, fields: Collection[str] | None = None, *, partial: bool = False
) -> Columns:
    """The payloads of one schema as columns, all or the chosen ones.

    With `partial`, payloads that were verified before are read only where they must be.
    """
    return decoder(plain_name(schema), None if fields is None else tuple(fields), partial=partial).decode(payloads)


def message_columns(raw: pa.Array | pa.ChunkedArray) -> Columns:
    """The fields of messages as records keep them, whether published (SPUB) or from an answer (SREC)."""
    raw = raw.combine_chunks() if isinstance(raw, pa.ChunkedArray) else raw
    raw = raw.cast(pa.binary())
    is_held = np.asarray(pc.fill_null(pc.equal(pc.binary_slice(raw, 8, 12), b"SREC"), False))
    if not is_held.any():
        return _messages(b"SPUB").decode(raw)
    published, held = np.flatnonzero(~is_held), np.flatnonzero(is_held)
    parts = [_messages(b"SPUB").decode(raw.take(published)), _messages(b"SREC").decode(raw.take(held))]
    order = np.argsort(np.concatenate([published, held]))
    table = pa.Table.from_batches([parts[0].batch, parts[1].batch.rename_columns(list(MESSAGE_COLUMNS))])
    batch = table.combine_chunks().take(order).to_batches()
    return Columns(batch[0], np.concatenate([part.faults for part in parts])[order])


def record_columns(raw: pa.Array | pa.ChunkedArray, fields: Collection[str] | None = None) -> list[SchemaRows]:
    """The payloads inside raw records, a part for each known schema that occurs, in the order of their names."""
    messages = message_columns(raw).batch
    schemas = pc.replace_substring_regex(messages.column("schema"), r"\.fbs$", "")
    found = []
    for name in sorted(text for text in pc.unique(schemas).drop_null().to_pylist() if text in NAMES):
        rows = np.flatnonzero(np.asarray(pc.equal(schemas, name).fill_null(False)))
        payloads = messages.column("payload").take(pa.array(rows))
        found.append(SchemaRows(name, rows, payload_columns(name, payloads, fields)))
    return found


class Judged(msgspec.Struct, frozen=True):
    """The content verdict on each raw record (null where there are no bytes), and the payloads of the accepted ones."""

    outcome: pa.Array
    reason: pa.Array
    parts: list[SchemaRows]


def judged(raw: pa.Array, topic: pa.Array, received_at: pa.Array, context: Context) -> Judged:
    """Judge whole batches as `rules.content` judges one, with the time of arrival (µs since 1970) for now.

    Frames and payloads are checked by columns, signatures one by one; what is not plainly good is given to the rules
    themselves, so that each refusal has exactly their reason.
    """
    messages, parts = message_columns(raw).batch, record_columns(raw)
    good = np.zeros(len(raw), np.bool_)
    for part in parts:
        good[part.rows[part.columns.faults == 0]] = True
    outcomes, reasons_ = _verdicts(raw, topic, received_at, context, messages, good)
    accepted = np.asarray(pc.fill_null(pc.equal(outcomes, Outcome.ACCEPT.value), False))
    return Judged(outcomes, reasons_, [kept for part in parts if (kept := _only(part, accepted)) is not None])


def _verdicts(
    raw: pa.Array, topic: pa.Array, received_at: pa.Array, context: Context, messages: pa.RecordBatch, good: Mask
) -> tuple[pa.Array, pa.Array]:
    outcomes: list[str | None] = []
    reasons_: list[str | None] = []
    names = messages.schema.names
    absent = {field.name: b"" if pa.types.is_binary(field.type) else "" for field in messages.schema}
    filled = [
        messages.column(name) if name == "ttl" else messages.column(name).fill_null(absent[name]) for name in names
    ]
    rows = zip(*(column.to_pylist() for column in filled), strict=True)
    columns = (raw.to_pylist(), topic.to_pylist(), received_at.to_pylist(), good.tolist(), rows)
    for data, place, now, is_good, fields in zip(*columns, strict=True):
        if data is None:
            outcomes.append(None)
            reasons_.append(None)
            continue
        message = Publish(**dict(zip(names, fields, strict=True))) if is_good else None
        verdict = None if message is None else quick_verdict(message, data, place, now, context)
        verdict = verdict or content(data, place, now, context).verdict
        outcomes.append(verdict.outcome.value)
        reasons_.append(verdict.reason.value if verdict.reason else None)
    return pa.array(outcomes, pa.string()), pa.array(reasons_, pa.string())


def _only(part: SchemaRows, accepted: Mask) -> SchemaRows | None:
    chosen = np.flatnonzero(accepted[part.rows])
    if not len(chosen):
        return None
    if len(chosen) == len(part.rows):
        return part
    columns = Columns(part.columns.batch.take(pa.array(chosen)), part.columns.faults[chosen])
    return SchemaRows(part.schema, part.rows[chosen], columns)


def reasons(faults: npt.NDArray[np.uint8]) -> pa.Array:
    """What is wrong with each row, in words; null where nothing is."""
    return _TEXTS.take(pa.array(faults))


@lru_cache(CACHED_DECODERS)
def decoder(schema: str, fields: tuple[str, ...] | None = None, *, partial: bool = False) -> ColumnDecoder:
    """The decoder of a standard's payloads; made once."""
    return ColumnDecoder(standard(schema).schema, fields, partial=partial)


@lru_cache(CACHED_DECODERS)
def _messages(identifier: bytes) -> ColumnDecoder:
    back = {name: old for old, name in _HELD_NAMES.items()} if identifier == b"SREC" else {}
    return ColumnDecoder(codec(identifier)[0].schema, [back.get(name, name) for name in MESSAGE_COLUMNS])
