"""A clock that moves only when told."""

from __future__ import annotations


class FakeClock:
    """Implements `core.clock.Clock`. Starts on 2026-03-01 00:00 UTC unless told otherwise."""

    def __init__(self, now: int = 1_772_323_200_000_000) -> None:
        self._now = now
        self._monotonic = 0.0

    def now(self) -> int:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let both clocks run on."""
        self._now += round(seconds * 1_000_000)
        self._monotonic += seconds

    def step(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator would; steady time does not move."""
        self._now += round(seconds * 1_000_000)
