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
from syncline.journal.identities import Identities, Slice, name_of

# Only what is sealed and whose name is in the table may go; the newest record stays, for it holds the numbering.
_OLD: Final = """
SELECT lsn, received_at, protocol, id, verdict, coalesce(expires_at, 0) > :now FROM records INDEXED BY records_by_time
WHERE received_at >= :start AND received_at < :cutoff AND lsn <= :last ORDER BY received_at LIMIT :limit
"""


class Swept(msgspec.Struct, frozen=True):
    """What one sweep removed, and whether there may be more to remove at once."""

    records: int
    states: int
    more: bool
    slice: Slice | None = None  # names that had to go to the table first


class Retention:
    """Sweeps a little at a time; long-lived records on the way are stepped over, and met again in the next round."""

    def __init__(self, key: bytes, hours: float, identities: Identities) -> None:
        self._key = key
        self._keep = int(hours * limits.HOUR)
        self._identities = identities
        self._limit = limits.JOURNAL_SWEEP_RECORDS
        self._start = 0

    def sweep(self, connection: apsw.Connection, now: int) -> Swept:
        """Remove what is due, up to a bound, inside the caller's transaction; `settle` the result after its commit."""
        cutoff = now - self._keep
        sealed, newest = connection.execute("SELECT sealed, (SELECT max(lsn) FROM records) FROM head").get
        last = min(sealed, (newest or 0) - 1)
        if len(self._identities):
            last = min(last, self._identities.indexed)
        records, more_records = self._sweep_records(connection, last, cutoff, now)
        states, more_states = self._sweep_states(connection, now)
        connection.execute("DELETE FROM refused WHERE hour < ?", (now // limits.HOUR,))
        held_back: Any = connection.execute(
            "SELECT received_at < ? FROM records WHERE lsn > ? AND lsn <= ? LIMIT 1", (cutoff, last, sealed)
        ).fetchone()
        merge = bool(held_back and held_back[0] and len(self._identities))
        return Swept(
            records,
            states,
            more_records or more_states or merge,
            self._identities.merge(connection) if merge else None,
        )

    def settle(self, swept: Swept) -> None:
        """The sweep is on disk."""
        if swept.slice is not None:
            self._identities.settle(swept.slice)

    def _sweep_records(self, connection: apsw.Connection, last: int, cutoff: int, now: int) -> tuple[int, bool]:
        bindings = {"now": now, "start": self._start, "cutoff": cutoff, "last": last, "limit": self._limit}
        found: list[Any] = connection.execute(_OLD, bindings).fetchall()
        full = len(found) == self._limit
        self._start = found[-1][1] if full and found[-1][1] > self._start else 0
        gone = [row for row in found if not row[-1]]
        names = sorted((name_of(self._key, row[2], row[3]), row[0]) for row in gone if row[4] == "accept")
        connection.executemany("DELETE FROM names WHERE name = ? AND lsn = ?", names)
        if gone:
            lsns = apsw.carray(array("q", [row[0] for row in gone]))
            connection.execute("DELETE FROM records WHERE lsn IN (SELECT value FROM carray(?))", (lsns,))
        return len(gone), full

    def _sweep_states(self, connection: apsw.Connection, now: int) -> tuple[int, bool]:
        found: list[Any] = connection.execute(
            "SELECT space, key FROM state WHERE expires_at <= ? ORDER BY expires_at LIMIT ?", (now, self._limit)
        ).fetchall()
        connection.executemany("DELETE FROM state WHERE space = ? AND key = ?", found)
        return len(found), len(found) == self._limit
