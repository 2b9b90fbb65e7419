"""Subscriptions whose last word is not on disk yet: what the disk holds of each, and what is on its way to it.

Only the bookkeeping. Changes of one subscription are settled in the order they were begun, as the commit queue does it.
"""

from __future__ import annotations

from collections import deque

Key = tuple[bytes, str]  # client, topic


class _Case:
    """One subscription: when it ends by what is on disk, and by each change on its way; None is no subscription."""

    __slots__ = ("coming", "on_disk")

    def __init__(self, on_disk: int | None) -> None:
        self.on_disk = on_disk
        self.coming: deque[int | None] = deque()


class Unsettled:
    """What to go back to when a commit fails, however many changes are on their way."""

    def __init__(self) -> None:
        self._cases: dict[Key, _Case] = {}

    def __len__(self) -> int:
        return len(self._cases)

    def __contains__(self, key: object) -> bool:
        return key in self._cases

    def begin(self, key: Key, before: int | None, ends_at: int | None) -> None:
        """A change is on its way; `before` is what counted until now, on disk if nothing else is on its way."""
        case = self._cases.get(key)
        if case is None:
            case = self._cases[key] = _Case(before)
        case.coming.append(ends_at)

    def settle(self, key: Key, *, kept: bool) -> int | None:
        """The oldest change is on disk, or never will be; returns what counts now: the newest one still to come, or
        what the disk holds."""
        case = self._cases[key]
        ends_at = case.coming.popleft()
        if kept:
            case.on_disk = ends_at
        if case.coming:
            return case.coming[-1]
        del self._cases[key]
        return case.on_disk
