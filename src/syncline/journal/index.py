"""From terms to records, and which ids are taken.

Terms are hashes and fall all over a B-tree; writing a page for each would cost several times what the records cost. So
the entries of new records wait in memory and are merged into their table in sorted slices. Those in memory are the
entries of the newest records and are read from them again when the journal opens. They are made when the writer has
nothing else to do, when somebody asks for them, or when too many are still to be made: under load the event loop waits
for whatever the writer does in Python, and only names are needed at once.
"""

from __future__ import annotations

import threading
from collections import deque
from itertools import islice
from typing import Any, Final

import apsw

from syncline.core import limits
from syncline.journal.rows import COLUMNS, Row
from syncline.journal.terms import (
    FOREVER,
    FOUND_BY,
    HASH_BYTES,
    KEY,
    PUBLISHER,
    SEQ,
    SEQUENCE,
    TOPIC,
    Lexicon,
    Span,
    expiry_of,
    lsn_of,
)

Named = tuple[int, int | None, bytes, Row]  # lsn; when the name is free again, None if it was not taken; name; row
_Unfiled = tuple[
    int, int | None, bytes, str, str, str, bytes | None
]  # the same; topic, key, publisher and seq of the row
_TERMS: Final = 5  # of one record, at most

# When the name in column {0} is free again; no row if nobody ever took it. Blobs compare as big-endian numbers do.
_EXPIRY: Final = (
    "(SELECT substr(entry, 25) FROM terms WHERE entry BETWEEN {0} AND CAST({0} || x'ff' AS BLOB) "
    "ORDER BY entry DESC LIMIT 1)"
)
# Only the names that are taken: every row of an answer lets go of the interpreter's lock and has to win it back.
_TAKEN: Final = f"SELECT n.value FROM carray(?) n WHERE {_EXPIRY.format('n.value')} > ?"  # noqa: S608
# Rows from which terms are made; what does not take part in that, such as the messages, is not read.
_TERMS_AFTER: Final = (
    f"SELECT lsn, {', '.join(name if name in FOUND_BY else 'NULL' for name in COLUMNS)} "  # noqa: S608
    "FROM records WHERE lsn > ? ORDER BY lsn"
)
_FOREVER: Final = FOREVER.to_bytes(8, "big")
_MERGE: Final = "INSERT OR IGNORE INTO terms SELECT value FROM carray(?)"


def taken(column: str) -> str:
    """SQL: whether a live record in the table bears the name in this column. Binds the present time (`moment`)."""
    return f"coalesce({_EXPIRY.format(column)} > ?, FALSE)"


def moment(now: int) -> bytes:
    """A time as entries hold it."""
    return max(now, 0).to_bytes(8, "big")


class _Buffer:
    """Entries in memory, in 256 buckets by their first byte: bucket after bucket they leave in sorted order."""

    __slots__ = ("buckets", "expiry", "left", "most", "newest", "next", "put", "unfiled")

    def __init__(self) -> None:
        self.buckets: list[list[bytes]] = [[] for _ in range(256)]
        self.put = [bucket.append for bucket in self.buckets]  # looking these up takes as long as calling them
        self.expiry: dict[bytes, int] = {}  # of names
        self.unfiled: deque[_Unfiled] = deque()  # whose entries are not made yet
        self.left = 0  # entries that are made and not in the table yet
        self.most = 0  # entries of all its records, at most
        self.newest = 0  # lsn; 0 in a buffer that is not in use
        self.next = 0  # bucket

    def __len__(self) -> int:
        return self.left + _TERMS * len(self.unfiled)


class Slice:
    """Entries that are in the table once the transaction commits."""

    __slots__ = ("count", "indexed", "next")

    def __init__(self, following: int, count: int, indexed: int | None) -> None:
        self.next = following
        self.count = count
        self.indexed = indexed  # up to this lsn all entries are then in the table; None if that has not moved


class Index:
    """The entries of all records: those in the table, those being merged into it, and those of the newest records."""

    def __init__(self, connection: apsw.Connection, lexicon: Lexicon, indexed: int) -> None:
        self.lexicon = lexicon
        self.indexed = indexed  # the entries of every record up to this lsn are in the table
        self._new = _Buffer()
        self._old = _Buffer()  # being merged
        self._since = 0  # entries added since the last slice left
        self._filing = threading.Lock()
        self.load(connection, indexed)

    def __len__(self) -> int:
        """How many entries wait in memory, at most."""
        return len(self._new) + len(self._old)

    def load(self, connection: apsw.Connection, after: int) -> None:
        """Remember the entries of the records after this lsn."""
        rows: Any = connection.execute(_TERMS_AFTER, (after,))
        while some := list(islice(rows, limits.API_PAGE_RECORDS)):
            self.add([(row[0], expiry_of(row[1:]), self.lexicon.name_of(row[1:]), row[1:]) for row in some])

    def waiting(self, spans: list[Span]) -> tuple[list[int], int]:
        """Records with entries there that may not be in the table, and up to which lsn the table has all.

        Any thread may ask. Memory is read first: what has left it by then is in the table.
        """
        while self.file():
            pass
        lsns = {
            lsn_of(entry)
            for first, last in spans
            for buffer in (self._old, self._new)
            for entry in buffer.buckets[first[0]]
            if first <= entry <= last
        }
        indexed = self.indexed
        return sorted(lsn for lsn in lsns if lsn > indexed), indexed

    def remembers(self, names: set[bytes], now: int) -> bool:
        """Whether a live record among the newest ones bears one of `names`."""
        new, old = self._new.expiry, self._old.expiry
        if new.keys().isdisjoint(names) and old.keys().isdisjoint(names):
            return False
        return any(new.get(name, old.get(name, 0)) > now for name in names)

    def live(self, connection: apsw.Connection, names: list[bytes], now: int) -> set[bytes]:
        """Those of `names` that a live record bears."""
        if not names:
            return set()
        found: Any = connection.execute(_TAKEN, (apsw.carray(tuple(names)), moment(now)))
        table = {name: FOREVER for (name,) in found}
        new, old = self._new.expiry, self._old.expiry  # newer than the table
        return {name for name in names if new.get(name, old.get(name, table.get(name, 0))) > now}

    def add(self, records: list[Named]) -> None:
        """Remember newly committed records."""
        if not records:
            return
        buffer = self._new
        buffer.expiry.update([(name, expiry) for _, expiry, name, _ in records if expiry is not None])
        buffer.unfiled += [
            (lsn, expiry, name, row[TOPIC], row[KEY], row[PUBLISHER], row[SEQ]) for lsn, expiry, name, row in records
        ]
        buffer.newest = records[-1][0]
        buffer.most += _TERMS * len(records)
        self._since += _TERMS * len(records)
        if len(buffer.unfiled) > limits.JOURNAL_UNFILED:
            self.file(2 * len(records))

    def file(self, count: int = limits.JOURNAL_FILED_AT_ONCE) -> bool:
        """Make the entries of some records, the oldest that have none; whether there were any. Any thread may do it."""
        with self._filing:
            buffer = self._old if self._old.unfiled else self._new
            some = [buffer.unfiled[n] for n in range(min(count, len(buffer.unfiled)))]
            self._make(buffer, some)
            for _ in some:
                buffer.unfiled.popleft()
        return bool(some)

    def _make(self, buffer: _Buffer, records: list[_Unfiled]) -> None:
        """The entries that `Lexicon.entries` makes, without a call and a list for each record."""
        put, lexicon, count = buffer.put, self.lexicon, len(records)
        topic_of, key_of, publisher_of = lexicon.topic, lexicon.key, lexicon.publisher
        for lsn, expiry, name, topic, key, publisher, seq in records:
            number = lsn.to_bytes(8, "big")
            if expiry is None:
                put[name[0]](name + number)
            else:
                put[name[0]](name + number + (_FOREVER if expiry == FOREVER else expiry.to_bytes(8, "big")))
            if topic:
                term = topic_of(topic)
                put[term[0]](term + number)
                count += 1
                if seq:
                    put[term[0]](term[:HASH_BYTES] + SEQUENCE + seq + number)
                    count += 1
            if key:
                term = key_of(key)
                put[term[0]](term + number)
                count += 1
            if publisher:
                term = publisher_of(publisher)
                put[term[0]](term + seq + number if seq else term + number)
                count += 1
        buffer.left += count

    def due(self) -> bool:
        """Whether `merge` has something to do."""
        if self._old.newest:
            return 2 * self._since >= limits.JOURNAL_TERMS_SLICE
        return self._new.most >= limits.JOURNAL_TERMS_WAITING  # whether or not they are made: commits are then the same

    def merge(self, connection: apsw.Connection) -> Slice:
        """Put the next slice into the table, inside the caller's transaction; `settle` it once that is committed.

        Twice as many entries leave as come in, so one buffer is always merged before the other is full.
        """
        if not self._old.newest:
            with self._filing:
                self._old, self._new = self._new, _Buffer()
        old, following = self._old, self._old.next
        while old.unfiled:  # only right after the exchange, and only if there was no quiet moment before
            self.file()
        chosen: list[bytes] = []
        enough = max(2 * self._since, limits.JOURNAL_TERMS_SLICE)
        while following < 256 and (len(chosen) < enough or not old.buckets[following]):
            chosen += sorted(old.buckets[following])
            following += 1
        if chosen:
            connection.execute(_MERGE, (apsw.carray(tuple(chosen)),))
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
            self.indexed = done.indexed  # before the entries leave memory: see `waiting`
            self._old = _Buffer()
