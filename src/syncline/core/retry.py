"""How long to wait before trying again: growing spans with jitter, so that many waiters do not come back at once.

Only the arithmetic; whoever retries sleeps, and decides what is worth a retry (`SynclineError.retry`).
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random, SystemRandom

import msgspec


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Spans in seconds: `first`, then each `factor` times longer up to `longest`, shortened by a random share."""

    first: float = 0.25
    factor: float = 2.0
    longest: float = 30.0
    jitter: float = 0.5  # the largest such share

    def spans(self, random: Random | None = None) -> Iterator[float]:
        """An endless row of spans; begin a new one after a success."""
        dice = random or SystemRandom()
        span = self.first
        while True:
            yield span * (1.0 - self.jitter * dice.random())
            span = min(span * self.factor, self.longest)
