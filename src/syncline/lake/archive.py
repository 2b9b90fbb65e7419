"""The lake as a node's archive: its own records that the journal no longer keeps, from the table `records`.

Reads snapshots through DuckDB, so neither Spark nor the pipeline is touched; what was not landed yet is not seen.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread

from syncline.core import limits
from syncline.core.ports import RecordQuery
from syncline.core.record import Record
from syncline.formats.records import RECORD_SCHEMA, from_arrow
from syncline.lake.roots import Lake

if TYPE_CHECKING:
    from syncline.lake.query import Queries

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EQUAL: Final = ("protocol", "topic", "kind", "key", "publisher", "id", "verdict", "reason")
Place = tuple[str, int]  # epoch and lsn


class LakeArchive:
    """Implements `core.ports.Archive` for one node. Opens the lake when it is first asked."""

    def __init__(self, lake: Lake, node: str) -> None:
        self._lake = lake
        self._node = node
        self._lock = threading.Lock()
        self._queries: Queries | None = None

    async def read(self, query: RecordQuery) -> AsyncIterator[Record]:
        """Records in the order of epoch and lsn. Raises UnavailableError when the lake takes too long."""
        left, last = query.limit, None
        while left > 0:
            page, more = await anyio.to_thread.run_sync(self._page, query, last, min(left, limits.ARCHIVE_PAGE))
            for record in page:
                yield record
            if not more or not page:
                return
            left, last = left - len(page), (page[-1].epoch, page[-1].lsn)

    def close(self) -> None:
        with self._lock:
            if self._queries is not None:
                self._queries.close()

    def _page(self, query: RecordQuery, last: Place | None, limit: int) -> tuple[list[Record], bool]:
        """The records after the last one read, and whether there may be more."""
        terms, values = _conditions(query, last)
        columns = ", ".join(f'"{name}"' for name in RECORD_SCHEMA.names)
        order = "DESC" if query.descending else "ASC"
        sql = (
            f"SELECT {columns} FROM records WHERE {' AND '.join(['node = ?', *terms])} "  # noqa: S608
            f"ORDER BY epoch {order}, lsn {order} LIMIT {limit}"
        )
        answer = self._open().ask(sql, [self._node, *values])
        records = [record for batch in answer.rows.cast(RECORD_SCHEMA).to_batches() for record in from_arrow(batch)]
        return records, answer.truncated or len(records) == limit

    def _open(self) -> Queries:
        from syncline.lake.query import Queries, QueryLimits
        from syncline.lake.tables import RECORDS

        with self._lock:
            if self._queries is None:
                bounds = QueryLimits(seconds=limits.ARCHIVE_SECONDS, rows=limits.ARCHIVE_PAGE)
                self._queries = Queries(self._lake, [RECORDS], bounds)
            return self._queries


def _conditions(query: RecordQuery, last: Place | None) -> tuple[list[str], list[Any]]:
    """What narrows the answer, as SQL and its values."""
    found: list[tuple[str, Any]] = [(f"{name} = ?", getattr(query, name)) for name in _EQUAL]
    found += [("lsn > ?", query.after or None), ("lsn < ?", query.before)]
    found += [("seq >= ?", _decimal(query.seq_from)), ("seq <= ?", _decimal(query.seq_to))]
    for compare, moment in ((">=", query.received_from), ("<", query.received_to)):
        if moment is not None:  # the day chooses the files, the time the rows
            time = _EPOCH + timedelta(microseconds=moment)
            found += [(f"date {compare[0]}= ?", time.date()), (f"received_at {compare} ?", time)]
    terms = [term for term, value in found if value is not None]
    values = [value for _, value in found if value is not None]
    if last is not None:
        terms.append(f"(epoch, lsn) {'<' if query.descending else '>'} (?, ?)")
        values += last
    return terms, values


def _decimal(number: int | None) -> Decimal | None:
    return None if number is None else Decimal(number)
