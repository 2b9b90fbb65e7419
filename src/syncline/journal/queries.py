"""Answers to a RecordQuery, from an index wherever one can help. Knows the tables, opens nothing.

Terms are an access path only: every row they lead to is held against all of the query.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Any, Final

import apsw
from msgspec.structs import replace

from syncline.core import limits
from syncline.core.errors import UsageError
from syncline.core.ports import RecordQuery
from syncline.journal.database import moment
from syncline.journal.names import Filters
from syncline.journal.rows import SELECT, Row, seq_bytes
from syncline.journal.runs import lsns as in_span
from syncline.journal.runs import runs
from syncline.journal.terms import NAME, TERM_BYTES, Where

# SQLite alone would rather read all records in the order of lsn than sort what this index finds. This way it collects
# numbers from the index and visits only the rows it returns.
_BY_TIME: Final = "lsn IN (SELECT lsn FROM records WHERE {})"
_AMONG: Final = "lsn IN (SELECT value FROM carray(?))"
_PAGE: Final = 4_096  # records looked up at once


def plain(connection: apsw.Connection, query: RecordQuery) -> list[Row]:
    """The rows that answer a query that names no term, or that may be read one by one."""
    return _select(connection, query, _limit(query), [], [])


def is_full(query: RecordQuery, rows: list[Row]) -> bool:
    """Whether an answer ends because of its bytes, and not because there were no more."""
    return query.raw_bytes is not None and bool(rows) and raw_bytes(rows) >= query.raw_bytes


def rest_of(query: RecordQuery, rows: list[Row]) -> RecordQuery:
    """The query with as many bytes as are left after these rows."""
    return query if query.raw_bytes is None else replace(query, raw_bytes=query.raw_bytes - raw_bytes(rows))


def raw_bytes(rows: Iterable[Row]) -> int:
    return sum(len(row[-1]) for row in rows if row[-1] is not None)


def by_terms(
    connection: apsw.Connection,
    query: RecordQuery,
    where: Where,
    waiting: list[int],
    indexed: int,
    filters: Filters | None = None,
) -> list[Row]:
    """The rows that answer a query, from runs up to `indexed` and from `waiting` after that."""
    with moment(connection):  # runs come and go
        stored = _stored(connection, query, where, indexed, filters)
        newer = [waiting[::-1] if query.descending else waiting]
        left = _limit(query)
        rows: list[Row] = []
        for lsns in (page for source in ((newer, stored) if query.descending else (stored, newer)) for page in source):
            if left == len(rows) or is_full(query, rows):
                break
            if lsns:
                rest = rest_of(query, rows)
                rows += _select(connection, rest, left - len(rows), [_AMONG], [apsw.carray(array("q", lsns))])
        return rows


def _stored(
    connection: apsw.Connection, query: RecordQuery, where: Where, indexed: int, filters: Filters | None
) -> Iterator[list[int]]:
    """The numbers that the runs give, a page at a time, in the order asked for."""
    found = runs(connection, query.after, query.before)
    excluded = {span: filters.without(span[0][:TERM_BYTES]) for span in where.spans if filters and span[0][:1] == NAME}
    for run in reversed(found) if query.descending else found:
        spans = [span for span in where.spans if run.number not in excluded.get(span, ())]
        some = (
            [lsn for lsn in page if query.after < lsn <= indexed]
            for span in spans
            for page in in_span(connection, run.number, span, descending=where.ordered and query.descending)
        )
        if where.ordered:
            yield from _pages(some)
        else:
            yield from _pages([sorted({lsn for page in some for lsn in page}, reverse=query.descending)])


def _pages(some: Iterable[list[int]]) -> Iterator[list[int]]:
    """The same numbers, so many at a time."""
    page: list[int] = []
    for lsns in some:
        page += lsns
        while len(page) >= _PAGE:
            yield page[:_PAGE]
            page = page[_PAGE:]
    yield page


def _select(
    connection: apsw.Connection,
    query: RecordQuery,
    limit: int,
    terms: list[str],
    bindings: list[Any],
) -> list[Row]:
    where, values = _conditions(query, timed=not terms)
    order = "DESC" if query.descending else "ASC"
    statement = f"{SELECT} WHERE {' AND '.join([*terms, *where])} ORDER BY lsn {order} LIMIT {limit}"
    found = connection.execute(statement, [*bindings, *values])
    return found.fetchall() if query.raw_bytes is None else _up_to(query.raw_bytes, found)


def _up_to(room: int, found: apsw.Cursor) -> list[Row]:
    """Rows until their raw bytes are so many; the rest is not read."""
    rows: list[Row] = []
    for row in found:
        rows.append(row)
        room -= len(row[-1] or b"")
        if room <= 0:
            break
    found.close()
    return rows


def _conditions(query: RecordQuery, *, timed: bool) -> tuple[list[str], list[Any]]:
    """What narrows the answer. `timed`: a span of time is answered by its own index."""
    terms: list[str] = []
    bindings: list[Any] = []

    def add(pairs: Iterable[tuple[str, Any]], form: str = "{}") -> None:
        given = [(term, value) for term, value in pairs if value is not None]
        if given:
            terms.append(form.format(" AND ".join(term for term, _ in given)))
            bindings.extend(value for _, value in given)

    add([("lsn > ?", _lsn(query.after)), ("lsn < ?", None if query.before is None else _lsn(query.before))])
    fields = ("topic", "key", "publisher", "id", "protocol", "kind", "verdict", "reason")
    add((f"{name} = ?", getattr(query, name)) for name in fields)
    seqs = (("seq >= ?", query.seq_from), ("seq <= ?", query.seq_to))
    add((term, None if value is None else seq_bytes(value)) for term, value in seqs)
    span = [("received_at >= ?", query.received_from), ("received_at < ?", query.received_to)]
    add(span, _BY_TIME if timed else "{}")
    return terms, bindings


def _limit(query: RecordQuery) -> int:
    if query.limit < 0:
        raise UsageError("a limit cannot be negative")
    return min(query.limit, limits.JOURNAL_READ_MAX)


def _lsn(value: int) -> int:
    return max(-1, min(value, 2**63 - 1))
