"""A thread with an asyncio loop, for clients that know no other one; the rest of the program runs on trio.

A crossing costs tens of microseconds whatever it carries, so callers hand over batches. Which client lives behind it,
and what a batch is, belongs to the transport that uses it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import ParamSpec, TypeVar

import anyio
import anyio.to_thread
from anyio.from_thread import BlockingPortal, start_blocking_portal

from syncline.core.limits import PORTAL_CALLS

P = ParamSpec("P")
T = TypeVar("T")


class Portal:
    """Runs coroutines on the asyncio thread. A call that is cancelled here is cancelled there."""

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal = portal
        self._limiter = anyio.CapacityLimiter(PORTAL_CALLS)  # each waiting call holds a thread

    async def call(self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        future = self._portal.start_task_soon(lambda: function(*args, **kwargs))
        try:
            return await anyio.to_thread.run_sync(future.result, abandon_on_cancel=True, limiter=self._limiter)
        finally:
            future.cancel()


@asynccontextmanager
async def open_portal() -> AsyncIterator[Portal]:
    """A portal for the length of the block; everything still running behind it is cancelled at the end."""
    starting = start_blocking_portal("asyncio", name="syncline-asyncio")
    portal = await anyio.to_thread.run_sync(starting.__enter__)
    try:
        yield Portal(portal)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(starting.__exit__, None, None, None)
