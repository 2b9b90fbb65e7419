"""Faults for SDSP transports, by a seeded plan: lost, repeated, late and foreign payloads. The same seed, the same faults.

Wraps the subscribing side of any transport; what is published and what history answers stays whole.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Final

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from syncline.networks.background import background
from syncline.protocols.sdsp.plugins import Capabilities, Delivery, Start, Transport

QUIET_SECONDS: Final = 0.05  # after which late deliveries come even if nothing follows to overtake them


class FaultPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of deliveries, between 0 and 1; `delay` is how many later deliveries may overtake a late one."""

    seed: int
    loss: float = 0.0
    repeats: float = 0.0
    disorder: float = 0.0
    delay: int = 4


class FaultyTransport:
    """Implements `Transport` on another one. `fired` counts the faults, to prove that they happened."""

    def __init__(self, transport: Transport, plan: FaultPlan) -> None:
        self._transport = transport
        self._plan = plan
        self._dice = Random(plan.seed)
        self.fired = dict.fromkeys(("lost", "repeated", "delayed"), 0)

    @property
    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(self._transport.capabilities, ordered=self._plan.disorder == 0)

    async def publish(self, topic: str, payload: bytes, *, dedupe_id: str, expect_serial: int | None) -> None:
        await self._transport.publish(topic, payload, dedupe_id=dedupe_id, expect_serial=expect_serial)

    async def replay(self, topic: str, *, uid: str, first: int, last: int) -> Sequence[bytes]:
        return await self._transport.replay(topic, uid=uid, first=first, last=last)

    async def newest(self, topic: str, *, uid: str) -> bytes | None:
        return await self._transport.newest(topic, uid=uid)

    @asynccontextmanager
    async def subscribe(self, topic: str, start: Start) -> AsyncIterator[AsyncIterator[Delivery]]:
        outlet, inlet = anyio.create_memory_object_stream[Delivery](0)
        disturbed = self._disturbed(inlet)
        with inlet:
            async with self._transport.subscribe(topic, start) as deliveries, background() as tasks:
                tasks.start_soon(_forward, deliveries, outlet)
                try:
                    yield disturbed
                finally:
                    tasks.cancel_scope.cancel()
                    await disturbed.aclose()

    async def _disturbed(self, inlet: MemoryObjectReceiveStream[Delivery]) -> AsyncGenerator[Delivery, None]:
        late: list[tuple[int, Delivery]] = []  # (deliveries still to let pass, what waits)
        while True:
            delivery = None
            with anyio.move_on_after(QUIET_SECONDS if late else math.inf):
                delivery = await inlet.receive()
            if delivery is not None:
                for each in self._now(delivery, late):
                    yield each
            late = [(left - 1 if delivery is not None else 0, each) for left, each in late]
            for each in [each for left, each in late if left <= 0]:
                yield each
            late = [(left, each) for left, each in late if left > 0]

    def _now(self, delivery: Delivery, late: list[tuple[int, Delivery]]) -> list[Delivery]:
        """What comes out at once for one delivery; a late one is put aside."""
        if self._dice.random() < self._plan.loss:
            self.fired["lost"] += 1
            return []
        if self._dice.random() < self._plan.disorder:
            self.fired["delayed"] += 1
            late.append((self._dice.randint(1, self._plan.delay) + 1, delivery))
            return []
        if self._dice.random() < self._plan.repeats:
            self.fired["repeated"] += 1
            return [delivery, delivery]
        return [delivery]


async def _forward(deliveries: AsyncIterator[Delivery], outlet: MemoryObjectSendStream[Delivery]) -> None:
    with outlet:
        async for delivery in deliveries:
            await outlet.send(delivery)
