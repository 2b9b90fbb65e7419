"""Driving the answering side of one stream: frames in, actions done, scans run beside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from syncline.core.clock import Clock
from syncline.core.errors import DecodeError, UnavailableError, UnreachableError
from syncline.core.ports import RecordQuery
from syncline.core.record import Arrival
from syncline.networks.host import Stream
from syncline.protocols.sds.service.holdings import Holdings
from syncline.protocols.sds.service.taken import News
from syncline.protocols.sds.session import (
    Action,
    Blame,
    Close,
    Responder,
    Scan,
    Send,
    Serve,
    Store,
    Unsubscribed,
)
from syncline.protocols.sds.wire import FRAME_OVERHEAD, Publish

FAREWELL_SECONDS: Final = 5.0  # for a peer to read why the stream is ended
StorePublish = Callable[[Publish, bytes, str], Awaitable[Arrival]]
TellNetwork = Callable[[Publish, bytes], Awaitable[None]]


class Answering:
    """One stream that a peer opened to us, from hello to its end."""

    def __init__(
        self,
        stream: Stream,
        session: Responder,
        *,
        clock: Clock,
        holdings: Holdings,
        news: News,
        store: StorePublish,
        tell: TellNetwork,
        blame: Callable[[str], None],
    ) -> None:
        self._stream = stream
        self._session = session
        self._clock = clock
        self._holdings = holdings
        self._news = news
        self._store = store
        self._tell = tell
        self._blame = blame
        self._feeds: dict[str, anyio.CancelScope] = {}
        self._running = 0

    async def run(self) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                await self._converse(tasks)
                tasks.cancel_scope.cancel()
        finally:
            self._session.close()

    async def _converse(self, tasks: TaskGroup) -> None:
        try:
            open_ = await self._act(self._session.start(), tasks)
            while open_:
                frame = await self._next()
                if frame is None:
                    return
                open_ = await self._act(self._session.receive(frame, self._clock.monotonic()), tasks)
        except DecodeError as error:  # a frame the network would not let through
            await self._act(self._session.broken(error), tasks)
        except (UnavailableError, UnreachableError):
            return
        await self._farewell()

    async def _next(self) -> bytes | None:
        """The next frame with its length. Silence ends a stream on which nothing is going on."""
        while True:
            try:
                content = await self._stream.receive()
            except UnavailableError:
                if self._feeds or self._running:
                    continue
                raise
            return None if content is None else len(content).to_bytes(4, "little") + content

    async def _act(self, actions: Sequence[Action], tasks: TaskGroup) -> bool:
        """Do what the session asks; False when the stream is to end."""
        for action in actions:
            match action:
                case Send(frame):
                    await self._stream.send(frame[FRAME_OVERHEAD:])
                case Blame(why):
                    self._blame(why)
                case Store(message, raw):
                    arrival = await self._store(message, raw, self._stream.peer)
                    await self._act(self._session.stored(message, arrival), tasks)
                    if arrival.accepted:  # acknowledged first: neighbours may be slow
                        await self._tell(message, raw)
                case Serve(scan):
                    self._running += not scan.is_live
                    tasks.start_soon(self._feed if scan.is_live else self._answer, scan)
                case Unsubscribed(name):
                    if scope := self._feeds.get(name):
                        scope.cancel()
                case Close():
                    return False
        return True

    async def _answer(self, scan: Scan) -> None:
        try:
            await self._holdings.run(scan, self._send)
        except (UnavailableError, UnreachableError):
            pass  # the reading side notices by itself
        finally:
            self._running -= 1
            self._session.served()

    async def _feed(self, scan: Scan) -> None:
        with anyio.CancelScope() as scope:
            self._feeds[scan.request_id] = scope
            try:
                while (query := scan.wants()) is not None:
                    seen = self._news.newest
                    assert isinstance(query, RecordQuery)  # the past that is delivered is what the journal keeps
                    records = await self._holdings.read(query)
                    await self._send(await anyio.to_thread.run_sync(scan.feed, records, self._clock.monotonic()))
                    if not query.descending and not query.cuts_off(records):
                        await self._news.after(seen)
            except (UnavailableError, UnreachableError):
                pass
            finally:
                if self._feeds.get(scan.request_id) is scope:
                    del self._feeds[scan.request_id]

    async def _send(self, frames: Sequence[bytes]) -> None:
        if frames:
            await self._stream.send_many([frame[FRAME_OVERHEAD:] for frame in frames])

    async def _farewell(self) -> None:
        """End our side and let the peer read what it was told, because closing at once may throw it away."""
        try:
            await self._stream.end()
            with anyio.move_on_after(FAREWELL_SECONDS):
                while await self._stream.receive() is not None:
                    pass
        except (DecodeError, UnavailableError, UnreachableError):
            return
