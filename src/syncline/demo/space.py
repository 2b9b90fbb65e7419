"""SDS traffic: mean elements, ephemerides and conjunctions, each node publishing within the network's rate."""

from __future__ import annotations

from itertools import cycle

from syncline.demo.sky import Sky, conjunctions, historic_elements
from syncline.demo.world import World


class SpaceData:
    """Three catalogues that publish, each signing with its node's key."""

    def __init__(self, world: World, sky: Sky) -> None:
        self._sky = sky
        self._clock = world.members[0].node.clock
        self._stations = cycle([member.service("sds") for member in world.speakers("sds")])
        self._archive = cycle(historic_elements())
        self._conjunctions = conjunctions(self._clock.now())

    async def elements(self) -> None:
        await next(self._stations).send("OMM", self._sky.next_elements(self._clock.now()))

    async def ephemeris(self) -> None:
        await next(self._stations).send("OEM", self._sky.ephemeris(self._clock.now()))

    async def historic(self) -> None:
        await next(self._stations).send("OMM", next(self._archive))

    async def conjunction(self) -> None:
        await next(self._stations).send("CDM", next(self._conjunctions))
