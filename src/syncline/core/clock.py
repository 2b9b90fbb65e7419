"""Time as an argument. Everything that needs the time gets a Clock; only `SystemClock` asks the machine."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time to stamp records with, and a steady one to measure spans with."""

    def now(self) -> int:
        """Microseconds since 1970-01-01 UTC. May step when the machine's clock is set."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary start. Never goes back."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> int:
        return time.time_ns() // 1_000

    def monotonic(self) -> float:
        return time.monotonic()
