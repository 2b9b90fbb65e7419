"""When each traffic happens: for ever at a lively pace, or a fixed amount and then quiet. Sends nothing itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import anyio
import msgspec
import structlog

from syncline.core.errors import SynclineError
from syncline.demo.blocks import Blocks
from syncline.demo.mallory import misbehaving
from syncline.demo.objects import Objects
from syncline.demo.sky import Sky
from syncline.demo.space import SpaceData
from syncline.demo.stations import Stations
from syncline.demo.talk import talking
from syncline.demo.world import World

log = structlog.get_logger()
QUIET_SECONDS: Final = 1.5  # nothing new for so long: everything has arrived
SETTLE_SECONDS: Final = 20.0


class Act(msgspec.Struct, frozen=True):
    """One kind of traffic: what a step does, the pause between two, and how many steps a fixed amount has."""

    name: str
    step: Callable[[], Awaitable[None]]
    pause: float
    once: int


class Play:
    """All traffic of a world."""

    def __init__(self, world: World, acts: Sequence[Act]) -> None:
        self._world = world
        self._acts = acts
        self.sent: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()

    async def endless(self) -> None:
        async with anyio.create_task_group() as tasks:
            for act in self._acts:
                tasks.start_soon(self._repeat, act)

    async def fixed(self) -> None:
        """So many steps of each, side by side; returns when every node has what it will get."""
        async with anyio.create_task_group() as tasks:
            for act in self._acts:
                tasks.start_soon(self._some, act)
        await self._settled()

    async def _repeat(self, act: Act) -> None:
        while True:
            await self._step(act)
            await anyio.sleep(act.pause)

    async def _some(self, act: Act) -> None:
        for _ in range(act.once):
            await self._step(act)
            await anyio.sleep(min(act.pause, 0.15))  # within what the networks take from one publisher

    async def _step(self, act: Act) -> None:
        try:
            await act.step()
        except SynclineError as error:  # a busy machine may time out; the next step tries again
            self.failed[act.name] += 1
            log.warning("demo_step_failed", act=act.name, error=str(error))
        else:
            self.sent[act.name] += 1

    async def _settled(self) -> None:
        with anyio.move_on_after(SETTLE_SECONDS):
            before: list[int] = []
            while before != (now := [member.node.journal.newest() for member in self._world.members]):
                before = now
                await anyio.sleep(QUIET_SECONDS)


@asynccontextmanager
async def playing(world: World) -> AsyncIterator[Play]:
    """The cast, connected and ready, for the length of the block."""
    sky = Sky(world.chance("sky"), world.members[0].node.clock.now())
    space, objects, stations, blocks = SpaceData(world, sky), Objects(world, sky), Stations(world, sky), Blocks(world)
    async with talking(world) as talk, misbehaving(world) as mallory:
        yield Play(
            world,
            [
                Act("sds elements", space.elements, 0.4, 24),
                Act("sds ephemerides", space.ephemeris, 2.0, 8),
                Act("sds archive", space.historic, 3.0, 32),
                Act("sds conjunctions", space.conjunction, 9.0, 8),
                Act("sdsp edits", objects.edit, 0.25, 60),
                Act("sdsp positions", objects.move, 1.0, 12),
                Act("relay messages", talk.say, 0.3, 40),
                Act("svs readings", stations.read, 0.5, 24),
                Act("svs reports", stations.report, 5.0, 4),
                Act("shrex blocks", blocks.step, 3.0, 6),
                Act("misdeeds", mallory.step, 0.9, 16),
            ],
        )
