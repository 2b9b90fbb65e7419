"""Which ids are taken: the names of accepted messages, so that each is accepted once while it lives.

Names are keyed hashes of (protocol, id). Hashes fall all over a B-tree, and writing a page per record would cost more
than the records themselves; so new names wait in memory and are merged into the table in sorted slices. The names in
memory are those of the newest records and are read from them again when the journal opens.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Final

import apsw

from syncline.core import limits
from syncline.core.record import Arrival
from syncline.core.verdict import Outcome
from syncline.journal.database import insert

FOREVER: Final = 2**63 - 1
NewName = tuple[bytes, int, int | None]  # name, lsn, expires_at of an accepted record

_LIVE: Final = """
SELECT n.value, coalesce(r.expires_at, ?) FROM carray(?) n JOIN records r ON r.lsn =
    (SELECT lsn FROM names WHERE name = n.value ORDER BY lsn DESC LIMIT 1)
"""


def name_of(key: bytes, protocol: str, id_: bytes) -> bytes:
    """The name under which this id is looked up. `key` is the journal's own, so nobody can aim two ids at one name."""
    return sha256(b"%b%b\0%b" % (key, protocol.encode(), id_)).digest()[:16]


def taken(column: str) -> str:
    """SQL: whether a live accepted record in the table bears the name in `column`. Binds the present time."""
    return (
        "EXISTS (SELECT 1 FROM records r WHERE coalesce(r.expires_at, 9223372036854775807) > ? AND r.lsn = "  # noqa: S608
        f"(SELECT lsn FROM names WHERE name = {column} ORDER BY lsn DESC LIMIT 1))"
    )


class _Buffer:
    """Names in memory, in 256 buckets by their first byte: bucket after bucket they leave in sorted order."""

    __slots__ = ("buckets", "expiry", "left", "newest", "next")

    def __init__(self) -> None:
        self.buckets: list[list[tuple[bytes, int]]] = [[] for _ in range(256)]
        self.expiry: dict[bytes, int] = {}
        self.left = 0  # names not in the table yet
        self.newest = 0  # lsn
        self.next = 0  # bucket

    def lsns(self, name: bytes) -> list[int]:
        return [lsn for other, lsn in self.buckets[name[0]] if other == name] if name in self.expiry else []


class Slice:
    """Names that are in the table once the transaction commits."""

    __slots__ = ("count", "indexed", "next")

    def __init__(self, following: int, count: int, indexed: int | None) -> None:
        self.next = following
        self.count = count
        self.indexed = indexed  # up to this lsn all names are then in the table; None if that has not moved


class Identities:
    """The names of accepted records: those in the table, those being merged into it, and the newest ones."""

    def __init__(self, connection: apsw.Connection, key: bytes, indexed: int) -> None:
        self.indexed = indexed
        self._key = key
        self._new = _Buffer()
        self._old = _Buffer()  # being merged
        self._since = 0  # names added since the last slice left
        self.load(connection, indexed)

    def load(self, connection: apsw.Connection, after: int) -> None:
        """Remember the names of the records after this lsn."""
        rows: Any = connection.execute(
            "SELECT lsn, protocol, id, expires_at FROM records WHERE lsn > ? AND verdict = 'accept'", (after,)
        )
        self.add([(name_of(self._key, protocol, id_), lsn, expires_at) for lsn, protocol, id_, expires_at in rows])

    def __len__(self) -> int:
        """How many names wait in memory."""
        return self._new.left + self._old.left

    def names(self, arrivals: Iterable[Arrival]) -> list[bytes | None]:
        """The name of each accepted arrival, None for the others."""
        key, accept = self._key, Outcome.ACCEPT
        return [name_of(key, a.protocol, a.id) if a.verdict is accept else None for a in arrivals]

    def lsns(self, connection: apsw.Connection, protocols: Iterable[str], id_: bytes) -> list[int]:
        """The accepted records of this id, from memory and from the table. Any thread may ask."""
        names = [name_of(self._key, protocol, id_) for protocol in protocols]
        waiting = [lsn for name in names for buffer in (self._new, self._old) for lsn in buffer.lsns(name)]
        stored: Any = connection.execute(  # after memory: what has left it by then is in the table
            "SELECT lsn FROM names WHERE name IN (SELECT value FROM carray(?))", (apsw.carray(tuple(names)),)
        )
        return [*waiting, *(lsn for (lsn,) in stored)] if names else []

    def remembers(self, names: Iterable[bytes], now: int) -> bool:
        """Whether a live accepted record among the newest ones bears one of `names`."""
        new, old = self._new.expiry, self._old.expiry
        return any(new.get(name, old.get(name, 0)) > now for name in names)

    def live(self, connection: apsw.Connection, names: list[bytes], now: int) -> set[bytes]:
        """Those of `names` that a live accepted record bears."""
        if not names:
            return set()
        stored: Any = connection.execute(_LIVE, (FOREVER, apsw.carray(tuple(names))))
        expiry: dict[bytes, int] = dict(stored)
        new, old = self._new.expiry, self._old.expiry  # newer than the table
        return {name for name in names if new.get(name, old.get(name, expiry.get(name, 0))) > now}

    def add(self, records: list[NewName]) -> None:
        """Remember newly committed records."""
        buffer = self._new
        expiry, buckets = buffer.expiry, buffer.buckets
        for name, lsn, expires_at in records:
            expiry[name] = FOREVER if expires_at is None else expires_at
            buckets[name[0]].append((name, lsn))
        if records:
            buffer.left += len(records)
            buffer.newest = records[-1][1]
            self._since += len(records)

    def due(self) -> bool:
        """Whether `merge` has something to do."""
        if self._old.left:
            return 2 * self._since >= limits.JOURNAL_NAMES_SLICE
        return self._new.left >= limits.JOURNAL_NAMES_WAITING

    def merge(self, connection: apsw.Connection) -> Slice:
        """Put the next slice into the table, inside the caller's transaction; `settle` it once that is committed.

        Twice as many names leave as come in, so one buffer is always merged before the other is full.
        """
        if not self._old.left:
            self._old, self._new = self._new, _Buffer()
        old, chosen = self._old, list[tuple[bytes, int]]()
        following = old.next
        while following < 256 and len(chosen) < max(2 * self._since, limits.JOURNAL_NAMES_SLICE):
            chosen += sorted(old.buckets[following])
            following += 1
        insert(connection, "INSERT OR IGNORE INTO names", "column1, column2", chosen)
        if following < 256:
            return Slice(following, len(chosen), None)
        connection.execute("UPDATE head SET indexed = ?", (old.newest,))
        return Slice(following, len(chosen), old.newest)

    def settle(self, done: Slice) -> None:
        """The slice is on disk."""
        self._since = 0
        self._old.next = done.next
        self._old.left -= done.count
        if done.indexed is not None:
            self.indexed = done.indexed
            self._old = _Buffer()
