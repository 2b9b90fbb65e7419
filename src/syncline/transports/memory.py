"""SDSP inside one process: the transport of tests, examples and simulations. Keeps order, history and serials.

A hub is what a broker would be; `memory:name` is this process's hub of that name. Faults (loss, repeats, disorder) are
put on top by `syncline.testing.faults`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import anyio
import anyio.lowlevel
import msgspec

from syncline.core.errors import ConflictError, OverloadedError
from syncline.core.limits import SDSP_FRAME_MAX, SDSP_HUB_FRAMES, SDSP_HUB_OBJECTS, SDSP_HUBS
from syncline.protocols.sdsp.plugins import Capabilities, Delivery, Header, Start, header_of


class _Kept(msgspec.Struct, frozen=True):
    header: Header
    payload: bytes
    dedupe_id: str


class _Log:
    """The newest frames of one object on one topic. `end` counts every frame there ever was."""

    def __init__(self) -> None:
        self.kept: deque[_Kept] = deque(maxlen=SDSP_HUB_FRAMES)
        self.end = 0
        self._waiting: set[anyio.Event] = set()

    @property
    def newest(self) -> _Kept | None:
        return self.kept[-1] if self.kept else None

    def append(self, kept: _Kept) -> None:
        self.kept.append(kept)
        self.end += 1
        for waiting in self._waiting:
            waiting.set()

    def has(self, header: Header, dedupe_id: str) -> bool:
        return any(kept.dedupe_id == dedupe_id for kept in self.kept if kept.header.serial == header.serial)

    def since(self, position: int) -> list[_Kept]:
        """What came after a position, as far as it is still kept."""
        first = self.end - len(self.kept)
        return [self.kept[index] for index in range(max(position - first, 0), len(self.kept))]

    async def wait(self, position: int) -> None:
        while self.end <= position:
            more = anyio.Event()
            self._waiting.add(more)
            try:
                await more.wait()
            finally:
                self._waiting.discard(more)


class MemoryHub:
    """Implements `Transport`; for many tasks of one event loop."""

    capabilities = Capabilities(
        max_payload=SDSP_FRAME_MAX, ordered=True, history=True, optimistic=True, durable=False, authenticated=False
    )

    def __init__(self) -> None:
        self._logs: dict[tuple[str, str], _Log] = {}

    async def publish(self, topic: str, payload: bytes, *, dedupe_id: str, expect_serial: int | None) -> None:
        await anyio.lowlevel.checkpoint()
        header = header_of(payload)
        log = self._log(topic, header.uid)
        if log.has(header, dedupe_id):
            return
        newest = log.newest.header.serial if log.newest else -1
        if expect_serial is not None and newest != expect_serial:
            raise ConflictError(f"the newest frame is {newest}, not {expect_serial}", about=header.uid)
        log.append(_Kept(header, payload, dedupe_id))

    @asynccontextmanager
    async def subscribe(self, topic: str, start: Start) -> AsyncIterator[AsyncIterator[Delivery]]:
        log = self._log(topic, start.uid)
        base = log.newest.header.base if log.newest else 0
        deliveries = _deliveries(log, log.end - len(log.kept), base if start.after is None else start.after + 1)
        try:
            yield deliveries
        finally:
            await deliveries.aclose()

    async def replay(self, topic: str, *, uid: str, first: int, last: int) -> Sequence[bytes]:
        await anyio.lowlevel.checkpoint()
        return [kept.payload for kept in self._log(topic, uid).kept if first <= kept.header.serial <= last]

    async def newest(self, topic: str, *, uid: str) -> bytes | None:
        await anyio.lowlevel.checkpoint()
        newest = self._log(topic, uid).newest
        return newest.payload if newest else None

    def _log(self, topic: str, uid: str) -> _Log:
        if (topic, uid) not in self._logs and len(self._logs) >= SDSP_HUB_OBJECTS:
            raise OverloadedError(f"more than {SDSP_HUB_OBJECTS} objects in one hub")
        return self._logs.setdefault((topic, uid), _Log())


async def _deliveries(log: _Log, position: int, begin: int) -> AsyncGenerator[Delivery, None]:
    while True:
        await log.wait(position)
        batch, position = log.since(position), log.end
        for kept in batch:
            if kept.header.serial >= begin:
                yield Delivery(kept.payload)


_HUBS: Final[dict[str, MemoryHub]] = {}  # the one place where a name must mean the same to the whole process


@asynccontextmanager
async def open_memory(url: str) -> AsyncIterator[MemoryHub]:
    """The hub called `memory:name`; it stays when the block ends."""
    name = url.partition(":")[2]
    if name not in _HUBS and len(_HUBS) >= SDSP_HUBS:
        raise OverloadedError(f"more than {SDSP_HUBS} memory hubs")
    yield _HUBS.setdefault(name, MemoryHub())
