"""A query being answered: look at records page by page, keep what matches, order it, and send one page.

Bounded by a deadline and by how many records it may look at; beyond either the answer is QUERY_TIMEOUT.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from syncline.core import limits
from syncline.core.errors import DecodeError
from syncline.core.ports import RecordQuery
from syncline.core.record import Record
from syncline.core.verdict import Reason
from syncline.protocols.sds.catalogue import plain_name, standard
from syncline.protocols.sds.epochs import EPOCH_FIELDS, place
from syncline.protocols.sds.filters import column_of, compiled, field_at, sort_key
from syncline.protocols.sds.rules import KEY_FIELDS, PROTOCOL, key_text, topic_of
from syncline.protocols.sds.session.actions import refusal
from syncline.protocols.sds.session.scan import held_of, rows_of, size_of
from syncline.protocols.sds.wire import ErrorCode, Held, Query, QueryResponse, encode

_ORDERS: Final = {"": False, "asc": False, "desc": True}


class QueryScan:
    """Implements `Scan` for one SDSQuery. Raises DecodeError at once for a query that cannot be answered."""

    is_live = False

    def __init__(self, query: Query, *, network: str, deadline: float) -> None:
        self.query = query
        self.request_id = query.query_id
        self._schema = plain_name(query.schema)
        self._topic = topic_of(network, self._schema)
        self._deadline = deadline
        schema = standard(self._schema).schema
        self._condition = compiled(query.filter, schema)
        self._key = sort_key(schema, query.order_by) if query.order_by else None
        self._needed = self._condition.columns | ({column_of(query.order_by)} if query.order_by else set())
        self._index, self._span = self._indexed(), self._epochs()
        if query.order not in _ORDERS:
            raise DecodeError(f"there is no order {query.order[:80]!r}", reason=Reason.INVALID_FIELD, about="order")
        if query.offset > limits.SDS_OFFSET_MAX:
            raise DecodeError(
                f"an offset is at most {limits.SDS_OFFSET_MAX}", reason=Reason.INVALID_FIELD, about="offset"
            )
        self._limit = min(query.limit or limits.SDS_PAGE_DEFAULT, limits.SDS_PAGE_RECORDS)
        self._cursor = 0
        self._looked = 0
        self._matches: dict[bytes, Any] = {}  # id → what it is ordered by
        self._page: list[bytes] | None = None  # ids still to be fetched, last first; None while looking
        self._records: list[Held] = []
        self._bytes = 0
        self._done = False

    def _indexed(self) -> str | None:
        """The key under which the journal finds all that can match, if the filter names one."""
        path = KEY_FIELDS.get(self._schema, "")
        value = self._condition.equal.get(path)
        if value is None or value == field_at(standard(self._schema).schema, path).default:
            return None  # a record that leaves the field out has no key
        return key_text(value) or None

    def _epochs(self) -> tuple[int | None, int | None]:
        """Between which epochs all that can match lies, as the journal indexes them."""
        low, high = self._condition.bounds.get(EPOCH_FIELDS.get(self._schema, ""), (None, None))
        return place(low), place(high)

    def wants(self) -> RecordQuery | None:
        if self._done:
            return None
        if self._page is None:
            return RecordQuery(
                protocol=PROTOCOL,
                topic=self._topic,
                key=self._index,
                seq_from=self._span[0],
                seq_to=self._span[1],
                verdict="accept",
                after=self._cursor,
                limit=limits.SDS_SCAN_PAGE,
            )
        return RecordQuery(protocol=PROTOCOL, id=self._page[-1], verdict="accept", limit=1)

    def feed(self, records: Sequence[Record], now: float) -> list[bytes]:
        if now > self._deadline:
            return self._timed_out("the query took too long")
        if self._page is None:
            return self._look(records)
        self._page.pop()
        self._records += [held_of(each, with_signature=self.query.include_signatures) for each in records[:1]]
        self._bytes += size_of(self._records[-1]) if records else 0
        is_full = self._bytes >= limits.SDS_PAGE_BYTES
        return self._respond() if is_full or not self._page else []

    def _look(self, records: Sequence[Record]) -> list[bytes]:
        fresh = [record for record in records if record.id not in self._matches and record.raw is not None]
        for record, row in zip(fresh, rows_of(self._schema, fresh, frozenset(self._needed)), strict=True):
            if self._condition.holds(row):
                self._matches[record.id] = self._key(row) if self._key else None
        self._looked += len(records)
        if self._looked > limits.SDS_SCAN_RECORDS:
            return self._timed_out(f"more than {limits.SDS_SCAN_RECORDS} records to look at")
        if len(records) == limits.SDS_SCAN_PAGE:
            self._cursor = records[-1].lsn
            return []
        self._page = self._ordered()[self.query.offset :][: self._limit][::-1]
        return [] if self._page else self._respond()

    def _ordered(self) -> list[bytes]:
        """Ids in the order asked for, ties by id; in the order received where nothing is asked."""
        if self._key is None:
            ids = list(self._matches)
            return ids[::-1] if _ORDERS[self.query.order] else ids
        return sorted(sorted(self._matches), key=self._matches.__getitem__, reverse=_ORDERS[self.query.order])

    def _respond(self) -> list[bytes]:
        self._done = True
        left = self._page or []
        next_offset = min(self.query.offset + self._limit, len(self._matches)) - len(left)
        has_more = next_offset < len(self._matches) and bool(self._records)
        response = QueryResponse(
            query_id=self.query.query_id,
            total_count=len(self._matches),
            returned_count=len(self._records),
            records=tuple(self._records),
            has_more=has_more,
            next_offset=next_offset if has_more else 0,
        )
        return [encode(response)]

    def _timed_out(self, why: str) -> list[bytes]:
        self._done = True
        return [refusal(ErrorCode.QUERY_TIMEOUT, why, self.request_id).frame]
