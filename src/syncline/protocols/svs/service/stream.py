"""Publications as an async iterator: a small buffer between a group and its reader; full, it slows the group down."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from syncline.networks.ndn.bell import Bell
from syncline.protocols.svs.session import Publication

BUFFERED: Final = 64  # publications an iterator holds that nobody has read yet


class Buffer:
    """A few publications between a group and the iterator that reads them."""

    def __init__(self) -> None:
        self.items: deque[Publication] = deque()
        self.closed = False
        self.closing: Callable[[], None] = lambda: None
        self.arrived = Bell()
        self._taken = Bell()

    async def put(self, publication: Publication) -> None:
        while len(self.items) >= BUFFERED and not self.closed:
            await self._taken.wait()
        self.items.append(publication)
        self.arrived.ring()

    async def take(self) -> Publication:
        while not self.items:
            if self.closed:
                raise StopAsyncIteration
            await self.arrived.wait()
        self._taken.ring()
        return self.items.popleft()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.closing()
            self.arrived.ring()
            self._taken.ring()


class Publications:
    """An async iterator; made by `Group.publications`."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer

    def __aiter__(self) -> Publications:
        return self

    async def __anext__(self) -> Publication:
        return await self._buffer.take()

    def close(self) -> None:
        """End the subscription."""
        self._buffer.close()

    def __del__(self) -> None:
        self._buffer.close()
