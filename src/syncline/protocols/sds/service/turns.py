"""Who looks through records, and when. It keeps one stranger's many questions from taking the interpreter from everybody
else: scans work one page at a time, one after another, and all of them together rest as long as they worked.

It does not count questions; that is done by the quotas of the session.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio

from syncline.core.clock import Clock

REST: Final = 1.0  # seconds of rest for a second of work: answers get at most half of the interpreter
REST_MOST: Final = 0.25  # a step that had to wait for the disk or a busy machine is not paid for in full


class Turns:
    """One turn is one page. Turns are taken in the order they were asked for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = anyio.Lock()
        self.free_at = 0.0  # before which nobody works

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        async with self._lock:
            await anyio.sleep(max(self.free_at - self._clock.monotonic(), 0.0))
            begun = self._clock.monotonic()
            try:
                yield
            finally:
                now = self._clock.monotonic()
                self.free_at = now + min((now - begun) * REST, REST_MOST)
