"""Records the node has taken, as programs see them, and following them as they come."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import anyio.to_thread
import msgspec

from syncline.core import limits
from syncline.core.ports import Receipt, RecordQuery, RecordReader
from syncline.core.record import Record
from syncline.networks.signal import Signal
from syncline.protocols.sds.catalogue import plain_name, standard
from syncline.protocols.sds.filters import Condition
from syncline.protocols.sds.rules import PROTOCOL, published
from syncline.protocols.sds.session.scan import rows_of
from syncline.protocols.sds.wire import Publish


class Taken(msgspec.Struct, frozen=True):
    """An accepted record with its message and the fields of its payload that are present."""

    record: Record
    message: Publish
    fields: dict[str, Any]

    @classmethod
    def of(cls, record: Record) -> Taken:
        assert record.raw is not None
        message = published(record.raw)
        return cls(record, message, standard(message.schema).reader.decode(message.payload))


class News:
    """Tells followers that records were committed. Holds the newest lsn of this protocol."""

    def __init__(self, records: RecordReader) -> None:
        self._records = records
        self._signal = Signal()
        found = records.read(RecordQuery(protocol=PROTOCOL, descending=True, limit=1))
        self.newest = found[0].lsn if found else 0

    def tell(self, receipts: Sequence[Receipt]) -> None:
        """Say what was committed."""
        lsns = [receipt.record.lsn for receipt in receipts if receipt.record is not None]
        if lsns and max(lsns) > self.newest:
            self.newest = max(lsns)
            self._signal.set()

    async def after(self, lsn: int) -> None:
        """Return once there is something newer than `lsn`."""
        while self.newest <= lsn:
            await self._signal.wait()

    async def read(self, query: RecordQuery) -> list[Record]:
        """Records of the journal, read beside the event loop."""
        return await anyio.to_thread.run_sync(self._records.read, query)


class Following:
    """Accepted records of a topic that match a condition, in order, each once, for ever. Holds nothing open."""

    def __init__(self, news: News, topic: str, condition: Condition, after: int) -> None:
        self._news = news
        self._topic = topic
        self._schema = plain_name(topic.rpartition("/")[2])
        self._condition = condition
        self._after = after
        self._ready: deque[Record] = deque()

    def __aiter__(self) -> Following:
        return self

    async def __anext__(self) -> Taken:
        while not self._ready:
            await self._more()
        return Taken.of(self._ready.popleft())

    async def _more(self) -> None:
        seen = self._news.newest
        query = RecordQuery(
            protocol=PROTOCOL,
            topic=self._topic,
            verdict="accept",
            after=self._after,
            limit=limits.SDS_SCAN_PAGE,
            raw_bytes=limits.SDS_SCAN_BYTES,
        )
        records = await self._news.read(query)
        rows = await anyio.to_thread.run_sync(rows_of, self._schema, records, self._condition.columns)
        self._ready += [record for record, row in zip(records, rows, strict=True) if self._condition.holds(row)]
        self._after = max([self._after, *(record.lsn for record in records[-1:])])
        if not query.cuts_off(records):
            self._after = max(self._after, seen)  # nothing of ours lies between
            if not self._ready:
                await self._news.after(self._after)
