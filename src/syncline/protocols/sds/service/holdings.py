"""All that this node holds, for whoever looks through it: the journal, and the archive for what is older."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing

import anyio
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
    """Runs scans over what one node holds. Reading and decoding happen beside the event loop, few at a time."""

    def __init__(self, ground: Ground) -> None:
        self._records = ground.records
        self._archive = ground.archive
        self._clock = ground.clock
        self._retention = ground.retention
        self._places = anyio.CapacityLimiter(limits.SDS_SCANS)
        self._turns = Turns(ground.clock)

    def archived(self) -> int | None:
        """Before when records may be in the archive alone; None if there is no archive, or the journal forgets nothing."""
        return self._clock.now() - self._retention if self._archive is not None and self._retention else None

    async def read(self, query: RecordQuery) -> list[Record]:
        """Records of the journal."""
        return await anyio.to_thread.run_sync(self._records.read, query)

    async def run(self, scan: Scan, send: Send) -> None:
        """Feed a scan until all is said. While its frames are sent others have its place: a peer that reads slowly keeps
        nobody else from being answered. If the archive does not answer, the asker is told so, as of a query that timed
        out: without it the answer would be wrong."""
        while scan.wants() is not None:
            async with self._places:
                frames = await self._frames(scan)
            if frames is None:
                text = "records older than the journal keeps cannot be read now"
                await send([refusal(ErrorCode.QUERY_TIMEOUT, text, scan.request_id).frame])
                return
            await send(frames)

    async def _frames(self, scan: Scan) -> list[bytes] | None:
        """The next that a scan has to say; None if the archive does not answer."""
        frames: list[bytes] | None = []
        while frames == [] and (wanted := scan.wants()) is not None:
            if isinstance(wanted, RecordQuery):
                async with self._turns.turn():
                    frames = await anyio.to_thread.run_sync(self._step, scan, wanted)
            else:
                frames = await self._fed_older(scan, wanted)
        return frames

    async def _fed_older(self, scan: Scan, older: Older) -> list[bytes] | None:
        """Feed it with pages of the archive up to the empty one; None if they cannot be read."""
        frames: list[bytes] = []
        async with aclosing(self._pages(older.query)) as pages:
            page: list[Record] | None = None
            while page != [] and scan.wants() is not None:
                try:
                    page = await anext(pages)
                except SynclineError as error:
                    log.warning("the archive does not answer", error=str(error))
                    return None
                async with self._turns.turn():
                    frames += await anyio.to_thread.run_sync(scan.feed, page, self._clock.monotonic())
        return frames

    async def _pages(self, query: RecordQuery) -> AsyncGenerator[list[Record]]:
        """Pages of the archive, and an empty one at its end."""
        assert self._archive is not None
        page: list[Record] = []
        size = 0
        async for record in self._archive.read(query):
            page.append(record)
            size += len(record.raw or b"")
            if len(page) == limits.SDS_SCAN_PAGE or size >= limits.SDS_SCAN_BYTES:
                yield page
                page, size = [], 0
        if page:
            yield page
        yield []

    def _step(self, scan: Scan, wanted: RecordQuery) -> list[bytes]:
        return scan.feed(self._records.read(wanted), self._clock.monotonic())
