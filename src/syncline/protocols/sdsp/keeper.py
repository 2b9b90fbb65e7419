"""Keeps quiet objects: copies their frames into state before the journal's retention removes the records.

SDSP lets a publisher be silent for as long as it likes; its object must not be lost for that. Objects that change are
never copied, because their newest full frame is young.
"""

from __future__ import annotations

import anyio
import anyio.to_thread
import msgspec

from syncline.core.limits import SDSP_KEEPER_SECONDS
from syncline.core.ports import Ground, StateChange
from syncline.protocols.sdsp.rules import frame_id
from syncline.protocols.sdsp.shelf import Shelf
from syncline.protocols.sdsp.tips import KEPT, Tip, changes


class Keeper:
    """Looks through a node's objects now and then. `copied` counts frames."""

    def __init__(self, ground: Ground, shelf: Shelf) -> None:
        self._ground = ground
        self._shelf = shelf
        self.copied = 0

    async def run(self) -> None:
        """Sweep for ever, often enough that a record is met several times before it may go."""
        if not self._ground.retention:
            return
        while True:
            await self.sweep()
            await anyio.sleep(min(SDSP_KEEPER_SECONDS, self._ground.retention / 8 / 1_000_000))

    async def sweep(self) -> None:
        """Copy what has been in the journal for half of the time it stays there."""
        cutoff = self._ground.clock.now() - self._ground.retention // 2
        due = await anyio.to_thread.run_sync(
            lambda: [uid for uid, tip in self._shelf.tips.every() if tip.since < cutoff and tip.kept < tip.serial]
        )
        for uid in due:
            async with self._shelf.alone(uid):
                while await self._copy(uid, cutoff):
                    pass

    async def _copy(self, uid: str, cutoff: int) -> bool:
        """Copy one page of an object's frames; whether there is more to do."""
        tip, stored = self._shelf.tips.get(uid)
        if tip is None or tip.since >= cutoff or tip.kept >= tip.serial:
            return False
        page = await self._shelf.page(uid, max(tip.base, tip.kept + 1), tip.serial)
        if not page:
            return False
        new: Tip = msgspec.structs.replace(tip, kept=page[-1][0])
        copies = [StateChange(space=KEPT, key=frame_id(uid, serial), value=raw) for serial, raw in page]
        await self._ground.sink.receive([], [*changes(uid, tip, new, stored), *copies])
        self.copied += len(page)
        return True
