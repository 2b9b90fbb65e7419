"""A bell: rung by synchronous code, waited for by one task; rings before the wait are not lost."""

from __future__ import annotations

import anyio


class Bell:
    def __init__(self) -> None:
        self._rung = False
        self._event: anyio.Event | None = None

    def ring(self) -> None:
        self._rung = True
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self) -> None:
        """Return once it has rung since the last wait."""
        if not self._rung:
            self._event = anyio.Event()
            await self._event.wait()
        self._rung = False
