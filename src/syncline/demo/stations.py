"""SVS-PS traffic: ground stations publish short readings, and now and then a report so long that it goes in segments."""

from __future__ import annotations

from itertools import cycle
from typing import Final

import msgspec

from syncline.core.ports import Service
from syncline.demo.sky import Sky
from syncline.demo.world import World

REPORT_STATES: Final = 12


class Stations:
    """Each node is one station and takes turns."""

    def __init__(self, world: World, sky: Sky) -> None:
        self._sky = sky
        self._chance = world.chance("stations")
        self._clock = world.members[0].node.clock
        self._turns = cycle(world.speakers("svs"))

    async def read(self) -> None:
        member = next(self._turns)
        kind, low, high = self._chance.choice((("wind", 0, 28), ("temperature", -12, 31), ("noise", 3, 9)))
        reading = {"at": self._clock.now(), "value": round(self._chance.uniform(low, high), 2)}
        await _publish(member.service("svs"), f"/{member.name}/{kind}", reading)

    async def report(self) -> None:
        """States of the whole fleet over some minutes: tens of kilobytes, so several segments."""
        member, now = next(self._turns), self._clock.now()
        moments = [now + minute * 60_000_000 for minute in range(REPORT_STATES)]
        report = [{"at": at, "fleet": self._sky.positions(at)} for at in moments]
        await _publish(member.service("svs"), f"/{member.name}/report", report)


async def _publish(service: Service, name: str, value: object) -> None:
    await service.publish({"name": name, "content": msgspec.json.encode(value).decode()})
