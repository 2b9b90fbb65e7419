"""Delivery: committed records to whoever follows them, in order, without loss and without a queue.

A follower is a cursor over the journal, so a slow one costs nothing but its own lateness, and what it has seen is what is
on disk. Fan-out inside a protocol (to sockets, to peers) is that protocol's service.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import anyio.to_thread
import msgspec

from syncline.core.limits import DELIVERY_BATCH
from syncline.core.ports import RecordQuery
from syncline.core.record import Record
from syncline.journal import Journal


class Deliveries:
    """Followers of one journal.

    Guarantee: each follower gets every committed record that matches its query exactly once, in lsn order.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.followers = 0

    async def follow(self, query: RecordQuery) -> AsyncIterator[Sequence[Record]]:
        """Batches of matching records after `query.after`, for ever; no batch is empty."""
        cursor, limit = query.after, min(query.limit, DELIVERY_BATCH)
        self.followers += 1
        try:
            while True:
                step = msgspec.structs.replace(query, after=cursor, before=self._journal.newest() + 1, limit=limit)
                found, cursor = await anyio.to_thread.run_sync(self._journal.page, step)
                if found:
                    yield found
                else:
                    await self._journal.wait(cursor)
        finally:
            self.followers -= 1
