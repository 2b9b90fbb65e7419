"""Which messages have been seen lately, so that copies are recognised before anything is spent on them.

Bounded in number and in time. An id is remembered together with a token of the message it stood for (its signature, or a
digest of all its bytes), so that another message under the same id is not taken for a repeat of it, and with whether any
copy of it was accepted, so that it is passed on once. Passing on is not its business.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal

from syncline.core.limits import PUBSUB_SEEN, PUBSUB_SEEN_SECONDS

Sighting = Literal["new", "repeat", "differs"]
Acceptance = Literal["first", "again", "forgotten"]


class Seen:
    """Message ids of the last two minutes."""

    def __init__(self, limit: int = PUBSUB_SEEN, seconds: float = PUBSUB_SEEN_SECONDS) -> None:
        self._limit = limit
        self._seconds = seconds
        self._known: OrderedDict[bytes, tuple[bytes, float, bool]] = OrderedDict()  # token, since, accepted

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

    def accept(self, id: bytes, now: float) -> Acceptance:
        """Note that a copy was accepted; the time it is remembered begins anew, because it is passed on only now."""
        known = self._known.get(id)
        if known is None:
            return "forgotten"
        if known[2]:
            return "again"
        self._known[id] = (known[0], now, True)
        self._known.move_to_end(id)
        return "first"

    def add(self, id: bytes, token: bytes, now: float, *, accepted: bool = False) -> None:
        self._known[id] = (token, now, accepted)
        self._known.move_to_end(id)
        while len(self._known) > self._limit or next(iter(self._known.values()))[1] + self._seconds <= now:
            self._known.popitem(last=False)
