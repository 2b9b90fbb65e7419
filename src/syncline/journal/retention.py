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
from syncline.journal.index import Index, Slice
from syncline.journal.rows import COLUMNS, SELECT

# Only what is sealed and whose terms are in the table may go; the newest record stays, for it holds the numbering.
_OLD: Final = f"""
{SELECT.replace("raw FROM", "NULL FROM")} INDEXED BY records_by_time
WHERE received_at >= :start AND received_at < :cutoff AND lsn <= :last ORDER BY received_at LIMIT :limit
"""  # the raw bytes stay where they are
_RECEIVED_AT: Final = COLUMNS.index("received_at") + 1
_EXPIRES_AT: Final = COLUMNS.index("expires_at") + 1


class Swept(msgspec.Struct, frozen=True):
    """What one sweep removed, and whether there may be more to remove at once."""

    records: int
    states: int
    more: bool
    slice: Slice | None = None  # terms that had to go to the table first


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
        records, more_records = self._sweep_records(connection, last, cutoff, now)
        states, more_states = self._sweep_states(connection, now)
        connection.execute("DELETE FROM refused WHERE hour < ?", (now // limits.HOUR,))
        held_back: Any = connection.execute(
            "SELECT received_at < ? FROM records WHERE lsn > ? AND lsn <= ? LIMIT 1", (cutoff, last, sealed)
        ).fetchone()
        merge = bool(held_back and held_back[0] and len(self._index))
        return Swept(
            records,
            states,
            more_records or more_states or merge,
            self._index.merge(connection) if merge else None,
        )

    def settle(self, swept: Swept) -> None:
        """The sweep is on disk."""
        if swept.slice is not None:
            self._index.settle(swept.slice)

    def _sweep_records(self, connection: apsw.Connection, last: int, cutoff: int, now: int) -> tuple[int, bool]:
        bindings = {"start": self._start, "cutoff": cutoff, "last": last, "limit": self._limit}
        found: list[Any] = connection.execute(_OLD, bindings).fetchall()
        full = len(found) == self._limit
        self._start = found[-1][_RECEIVED_AT] if full and found[-1][_RECEIVED_AT] > self._start else 0
        gone = [row for row in found if (row[_EXPIRES_AT] or 0) <= now]
        if gone:
            entries = apsw.carray(tuple(sorted(entry for row in gone for entry in self._index.lexicon.entries(row))))
            connection.execute("DELETE FROM terms WHERE entry IN (SELECT value FROM carray(?))", (entries,))
            lsns = apsw.carray(array("q", [row[0] for row in gone]))
            connection.execute("DELETE FROM records WHERE lsn IN (SELECT value FROM carray(?))", (lsns,))
        return len(gone), full

    def _sweep_states(self, connection: apsw.Connection, now: int) -> tuple[int, bool]:
        found: list[Any] = connection.execute(
            "SELECT space, key FROM state WHERE expires_at <= ? ORDER BY expires_at LIMIT ?", (now, self._limit)
        ).fetchall()
        connection.executemany("DELETE FROM state WHERE space = ? AND key = ?", found)
        return len(found), len(found) == self._limit
