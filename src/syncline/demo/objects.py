"""SDSP traffic: a flight log under many small edits, the fleet's positions, and copies of its frames at a second node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from syncline.core.ports import RecordQuery
from syncline.core.record import RecordName
from syncline.demo.sky import Sky
from syncline.demo.world import Member, World
from syncline.testing.samples import edited_document


class Objects:
    """The first node publishes, the second gets the same frames byte for byte; the third has a document of its own."""

    def __init__(self, world: World, sky: Sky) -> None:
        self._sky = sky
        self._first, self._second, self._third = world.members
        self._edits: Iterator[dict[str, Any]] = edited_document(world.seed)

    async def edit(self) -> None:
        """One small change somewhere in some twenty kilobytes."""
        answer = await self._first.service("sdsp").publish(
            {"uid": "flight-log", "topic": "documents", "data": next(self._edits)}
        )
        await self._copy(answer, self._second)

    async def move(self) -> None:
        """The fleet a moment later."""
        fleet = {"fleet": self._sky.positions(self._first.node.clock.now())}
        await self._third.service("sdsp").publish({"uid": "fleet", "topic": "positions", "data": fleet})

    async def _copy(self, answer: dict[str, Any], other: Member) -> None:
        if not answer["published"] or answer["record"] is None:
            return
        lsn = RecordName.parse(answer["record"]).lsn
        [record] = self._first.node.journal.read(RecordQuery(after=lsn - 1, before=lsn + 1))
        if record.raw is not None:
            await other.service("sdsp").publish({"topic": record.topic, "frame": record.raw.decode()})
