"""What the journal forgets: records that are sealed, old and no longer live, and state that has expired.

The id of a record is free again when the record expires, or, if it never does, when it is removed here: repeats are
recognised for at least `journal.retention_hours`. Protocols that must remember longer keep state. Work is bounded per
sweep, and the writer's thread does it between two commits.
"""

from __future__ import annotations

from array import array
from typing import Any, Final

import apsw
import msgspec

from syncline.core import limits
from syncline.journal.index import Change, Index

# Only what is sealed and whose terms are in a run may go; the newest record stays, for it holds the numbering.
_OLD: Final = """
SELECT lsn, received_at, expires_at FROM records INDEXED BY records_by_time
WHERE received_at >= :start AND received_at < :cutoff AND lsn <= :last ORDER BY received_at LIMIT :limit
"""


class Swept(msgspec.Struct, frozen=True):
    """What one sweep removed, and whether there may be more to remove at once."""

    records: int
    states: int
    more: bool
    change: Change | None = None  # to terms


class Retention:
    """Sweeps a little at a time; long-lived records on the way are stepped over, and met again in the next round."""

    def __init__(self, hours: float, index: Index) -> None:
        self._keep = int(hours * limits.HOUR)
        self._index = index
        self._limit = limits.JOURNAL_SWEEP_RECORDS
        self._start = 0

    def sweep(self, connection: apsw.Connection, now: int) -> Swept:
        """Remove what is due, up to a bound, inside the caller's transaction; `settle` the result after its commit."""
        cutoff = now - self._keep
        sealed, newest = connection.execute("SELECT sealed, (SELECT max(lsn) FROM records) FROM head").get
        last = min(sealed, (newest or 0) - 1)
        if len(self._index):
            last = min(last, self._index.indexed)
        gone, more_records = self._old(connection, last, cutoff, now)
        if gone:
            lsns = apsw.carray(array("q", gone))
            connection.execute("DELETE FROM records WHERE lsn IN (SELECT value FROM carray(?))", (lsns,))
        states, more_states = self._sweep_states(connection, now)
        connection.execute("DELETE FROM refused WHERE hour < ?", (now // limits.HOUR,))
        held_back: Any = connection.execute(
            "SELECT received_at < ? FROM records WHERE lsn > ? AND lsn <= ? LIMIT 1", (cutoff, last, sealed)
        ).fetchone()
        merge = bool(held_back and held_back[0] and len(self._index))
        change = None
        if gone:
            change = self._index.forget(connection, gone)
        elif merge:
            change = self._index.merge(connection)
        return Swept(len(gone), states, more_records or more_states or merge, change)

    def settle(self, swept: Swept) -> None:
        """The sweep is on disk."""
        if swept.change is not None:
            self._index.settle(swept.change)

    def _old(self, connection: apsw.Connection, last: int, cutoff: int, now: int) -> tuple[list[int], bool]:
        """The records to remove now, and whether there may be more."""
        bindings = {"start": self._start, "cutoff": cutoff, "last": last, "limit": self._limit}
        found: list[Any] = connection.execute(_OLD, bindings).fetchall()
        full = len(found) == self._limit
        self._start = found[-1][1] if full and found[-1][1] > self._start else 0
        return [lsn for lsn, _, expires_at in found if (expires_at or 0) <= now], full

    def _sweep_states(self, connection: apsw.Connection, now: int) -> tuple[int, bool]:
        found: list[Any] = connection.execute(
            "SELECT space, key FROM state WHERE expires_at <= ? ORDER BY expires_at LIMIT ?", (now, self._limit)
        ).fetchall()
        connection.executemany("DELETE FROM state WHERE space = ? AND key = ?", found)
        return len(found), len(found) == self._limit
