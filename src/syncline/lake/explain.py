"""The path of one record through the lake: which sealed file it came in, what its bytes say when they are judged again, and
which rows of which tables came of it. What the fields of a message mean, protocols say; how it is printed, the command line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa

from syncline.core.errors import NotFoundError, UsageError
from syncline.core.record import Record, RecordName
from syncline.core.verdict import Outcome, Reason, Verdict
from syncline.formats.records import RECORD_SCHEMA, from_arrow, to_arrow
from syncline.lake.blobs import with_raw
from syncline.lake.deltas import open_delta
from syncline.lake.query import Queries
from syncline.lake.roots import Lake
from syncline.lake.stages import ProtocolStages, Stages
from syncline.lake.tables import AUDIT, RECORDS, REJECTED, SEGMENTS, Table

_ID: Final = re.compile(r"[0-9a-f]{6,1024}")
_COLUMNS: Final = ", ".join(f'"{name}"' for name in RECORD_SCHEMA.names)
_COPIES_SHOWN: Final = 100


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """All the lake knows of a record."""

    record: Record
    segment: str  # path of the sealed file; empty if it has not landed
    lake_verdict: Verdict | None  # what the bytes say now; None: no bytes, or nobody here can tell
    copies: list[str]  # other arrivals of the same message, by name
    rows: dict[str, list[dict[str, Any]]]  # by table


def explain(lake: Lake, queries: Queries, stages: Stages, text: str) -> Explanation:
    """The path of the record with this name (node/epoch/lsn), or whose id, in hex, starts so and no other does.

    Raises NotFoundError if nothing landed under that name, and UsageError if several messages did.
    """
    record = find(queries, text)
    own = stages.get(record.protocol)
    return Explanation(
        record=record,
        segment=_segment(queries, record.name),
        lake_verdict=judged_again(lake, own, record),
        copies=_copies(queries, record),
        rows={name: rows for name, rows in _rows(lake, queries, own, record) if rows},
    )


def find(queries: Queries, text: str) -> Record:
    """The one record meant. Of several arrivals of one message, the accepted one that came first."""
    if "/" in text:
        name = RecordName.parse(text)
        found = _records(queries, "node = ? AND epoch = ? AND lsn = ?", [name.node, name.epoch, name.lsn])
    elif _ID.fullmatch(text.lower()):
        found = _records(queries, "starts_with(lower(hex(id)), ?)", [text.lower()])
    else:
        raise UsageError(
            f"{text[:80]!r} names no record", hint="write node/epoch/lsn, or six or more hex digits of its id"
        )
    if not found:
        raise NotFoundError("no such record has landed", hint="run `syncline lake run`", about=text)
    ids = sorted({record.id.hex() for record in found})
    if len(ids) > 1:
        raise UsageError(f"{len(ids)} ids start so: {', '.join(ids[:3])} …", hint="give more digits")
    return min(found, key=lambda record: (not record.accepted, record.raw is None, record.received_at, record.name))


def judged_again(lake: Lake, stages: ProtocolStages | None, record: Record) -> Verdict | None:
    """What the record's bytes say by the rules as they are now."""
    if stages is None:
        return None
    whole, _ = with_raw(pa.Table.from_batches([to_arrow([record])]), lake.blobs)
    examined = stages.examine(whole)
    outcome, reason = examined.outcome[0].as_py(), examined.reason[0].as_py()
    return None if outcome is None else Verdict(Outcome(outcome), None if reason is None else Reason(reason))


def _records(queries: Queries, where: str, values: list[Any]) -> list[Record]:
    answer = queries.ask(f"SELECT {_COLUMNS} FROM {RECORDS.name} WHERE {where} LIMIT 1000", values)  # noqa: S608
    return [record for batch in answer.rows.cast(RECORD_SCHEMA).to_batches() for record in from_arrow(batch)]


def _segment(queries: Queries, name: RecordName) -> str:
    """Ranges of a journal do not overlap, so the range and the file's partition tell which it is."""
    sql = f"""
        SELECT s.path FROM {SEGMENTS.name} s JOIN {RECORDS.name} r
          ON s.node = r.node AND s.epoch = r.epoch AND s.protocol = r.protocol AND s.day = r.date
         AND r.lsn BETWEEN s.first_lsn AND s.last_lsn
        WHERE r.node = ? AND r.epoch = ? AND r.lsn = ?
    """  # noqa: S608
    rows = queries.ask(sql, [name.node, name.epoch, name.lsn]).rows.to_pylist()
    return str(rows[0]["path"]) if rows else ""


def _copies(queries: Queries, record: Record) -> list[str]:
    found = _records(queries, "protocol = ? AND id = ?", [record.protocol, record.id])
    return sorted(str(each.name) for each in found if each.name != record.name)[:_COPIES_SHOWN]


def _rows(
    lake: Lake, queries: Queries, stages: ProtocolStages | None, record: Record
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for table in (REJECTED, AUDIT):
        yield table.name, _of_arrival(queries, table, record)
    if stages is None:
        return
    for rule in stages.keyed:
        if not rule.table.named and open_delta(lake.table(rule.table.name)) is None:
            continue  # a schema that never occurred
        rows = _of_message(queries, rule.table, record)
        yield rule.table.name, rows
        for state in stages.states:
            if state.source == rule.table.name and rows:
                keys = sorted({row[state.on or rule.table.key] for row in rows})
                yield state.table.name, _where(queries, state.table, f"{state.table.key} IN ?", [keys], stages.protocol)


def _of_message(queries: Queries, table: Table, record: Record) -> list[dict[str, Any]]:
    """Rows of the message, whichever node's copy of it was kept."""
    column = next((each.name for each in table.columns if (each.origin or each.name) == "id"), None)
    return (
        _of_arrival(queries, table, record) if column is None else _where(queries, table, f"{column} = ?", [record.id])
    )


def _of_arrival(queries: Queries, table: Table, record: Record) -> list[dict[str, Any]]:
    return _where(queries, table, "node = ? AND epoch = ? AND lsn = ?", [record.node, record.epoch, record.lsn])


def _where(
    queries: Queries, table: Table, where: str, values: list[Any], protocol: str | None = None
) -> list[dict[str, Any]]:
    if protocol is not None and "protocol" in table.partition_by:
        where, values = f"{where} AND protocol = ?", [*values, protocol]
    found: list[dict[str, Any]] = queries.ask(
        f"SELECT * FROM {table.name} WHERE {where} LIMIT 1000",  # noqa: S608
        values,
    ).rows.to_pylist()
    return found
