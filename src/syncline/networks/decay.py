"""Counts that fade: half of what was counted is forgotten every half-life. Time is an argument."""

from __future__ import annotations

from collections import OrderedDict


class Decaying:
    """Fading counts by name, for at most `limit` names; the one untouched for longest is forgotten first."""

    def __init__(self, half_life: float, limit: int) -> None:
        self._half_life = half_life
        self._limit = limit
        self._values: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def at(self, name: str, now: float) -> float:
        value, then = self._values.get(name, (0.0, now))
        return float(value * 0.5 ** ((now - then) / self._half_life))

    def add(self, name: str, amount: float, now: float) -> float:
        """Count and return the new value."""
        value = self.at(name, now) + amount
        self._values[name] = (value, now)
        self._values.move_to_end(name)
        if len(self._values) > self._limit:
            self._values.popitem(last=False)
        return value
