"""A transport that delivers what it was told to, for situations no honest transport gets into."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio

from syncline.core.errors import UsageError
from syncline.protocols.sdsp.plugins import Capabilities, Delivery, Start


class Scripted:
    """Implements `Transport` for one subscriber."""

    def __init__(self, deliveries: Sequence[Delivery], capabilities: Capabilities) -> None:
        self._script = list(deliveries)
        self._capabilities = capabilities

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def publish(self, topic: str, payload: bytes, *, dedupe_id: str, expect_serial: int | None) -> None:
        raise UsageError("it only delivers")

    @asynccontextmanager
    async def subscribe(self, topic: str, start: Start) -> AsyncIterator[AsyncIterator[Delivery]]:
        deliveries = self._deliveries()
        try:
            yield deliveries
        finally:
            await deliveries.aclose()

    async def _deliveries(self) -> AsyncGenerator[Delivery, None]:
        for delivery in self._script:
            yield delivery
        await anyio.sleep_forever()

    async def replay(self, topic: str, *, uid: str, first: int, last: int) -> Sequence[bytes]:
        return []

    async def newest(self, topic: str, *, uid: str) -> bytes | None:
        return None
