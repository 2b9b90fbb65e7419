"""How many rejected and ignored arrivals are kept as rows: so many per peer and hour, the rest only counted.

Both figures are stored with the rows they belong to, so a restart neither refills a peer's share nor forgets a count.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import apsw

from syncline.core import limits
from syncline.core.record import Arrival

OTHERS: Final = "*"  # the peers beyond REFUSED_PEERS have one share between them


class Refusals:
    """The shares of the present hour. Used by the writer's thread alone."""

    def __init__(self, connection: apsw.Connection, per_peer_hour: int, now: int) -> None:
        self._cap = per_peer_hour
        self._hour = now // limits.HOUR
        self.reload(connection)

    def reload(self, connection: apsw.Connection) -> None:
        """Go back to what is stored."""
        rows: Any = connection.execute("SELECT peer, kept FROM refused WHERE hour = ?", (self._hour,))
        self._kept: Counter[str] = Counter(dict(rows))
        self._changes: dict[tuple[int, str], list[int]] = {}
        self._counted: Counter[tuple[str, str, str]] = Counter()
        self.counted: int = connection.execute("SELECT coalesce(sum(count), 0) FROM counted").get

    def admit(self, arrival: Arrival, now: int, *, room: bool) -> bool:
        """Whether this refused arrival becomes a row; `room` is False when the disk has none for it."""
        if now // limits.HOUR > self._hour:
            self._hour, self._kept = now // limits.HOUR, Counter()
        peer = arrival.peer
        if peer not in self._kept and len(self._kept) >= limits.REFUSED_PEERS:
            peer = OTHERS
        change = self._changes.setdefault((self._hour, peer), [0, 0])
        if room and self._kept[peer] < self._cap:
            self._kept[peer] += 1
            change[0] += 1
            return True
        self._kept.setdefault(peer, 0)
        change[1] += 1
        self._counted[arrival.protocol, arrival.verdict, arrival.reason or ""] += 1
        self.counted += 1
        return False

    def write(self, connection: apsw.Connection) -> None:
        """Store what changed since the last write, inside the caller's transaction."""
        if not self._changes:
            return
        connection.executemany(
            "INSERT INTO refused VALUES (?, ?, ?, ?) ON CONFLICT (hour, peer) "
            "DO UPDATE SET kept = kept + excluded.kept, counted = counted + excluded.counted",
            [(hour, peer, kept, count) for (hour, peer), (kept, count) in self._changes.items()],
        )
        connection.executemany(
            "INSERT INTO counted VALUES (?, ?, ?, ?) ON CONFLICT (protocol, verdict, reason) "
            "DO UPDATE SET count = count + excluded.count",
            [(*names, count) for names, count in self._counted.items()],
        )
        self._changes, self._counted = {}, Counter()
