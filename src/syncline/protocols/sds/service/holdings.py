"""All that this node holds, for whoever looks through it: the journal, and the archive for what is older."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing

import anyio.to_thread
import structlog

from syncline.core import limits
from syncline.core.errors import SynclineError
from syncline.core.ports import Ground, RecordQuery
from syncline.core.record import Record
from syncline.protocols.sds.service.turns import Turns
from syncline.protocols.sds.session import Older, Scan
from syncline.protocols.sds.session.actions import refusal
from syncline.protocols.sds.wire import ErrorCode

log = structlog.get_logger(__name__)
Send = Callable[[Sequence[bytes]], Awaitable[None]]


class Holdings:
    """Runs scans over what one node holds. Reading and decoding happen beside the event loop."""

    def __init__(self, ground: Ground) -> None:
        self._records = ground.records
        self._archive = ground.archive
        self._clock = ground.clock
        self._retention = ground.retention
        self._turns = Turns(ground.clock)

    def archived(self) -> int | None:
        """Before when records may be in the archive alone; None if there is no archive, or the journal forgets nothing."""
        return self._clock.now() - self._retention if self._archive is not None and self._retention else None

    async def read(self, query: RecordQuery) -> list[Record]:
        """Records of the journal."""
        return await anyio.to_thread.run_sync(self._records.read, query)

    async def run(self, scan: Scan, send: Send) -> None:
        """Feed a scan until all is said. If the archive does not answer, the asker is told so, as of a query that timed
        out: without it the answer would be wrong."""
        while (wanted := scan.wants()) is not None:
            if isinstance(wanted, RecordQuery):
                async with self._turns.turn():
                    frames = await anyio.to_thread.run_sync(self._step, scan, wanted)
                await send(frames)
            elif not await self._feed_older(scan, wanted, send):
                text = "records older than the journal keeps cannot be read now"
                await send([refusal(ErrorCode.QUERY_TIMEOUT, text, scan.request_id).frame])
                return

    async def _feed_older(self, scan: Scan, older: Older, send: Send) -> bool:
        """Feed it with pages of the archive up to the empty one; whether they could be read."""
        async with aclosing(self._pages(older.query)) as pages:
            page: list[Record] | None = None
            while page != [] and scan.wants() is not None:
                try:
                    page = await anext(pages)
                except SynclineError as error:
                    log.warning("the archive does not answer", error=str(error))
                    return False
                async with self._turns.turn():
                    frames = await anyio.to_thread.run_sync(scan.feed, page, self._clock.monotonic())
                await send(frames)
        return True

    async def _pages(self, query: RecordQuery) -> AsyncGenerator[list[Record]]:
        """Pages of the archive, and an empty one at its end."""
        assert self._archive is not None
        page: list[Record] = []
        async for record in self._archive.read(query):
            page.append(record)
            if len(page) == limits.SDS_SCAN_PAGE:
                yield page
                page = []
        if page:
            yield page
        yield []

    def _step(self, scan: Scan, wanted: RecordQuery) -> list[bytes]:
        return scan.feed(self._records.read(wanted), self._clock.monotonic())
