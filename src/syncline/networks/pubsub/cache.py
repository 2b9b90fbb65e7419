"""Recent messages, kept for a few heartbeats to be announced (IHAVE) and handed out again (IWANT). Bounded in bytes."""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

from syncline.core.limits import PUBSUB_CACHE_BYTES

HISTORY: Final = 5  # heartbeats a message can be asked for
GOSSIP: Final = 3  # heartbeats in which it is announced
RESENDS: Final = 3  # how often one peer gets the same message on request


class _Entry:
    __slots__ = ("asked", "raw", "topic")

    def __init__(self, topic: str, raw: bytes) -> None:
        self.topic, self.raw = topic, raw
        self.asked: Counter[str] = Counter()


class MessageCache:
    """A sliding window of messages; past its bytes, the oldest go first."""

    def __init__(self, limit: int = PUBSUB_CACHE_BYTES) -> None:
        self._limit = limit
        self._entries: dict[bytes, _Entry] = {}  # in order of arrival
        self._windows: deque[list[bytes]] = deque([[]], maxlen=HISTORY)
        self.bytes = 0

    def put(self, id: bytes, topic: str, raw: bytes) -> None:
        if id in self._entries:
            return
        self._entries[id] = _Entry(topic, raw)
        self._windows[0].append(id)
        self.bytes += len(raw)
        while self.bytes > self._limit:
            self._forget(next(iter(self._entries)))

    def ask(self, id: bytes, peer: str) -> bytes | None:
        """The message for a peer that wants it, unless it has had it often enough."""
        entry = self._entries.get(id)
        if entry is None or entry.asked[peer] >= RESENDS:
            return None
        entry.asked[peer] += 1
        return entry.raw

    def announced(self, topic: str) -> list[bytes]:
        """Ids of a topic to tell others about."""
        windows = list(self._windows)[:GOSSIP]
        return [id for window in windows for id in window if id in self._entries and self._entries[id].topic == topic]

    def shift(self) -> None:
        """A heartbeat has passed."""
        if len(self._windows) == HISTORY:
            for id in self._windows[-1]:
                self._forget(id)
        self._windows.appendleft([])

    def _forget(self, id: bytes) -> None:
        entry = self._entries.pop(id, None)
        if entry is not None:
            self.bytes -= len(entry.raw)
