"""A RecordQuery as SQL that an index answers. Knows the tables, opens nothing."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Any, Final

import apsw

from syncline.core import limits
from syncline.core.errors import UsageError
from syncline.core.ports import RecordQuery
from syncline.journal.rows import COLUMNS, Row, seq_bytes
from syncline.journal.terms import Span

_COLUMNS: Final = ", ".join(f"r.{name}" for name in ("lsn", *COLUMNS))
# An index that is not in the order of lsn: SQLite alone would sort whole rows, or read all of them in order. This way
# it collects numbers from the index and visits only the rows it returns.
_BY_TIME: Final = "r.lsn IN (SELECT lsn FROM records WHERE {})"


class Part:
    """A statement that answers a part of a query; the parts follow one another in the order asked for."""

    def __init__(self, source: str, terms: list[str], bindings: list[Any], order: str = "r.lsn") -> None:
        self._source = source
        self._order = order
        self._terms = terms
        self._bindings = bindings

    def text(self, query: RecordQuery, limit: int) -> tuple[str, list[Any]]:
        where, bindings = _conditions(query, timed=self._source == "records r")
        terms = " AND ".join([*self._terms, *where])
        order = f"{self._order} {'DESC' if query.descending else 'ASC'}"
        statement = f"SELECT {_COLUMNS} FROM {self._source} WHERE {terms} ORDER BY {order} LIMIT {limit}"  # noqa: S608
        return statement, [*self._bindings, *bindings]


def parts(query: RecordQuery, spans: list[Span] | None, waiting: list[int] | None, indexed: int) -> list[Part]:
    """How to answer: by the table of terms as far as it goes, then by the records that `waiting` names.

    If `waiting` is None, the records that the table does not cover are read one by one.
    """
    if spans is None:
        return [Part("records r", [], [])]
    if len(spans) == 1 and spans[0][0] == spans[0][1]:
        stored = Part(
            "terms t CROSS JOIN records r ON r.lsn = t.lsn",
            ["t.term = ?", "t.lsn <= ?", "t.lsn > ?"],
            [spans[0][0], indexed, _lsn(query.after)],
            "t.lsn",
        )
    else:
        within = " OR ".join(["term BETWEEN ? AND ?"] * len(spans)) or "FALSE"
        stored = Part(
            "records r",
            [f"r.lsn IN (SELECT lsn FROM terms WHERE {within})", "r.lsn <= ?"],  # noqa: S608
            [*(bound for span in spans for bound in span), indexed],
        )
    if waiting is None:
        newer = Part("records r", ["r.lsn > ?"], [indexed])
    else:
        numbers = apsw.carray(array("q", waiting)) if waiting else None
        newer = Part("records r", ["r.lsn IN (SELECT value FROM carray(?))"], [numbers])
    return [newer, stored] if query.descending else [stored, newer]


def fetch(connection: apsw.Connection, query: RecordQuery, found: Iterable[Part]) -> list[Row]:
    """The rows that answer a query, whole: every part has committed data only."""
    if query.limit < 0:
        raise UsageError("a limit cannot be negative")
    rows: list[Row] = []
    left = min(query.limit, limits.JOURNAL_READ_MAX)
    for part in found:
        if left > len(rows):
            rows += connection.execute(*part.text(query, left - len(rows))).fetchall()
    return rows


def _conditions(query: RecordQuery, *, timed: bool) -> tuple[list[str], list[Any]]:
    """What narrows the answer. `timed`: a span of time may be answered by its own index."""
    terms: list[str] = []
    bindings: list[Any] = []

    def add(pairs: Iterator[tuple[str, Any]], form: str = "{}") -> None:
        given = [(term, value) for term, value in pairs if value is not None]
        if given:
            terms.append(form.format(" AND ".join(term for term, _ in given)))
            bindings.extend(value for _, value in given)

    add(iter([("r.lsn > ?", _lsn(query.after)), ("r.lsn < ?", None if query.before is None else _lsn(query.before))]))
    add((f"{name} = ?", getattr(query, name)) for name in ("topic", "key", "publisher", "id"))
    add((f"{name} = ?", getattr(query, name)) for name in ("protocol", "kind", "verdict"))
    seqs = (("seq >= ?", query.seq_from), ("seq <= ?", query.seq_to))
    add((term, None if value is None else seq_bytes(value)) for term, value in seqs)
    span = [("received_at >= ?", query.received_from), ("received_at < ?", query.received_to)]
    add(iter(span), _BY_TIME if timed else "{}")
    return terms, bindings


def _lsn(value: int) -> int:
    return max(-1, min(value, 2**63 - 1))
