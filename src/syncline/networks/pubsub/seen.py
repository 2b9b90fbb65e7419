"""Which messages have been seen lately, so that copies are recognised before anything is spent on them.

Bounded in number and in time. An id is remembered together with a token of the message it stood for (its signature, or a
digest of all its bytes), so that another message under the same id is not taken for a repeat of it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal

from syncline.core.limits import PUBSUB_SEEN, PUBSUB_SEEN_SECONDS

Sighting = Literal["new", "repeat", "differs"]


class Seen:
    """Message ids of the last two minutes."""

    def __init__(self, limit: int = PUBSUB_SEEN, seconds: float = PUBSUB_SEEN_SECONDS) -> None:
        self._limit = limit
        self._seconds = seconds
        self._known: OrderedDict[bytes, tuple[bytes, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, id: object) -> bool:
        return id in self._known

    def look(self, id: bytes, token: bytes, now: float) -> Sighting:
        """Whether the message is new, the same as one seen, or another one under the id of one seen."""
        known = self._known.get(id)
        if known is None or known[1] + self._seconds <= now:
            return "new"
        return "repeat" if known[0] == token else "differs"

    def add(self, id: bytes, token: bytes, now: float) -> None:
        self._known[id] = (token, now)
        self._known.move_to_end(id)
        while len(self._known) > self._limit or next(iter(self._known.values()))[1] + self._seconds <= now:
            self._known.popitem(last=False)
