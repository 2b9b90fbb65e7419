"""A query being answered: look at records page by page, keep what matches, order it, and send one page.

The journal is looked through first, then the archive for what the journal no longer keeps. Bounded by a deadline and by
how many records it may look at; beyond either the answer is QUERY_TIMEOUT.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

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
from syncline.protocols.sds.session.scan import Older, held_of, rows_of, size_of
from syncline.protocols.sds.wire import ErrorCode, Held, Query, QueryResponse, encode

_ORDERS: Final = {"": False, "asc": False, "desc": True}


class QueryScan:
    """Implements `Scan` for one SDSQuery. Raises DecodeError at once for a query that cannot be answered."""

    is_live = False

    def __init__(self, query: Query, *, network: str, deadline: float, archived: int | None = None) -> None:
        """`archived`: what was received before this time may be in the archive alone; None if there is no archive."""
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
        self._archived = archived
        self._place: Literal["journal", "archive"] = "journal"  # where it is being looked
        self._cursor = 0
        self._looked = 0
        self._matches: dict[bytes, Any] = {}  # id → what it is ordered by
        self._older: dict[bytes, int] = {}  # id → size of those that the archive alone has
        self._page: list[bytes] | None = None  # ids still to be fetched, last first; None while looking
        self._fetched: dict[bytes, Held | None] = {}  # from the archive, all at once; None until they came
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

    def wants(self) -> RecordQuery | Older | None:
        if self._done:
            return None
        if self._page is None:
            return self._candidates() if self._place == "journal" else Older(self._candidates())
        if self._place == "archive":
            return Older(self._candidates())
        return RecordQuery(protocol=PROTOCOL, id=self._page[-1], verdict="accept", limit=1)

    def _candidates(self) -> RecordQuery:
        """All that can match."""
        in_archive = self._place == "archive"
        return RecordQuery(
            protocol=PROTOCOL,
            topic=self._topic,
            key=self._index,
            seq_from=self._span[0],
            seq_to=self._span[1],
            received_to=self._archived if in_archive else None,
            verdict="accept",
            after=0 if in_archive else self._cursor,
            limit=limits.SDS_SCAN_RECORDS + 1 if in_archive else limits.SDS_SCAN_PAGE,
            raw_bytes=None if in_archive else limits.SDS_SCAN_BYTES,
        )

    def feed(self, records: Sequence[Record], now: float) -> list[bytes]:
        if now > self._deadline:
            return self._timed_out("the query took too long")
        if self._page is None:
            return self._look(records)
        if self._place == "archive":
            self._fetched |= {each.id: self._held(each) for each in records if each.id in self._fetched}
            if not records:
                self._place = "journal"
        else:
            self._page.pop()
            self._take(self._held(records[0]) if records else None)
        return self._collect()

    def _held(self, record: Record) -> Held:
        return held_of(record, with_signature=self.query.include_signatures)

    def _look(self, records: Sequence[Record]) -> list[bytes]:
        fresh = [record for record in records if record.id not in self._matches and record.raw is not None]
        for record, row in zip(fresh, rows_of(self._schema, fresh, frozenset(self._needed)), strict=True):
            if self._condition.holds(row):
                self._matches[record.id] = self._key(row) if self._key else record.received_at
                if self._place == "archive":
                    self._older[record.id] = size_of(held_of(record))
        self._looked += len(records)
        if self._looked > limits.SDS_SCAN_RECORDS:
            return self._timed_out(f"more than {limits.SDS_SCAN_RECORDS} records to look at")
        if self._place == "journal" and self._candidates().cuts_off(records):
            self._cursor = records[-1].lsn
            return []
        if self._place == "archive" and records:
            return []
        if self._place == "journal" and self._archived is not None:
            self._place = "archive"
            return []
        return self._choose()

    def _choose(self) -> list[bytes]:
        """Everything was looked at: these records are the answer. Those in the archive are fetched first."""
        chosen = self._ordered()[self.query.offset :][: self._limit]
        self._page = chosen[::-1]
        size = 0
        for each in chosen:
            if each in self._older and size < limits.SDS_PAGE_BYTES:
                size += self._older[each]
                self._fetched[each] = None
        self._place = "archive" if self._fetched else "journal"
        return [] if self._fetched else self._collect()

    def _collect(self) -> list[bytes]:
        """Take what is at hand, until a record must be read or the answer is full."""
        assert self._page is not None
        while self._place == "journal" and self._page and self._bytes < limits.SDS_PAGE_BYTES:
            if self._page[-1] not in self._older:
                return []
            self._take(self._fetched.pop(self._page.pop()))
        return [] if self._place == "archive" else self._respond()

    def _take(self, record: Held | None) -> None:
        if record is not None:  # else retention was quicker
            self._records.append(record)
            self._bytes += size_of(record)

    def _ordered(self) -> list[bytes]:
        """Ids in the order asked for, ties by id; in the order received where nothing is asked."""
        falling = _ORDERS[self.query.order]
        if self._key is None:
            ids = sorted(self._matches, key=self._matches.__getitem__)
            return ids[::-1] if falling else ids
        return sorted(sorted(self._matches), key=self._matches.__getitem__, reverse=falling)

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
