"""From terms to records, and which ids are taken.

Terms are hashes and fall all over a B-tree; writing a page for each would cost several times what the records cost. So
the terms of new records wait in memory and are merged into their table in sorted slices. Those in memory are the terms
of the newest records and are read from them again when the journal opens.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import apsw

from syncline.core import limits
from syncline.journal.database import insert
from syncline.journal.rows import COLUMNS, SELECT
from syncline.journal.terms import Lexicon, Span

FOREVER: Final = 2**63 - 1
_EXPIRES_AT: Final = COLUMNS.index("expires_at") + 1
_VERDICT: Final = COLUMNS.index("verdict") + 1
Entry = tuple[int, int | None, tuple[bytes, ...]]  # lsn; when it expires, None if it was refused; terms

_LIVE: Final = """
SELECT n.value, coalesce(r.expires_at, ?) FROM carray(?) n JOIN records r ON r.lsn =
    (SELECT lsn FROM terms WHERE term = n.value ORDER BY lsn DESC LIMIT 1)
"""


def taken(column: str) -> str:
    """SQL: whether a live accepted record in the table bears the name in `column`. Binds the present time."""
    return (
        f"EXISTS (SELECT 1 FROM records r WHERE coalesce(r.expires_at, {FOREVER}) > ? AND r.lsn = "  # noqa: S608
        f"(SELECT lsn FROM terms WHERE term = {column} ORDER BY lsn DESC LIMIT 1))"
    )


def expiry(expires_at: int | None) -> int:
    return FOREVER if expires_at is None else expires_at


class _Buffer:
    """Terms in memory, in 256 buckets by their first byte: bucket after bucket they leave in sorted order."""

    __slots__ = ("buckets", "expiry", "left", "newest", "next")

    def __init__(self) -> None:
        self.buckets: list[list[tuple[bytes, int]]] = [[] for _ in range(256)]
        self.expiry: dict[bytes, int] = {}  # of accepted names
        self.left = 0  # terms not in the table yet
        self.newest = 0  # lsn
        self.next = 0  # bucket


class Slice:
    """Terms that are in the table once the transaction commits."""

    __slots__ = ("count", "indexed", "next")

    def __init__(self, following: int, count: int, indexed: int | None) -> None:
        self.next = following
        self.count = count
        self.indexed = indexed  # up to this lsn all terms are then in the table; None if that has not moved


class Index:
    """The terms of all records: those in the table, those being merged into it, and those of the newest records."""

    def __init__(self, connection: apsw.Connection, lexicon: Lexicon, indexed: int) -> None:
        self.lexicon = lexicon
        self.indexed = indexed  # the terms of every record up to this lsn are in the table
        self._new = _Buffer()
        self._old = _Buffer()  # being merged
        self._since = 0  # terms added since the last slice left
        self.load(connection, indexed)

    def __len__(self) -> int:
        """How many terms wait in memory."""
        return self._new.left + self._old.left

    def load(self, connection: apsw.Connection, after: int) -> None:
        """Remember the terms of the records after this lsn."""
        rows: Any = connection.execute(f"{SELECT} WHERE lsn > ? ORDER BY lsn", (after,))
        for row in rows:
            terms = self.lexicon.of(row[1:])
            self.add([(row[0], expiry(row[_EXPIRES_AT]) if row[_VERDICT] == "accept" else None, terms)])

    def waiting(self, spans: list[Span]) -> tuple[list[int], int]:
        """Records that have such terms and may not be in the table, and up to which lsn the table has all.

        Any thread may ask. Memory is read first: what has left it by then is in the table.
        """
        lsns = [
            lsn
            for first, last in spans
            for buffer in (self._old, self._new)
            for term, lsn in buffer.buckets[first[0]]
            if first <= term <= last
        ]
        indexed = self.indexed
        return [lsn for lsn in lsns if lsn > indexed], indexed

    def remembers(self, names: Iterable[bytes], now: int) -> bool:
        """Whether a live accepted record among the newest ones bears one of `names`."""
        new, old = self._new.expiry, self._old.expiry
        return any(new.get(name, old.get(name, 0)) > now for name in names)

    def live(self, connection: apsw.Connection, names: list[bytes], now: int) -> set[bytes]:
        """Those of `names` that a live accepted record bears."""
        if not names:
            return set()
        stored: Any = connection.execute(_LIVE, (FOREVER, apsw.carray(tuple(names))))
        table: dict[bytes, int] = dict(stored)
        new, old = self._new.expiry, self._old.expiry  # newer than the table
        return {name for name in names if new.get(name, old.get(name, table.get(name, 0))) > now}

    def add(self, entries: list[Entry]) -> None:
        """Remember newly committed records."""
        if not entries:
            return
        buffer = self._new
        buckets, expiries, count = buffer.buckets, buffer.expiry, 0
        for lsn, expires, terms in entries:
            if expires is not None:
                expiries[terms[0]] = expires
            for term in terms:
                buckets[term[0]].append((term, lsn))
            count += len(terms)
        buffer.left += count
        buffer.newest = entries[-1][0]
        self._since += count

    def due(self) -> bool:
        """Whether `merge` has something to do."""
        if self._old.left:
            return 2 * self._since >= limits.JOURNAL_TERMS_SLICE
        return self._new.left >= limits.JOURNAL_TERMS_WAITING

    def merge(self, connection: apsw.Connection) -> Slice:
        """Put the next slice into the table, inside the caller's transaction; `settle` it once that is committed.

        Twice as many terms leave as come in, so one buffer is always merged before the other is full.
        """
        if not self._old.left:
            self._old, self._new = self._new, _Buffer()
        old, chosen = self._old, list[tuple[bytes, int]]()
        following = old.next
        while following < 256 and len(chosen) < max(2 * self._since, limits.JOURNAL_TERMS_SLICE):
            chosen += sorted(old.buckets[following])
            following += 1
        insert(connection, "INSERT OR IGNORE INTO terms", "column1, column2", chosen)
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
            self.indexed = done.indexed  # before the terms leave memory: see `waiting`
            self._old = _Buffer()
