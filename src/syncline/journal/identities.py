"""Which ids are taken: the names of accepted messages, so that each is accepted once while it lives.

Names are keyed hashes of (protocol, id). Hashes fall all over a B-tree, and writing a page per record would cost more
than the records themselves; so new names wait in memory and are merged into the table in sorted slices, a slice with
each commit. The names in memory are those of the newest records and are read from them again when the journal opens.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Final

import apsw

from syncline.core import limits

FOREVER: Final = 2**63 - 1
_TAKEN: Final = """
SELECT n.value, coalesce(r.expires_at, ?) FROM carray(?) n JOIN records r ON r.lsn =
    (SELECT lsn FROM names WHERE name = n.value ORDER BY lsn DESC LIMIT 1)
"""


def name_of(key: bytes, protocol: str, id_: bytes) -> bytes:
    """The name under which this id is looked up. `key` is the journal's own, so nobody can aim two ids at one name."""
    return sha256(b"%b%b\0%b" % (key, protocol.encode(), id_)).digest()[:16]


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


class Merge:
    """A slice that is in the table once the transaction commits."""

    __slots__ = ("count", "indexed", "next")

    def __init__(self, next_: int, count: int, indexed: int | None) -> None:
        self.next = next_
        self.count = count
        self.indexed = indexed  # up to this lsn all names are then in the table; None if that has not moved


class Identities:
    """The names of accepted records: those in the table, those being merged into it, and the newest ones."""

    def __init__(self, connection: apsw.Connection, key: bytes, indexed: int) -> None:
        self._key = key
        self._new = _Buffer()
        self._old = _Buffer()  # being merged
        rows: Any = connection.execute(
            "SELECT lsn, protocol, id, expires_at FROM records WHERE lsn > ? AND verdict = 'accept'", (indexed,)
        )
        self.add((name_of(key, protocol, id_), lsn, expires_at) for lsn, protocol, id_, expires_at in rows)

    def __len__(self) -> int:
        """How many names wait in memory."""
        return self._new.left + self._old.left

    def name(self, protocol: str, id_: bytes) -> bytes:
        return name_of(self._key, protocol, id_)

    def lsns(self, connection: apsw.Connection, names: list[bytes]) -> list[int]:
        """The accepted records of these names, from memory and from the table. Any thread may ask."""
        waiting = [lsn for name in names for buffer in (self._new, self._old) for lsn in buffer.lsns(name)]
        stored: Any = connection.execute(  # after memory: what has left it by then is in the table
            "SELECT lsn FROM names WHERE name IN (SELECT value FROM carray(?))", (apsw.carray(tuple(names)),)
        )
        return [*waiting, *(lsn for (lsn,) in stored)]

    def live(self, connection: apsw.Connection, names: list[bytes], now: int) -> set[bytes]:
        """Those of `names` that a live accepted record bears."""
        new, old = self._new.expiry, self._old.expiry
        found: Any = connection.execute(_TAKEN, (FOREVER, apsw.carray(tuple(names)))) if names else ()
        expiry = {name: expires_at for name, expires_at in found if name not in new and name not in old}
        for name in names:
            if name in new:
                expiry[name] = new[name]
            elif name in old:
                expiry[name] = old[name]
        return {name for name, expires_at in expiry.items() if expires_at > now}

    def add(self, records: Iterable[tuple[bytes, int, int | None]]) -> None:
        """Remember newly committed records: name, lsn, expires_at."""
        buffer = self._new
        for name, lsn, expires_at in records:
            buffer.expiry[name] = FOREVER if expires_at is None else expires_at
            buffer.buckets[name[0]].append((name, lsn))
            buffer.left += 1
            buffer.newest = lsn

    def merge(self, connection: apsw.Connection, records: int) -> Merge | None:
        """Put a slice into the table, inside the caller's transaction of so many records; None if none is due.

        Slices are larger than what comes in meanwhile, so one buffer is always merged before the other is full.
        """
        if not self._old.left:
            if self._new.left < limits.JOURNAL_NAMES_WAITING:
                return None
            self._old, self._new = self._new, _Buffer()
        old = self._old
        wanted = max(2 * records, limits.JOURNAL_NAMES_SLICE)
        chosen: list[tuple[bytes, int]] = []
        following = old.next
        while following < 256 and len(chosen) < wanted:
            chosen += sorted(old.buckets[following])
            following += 1
        connection.executemany("INSERT OR IGNORE INTO names VALUES (?, ?)", chosen)
        indexed = old.newest if following == 256 else None
        if indexed is not None:
            connection.execute("UPDATE head SET indexed = ?", (indexed,))
        return Merge(following, len(chosen), indexed)

    def settle(self, merge: Merge) -> None:
        """The slice is on disk."""
        self._old.next = merge.next
        self._old.left -= merge.count
        if merge.indexed is not None:
            self._old = _Buffer()
