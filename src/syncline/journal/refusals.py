"""How many rejected and ignored arrivals are kept as rows: so many per peer and hour, the rest only counted.

Both figures are stored with the rows they belong to, so a restart neither refills a peer's share nor forgets a count.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any, Final

import apsw

from syncline.core import limits
from syncline.core.record import Arrival

OTHERS: Final = "*"  # the peers beyond REFUSED_PEERS share this share


class Refusals:
    """The shares of the present hour."""

    def __init__(self, connection: apsw.Connection, per_peer_hour: int, now: int) -> None:
        self._cap = per_peer_hour
        self._lock = threading.Lock()
        self._hour = now // limits.HOUR
        rows: list[Any] = connection.execute("SELECT peer, kept FROM refused WHERE hour = ?", (self._hour,)).fetchall()
        self._kept: Counter[str] = Counter(dict(rows))
        self._changed: dict[tuple[int, str], list[int]] = {}
        self._counted: Counter[tuple[str, str, str]] = Counter()
        self.counted_total: int = connection.execute("SELECT coalesce(sum(count), 0) FROM counted").get

    def admit(self, arrival: Arrival, now: int, *, room: bool) -> bool:
        """Whether this refused arrival becomes a row; `room` is False when the disk has none for it."""
        with self._lock:
            hour = now // limits.HOUR
            if hour > self._hour:
                self._hour, self._kept = hour, Counter()
            peer = arrival.peer
            if peer not in self._kept and len(self._kept) >= limits.REFUSED_PEERS:
                peer = OTHERS
            keep = room and self._kept[peer] < self._cap
            if keep:
                self._kept[peer] += 1
            else:
                self._counted[arrival.protocol, arrival.verdict.value, arrival.reason or ""] += 1
                self.counted_total += 1
            change = self._changed.setdefault((self._hour, peer), [0, 0])
            change[0 if keep else 1] += 1
            return keep

    def write(self, connection: apsw.Connection) -> None:
        """Store what changed since the last write, inside the caller's transaction."""
        if not self._changed:
            return
        with self._lock:
            changed, self._changed = self._changed, {}
            counted, self._counted = self._counted, Counter()
        connection.executemany(
            "INSERT INTO refused VALUES (?, ?, ?, ?) ON CONFLICT (hour, peer) "
            "DO UPDATE SET kept = kept + excluded.kept, counted = counted + excluded.counted",
            [(hour, peer, kept, count) for (hour, peer), (kept, count) in changed.items()],
        )
        connection.executemany(
            "INSERT INTO counted VALUES (?, ?, ?, ?) ON CONFLICT (protocol, verdict, reason) "
            "DO UPDATE SET count = count + excluded.count",
            [(*names, count) for names, count in counted.items()],
        )
