"""Waking up whoever waits for a change, at no cost while nobody does."""

from __future__ import annotations

import anyio


class Signal:
    """`wait` returns at the next `set`. A state that may have changed is to be checked again after waking."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: anyio.Event | None = None

    def set(self) -> None:
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self) -> None:
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()
