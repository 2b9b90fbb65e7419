"""A RecordQuery as SQL that an index answers. Knows the tables, opens nothing."""

from __future__ import annotations

from array import array
from typing import Any, Final

import apsw

from syncline.core import limits
from syncline.core.errors import UsageError
from syncline.core.ports import RecordQuery
from syncline.core.record import SEQ_MAX
from syncline.journal.rows import SELECT

# These indexes are not in the order of lsn. Left alone, SQLite would sort whole rows, or read all of them in order;
# this way it collects numbers from the index alone and visits only the rows it returns.
_BY_INDEX: Final = "lsn IN (SELECT lsn FROM records WHERE {})"


def select(query: RecordQuery, accepted: list[int] | None = None) -> tuple[str, list[Any]]:
    """The statement and its bindings. `accepted` are the records that bear the id asked for, if one is."""
    if query.limit < 0:
        raise UsageError("a limit cannot be negative")
    where, bindings = conditions(query, accepted)
    order = "DESC" if query.descending else "ASC"
    limit = min(query.limit, limits.JOURNAL_READ_MAX)
    return f"{SELECT} WHERE {where} ORDER BY lsn {order} LIMIT {limit}", bindings


def conditions(query: RecordQuery, accepted: list[int] | None = None) -> tuple[str, list[Any]]:
    """The narrowing part of the statement alone."""
    terms = ["lsn > ?"]
    bindings: list[Any] = [_lsn(query.after)]

    def add(pairs: list[tuple[str, Any]], form: str = "{}") -> None:
        given = [(term, value) for term, value in pairs if value is not None]
        if given:
            terms.append(form.format(" AND ".join(term for term, _ in given)))
            bindings.extend(value for _, value in given)

    add([("lsn < ?", None if query.before is None else _lsn(query.before)), ("topic = ?", query.topic)])
    add([("key = ? AND key <> ''" if query.key else "key = ?", query.key)])
    seq = [("seq >= ?", _seq(query.seq_from)), ("seq <= ?", _seq(query.seq_to))]
    if query.publisher:
        add([("publisher = ? AND publisher <> ''", query.publisher), *seq], _BY_INDEX)
    else:
        add([("publisher = ?", query.publisher), *seq])
    add([("received_at >= ?", query.received_from), ("received_at < ?", query.received_to)], _BY_INDEX)
    add([("protocol = ?", query.protocol), ("kind = ?", query.kind), ("verdict = ?", query.verdict)])
    add([("id = ?", query.id)])
    if accepted is not None:  # refused ones have an index of their own
        terms.append("(lsn IN (SELECT value FROM carray(?)) OR (verdict <> 'accept' AND id = ?))")
        bindings += [apsw.carray(array("q", accepted)) if accepted else None, query.id]
    return " AND ".join(terms), bindings


def _lsn(value: int) -> int:
    return max(-1, min(value, 2**63 - 1))


def _seq(value: int | None) -> bytes | None:
    if value is None:
        return None
    if not 0 <= value <= SEQ_MAX:
        raise UsageError(f"seq must lie between 0 and {SEQ_MAX}")
    return value.to_bytes(8, "big")
