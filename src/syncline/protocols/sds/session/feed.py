"""A subscription being served: the newest matching records of the past if asked for, then every one that comes.

A feed is a cursor over the journal, so a slow reader costs nothing but its own lateness, and between past and present
there is neither a gap nor a repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from syncline.core import limits
from syncline.core.errors import DecodeError
from syncline.core.limits import SECOND
from syncline.core.ports import RecordQuery
from syncline.core.record import Record
from syncline.core.verdict import Reason
from syncline.protocols.sds.catalogue import plain_name, standard
from syncline.protocols.sds.filters import Condition, compiled
from syncline.protocols.sds.rules import PROTOCOL, published, topic_of
from syncline.protocols.sds.session.scan import rows_of
from syncline.protocols.sds.wire import Subscribe, encode


class Feed:
    """Implements `Scan` for one SDSSubscribe, for ever. Raises DecodeError at once for one that cannot be served.

    `start` is the newest record there was when the subscription came: what is later is the present. `wall` tells the
    time of day, because what has outlived its ttl is not delivered.
    """

    is_live = True

    def __init__(self, subscribe: Subscribe, *, network: str, start: int, wall: Callable[[], int]) -> None:
        self.subscribe = subscribe
        self.request_id = subscribe.subscription_id
        if not subscribe.schemas:
            raise DecodeError("a subscription names at least one schema", reason=Reason.INVALID_FIELD, about="schemas")
        names = {plain_name(name) for name in subscribe.schemas}
        self._conditions: dict[str, tuple[str, Condition]] = {
            topic_of(network, name): (name, compiled(subscribe.filter, standard(name).schema)) for name in names
        }
        self._wall = wall
        self._cursor = start
        self._before = start + 1
        self._looked = 0
        wanted = min(subscribe.historical_limit or limits.SDS_PAGE_DEFAULT, limits.SDS_PAGE_RECORDS)
        self._history_left = wanted if subscribe.include_historical else 0

    def wants(self) -> RecordQuery:
        query = RecordQuery(
            protocol=PROTOCOL,
            topic=next(iter(self._conditions)) if len(self._conditions) == 1 else None,
            verdict="accept",
            limit=limits.SDS_SCAN_PAGE,
            raw_bytes=limits.SDS_SCAN_BYTES,
        )
        if self._history_left:
            return msgspec.structs.replace(query, before=self._before, descending=True)
        return msgspec.structs.replace(query, after=self._cursor)

    def feed(self, records: Sequence[Record], now: float) -> list[bytes]:
        if self._history_left:
            self._look_back(records)
            return []
        if records:
            self._cursor = records[-1].lsn
        return [frame for _, frame in self._matching(records)]

    def _look_back(self, records: Sequence[Record]) -> None:
        """Newest first, until there is enough: from there on everything is delivered in its order, as it happened."""
        is_more = self.wants().cuts_off(records)
        found = [lsn for lsn, _ in self._matching(records)][: self._history_left]
        if found:
            self._cursor = found[-1] - 1
        self._history_left -= len(found)
        self._looked += len(records)
        if is_more and self._looked < limits.SDS_SCAN_RECORDS:
            self._before = records[-1].lsn
        else:
            self._history_left = 0

    def _matching(self, records: Sequence[Record]) -> list[tuple[int, bytes]]:
        """The numbers and frames of the records that match, in the order of the records."""
        matching: set[int] = set()
        for topic, (name, condition) in self._conditions.items():
            mine = [record for record in records if record.topic == topic and record.raw is not None]
            rows = rows_of(name, mine, condition.columns)
            matching |= {record.lsn for record, row in zip(mine, rows, strict=True) if condition.holds(row)}
        frames = [(record.lsn, self._frame(record)) for record in records if record.lsn in matching]
        return [(lsn, frame) for lsn, frame in frames if frame is not None]

    def _frame(self, record: Record) -> bytes | None:
        assert record.raw is not None
        message = published(record.raw)
        is_over = message.ttl and record.published_at is not None
        if is_over and (record.published_at or 0) + message.ttl * SECOND <= self._wall():
            return None
        return record.raw if record.kind == "publish" else encode(message)
