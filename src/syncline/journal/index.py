"""From terms to records, and which ids are taken.

The terms of the newest records are in memory (newest.py), those of all others in runs (runs.py). When enough records
have come, their terms become a run, a kind of term with each of the following commits; they stay in memory until all of
it is on disk, and when the journal opens they are made again from their records. Names, which must be unique, are looked
for in memory, and in those runs whose filter (names.py) says that they may be there.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import Any, Final

import apsw

from syncline.core import limits
from syncline.journal.names import Filters
from syncline.journal.newest import KINDS, Fresh, Newest
from syncline.journal.rows import COLUMNS
from syncline.journal.runs import (
    Run,
    names_of,
    newest_entry,
    remove_chunks,
    remove_run,
    runs,
    write_chunks,
    write_run,
)
from syncline.journal.terms import FOREVER, FOUND_BY, NAME, Lexicon, Span, expiry_of, lsn_of

# Rows from which terms are made; what does not take part in that, such as the messages, is not read.
_TERMS_OF: Final = (
    f"SELECT lsn, {', '.join(name if name in FOUND_BY else 'NULL' for name in COLUMNS)} "  # noqa: S608
    "FROM records WHERE lsn > ? AND lsn <= ? ORDER BY lsn"
)


class Change:
    """What is so once the transaction commits."""

    __slots__ = ("indexed", "names", "runs", "steps")

    def __init__(self, runs: list[Run], names: dict[int, bytes] | None = None) -> None:
        self.runs = runs
        self.names = names or {}  # of runs that are new, as entries
        self.steps = 0  # kinds of terms that went to the table
        self.indexed: int | None = None  # up to this lsn all terms are then in runs; None if that has not moved


class Index:
    """The terms of all records: those in runs, those becoming one, and those of the newest records."""

    def __init__(self, connection: apsw.Connection, lexicon: Lexicon, indexed: int) -> None:
        self.lexicon = lexicon
        self.indexed = indexed  # the terms of every record up to this lsn are in runs
        self.filters: Final = Filters()
        self._runs: list[Run] = []
        self._memory = (Newest(), Newest())  # becoming a run; newer. Exchanged at once, for readers in other threads
        self._number = 0  # of the run that the former become
        self._steps = 0  # kinds of their terms that are in the table
        self._since = 0  # records added since the last of them went there
        self.reload(connection)
        self.load(connection, indexed)

    def __len__(self) -> int:
        """How many records have terms in memory only."""
        return len(self._memory[0]) + len(self._memory[1])

    @property
    def count(self) -> int:
        """How many runs there are."""
        return len(self._runs)

    def load(self, connection: apsw.Connection, after: int) -> None:
        """Remember the terms of the records after this lsn."""
        remember(connection, self.lexicon, self._memory[1], after, FOREVER)

    def reload(self, connection: apsw.Connection) -> None:
        """Look at the runs there are: when the journal opens, or when it is not sure which were committed."""
        found, before = runs(connection), {run.number for run in self._runs}
        names = {run.number: names_of(connection, run.number) for run in found if run.number not in before}
        change = Change(found, names)
        if len(self._memory[0]):  # it may have become a run, though the commit seemed to fail
            change.indexed = next((run.last for run in found if run.number == self._number), None)
        self.settle(change)  # all of it or, if it cannot be read, nothing

    def waiting(self, spans: list[Span]) -> tuple[list[int], int]:
        """Records with terms there that may be in no run, and up to which lsn the runs have all.

        Any thread may ask. Memory is read first: what has left it by then is in a run.
        """
        lsns = {lsn for newest in self._memory for span in spans for lsn in newest.between(span)}
        indexed = self.indexed
        return sorted(lsn for lsn in lsns if lsn > indexed), indexed

    def takes(self, connection: apsw.Connection, names: set[bytes], now: int) -> bool:
        """Whether a live record bears one of `names`."""
        if all(newest.none_of(names) for newest in self._memory) and not self.filters.find(names):
            return False
        return bool(self.live(connection, list(names), now))

    def live(self, connection: apsw.Connection, names: list[bytes], now: int) -> set[bytes]:
        """Those of `names` that a live record bears."""
        if not names:
            return set()
        held = self.filters.find(names)
        found = set()
        for name in names:
            expiry = self._remembered(name)
            if expiry is None and name in held:
                expiry = self._stored(connection, name, held[name])
            if expiry is not None and expiry > now:
                found.add(name)
        return found

    def add(self, records: Fresh) -> None:
        """Remember newly committed records."""
        self._memory[1].add(records, self.lexicon)
        self._since += len(records.lsns)

    def due(self) -> bool:
        """Whether `merge` should go with the next commit."""
        if len(self._memory[0]):
            return self._since >= limits.JOURNAL_SLICE_RECORDS
        return len(self._memory[1]) >= limits.JOURNAL_RUN_RECORDS

    def merge(self, connection: apsw.Connection) -> Change:
        """Take the next kind of terms to the table, in the caller's transaction; `settle` it once that is committed.

        Of few records, several kinds.
        """
        if not len(self._memory[0]):
            self._memory = (self._memory[1], Newest())
            self._steps, self._number = 0, 1 + max((run.number for run in self._runs), default=0)
        old, change = self._memory[0], Change(self._runs)
        if self._steps == 0:
            remove_chunks(connection, self._number)  # what a crash left behind
        change.steps = min(self._steps + max(1, limits.JOURNAL_SLICE_RECORDS // len(old)), len(KINDS))
        for kind in KINDS[self._steps : change.steps]:
            entries = old.entries(kind)
            write_chunks(connection, self._number, kind, entries)
            if kind == NAME:
                change.names[self._number] = entries
        if change.steps == len(KINDS):
            run = Run(self._number, self.indexed, old.lsns[-1], len(old))
            write_run(connection, run)
            connection.execute("UPDATE head SET indexed = ?", (run.last,))
            change.runs, change.indexed = [*self._runs, run], run.last
        return change

    def forget(self, connection: apsw.Connection, lsns: list[int]) -> Change:
        """Let go of the terms of removed records, in the caller's transaction; `settle` it once that is committed.

        A run is removed when it has lost all of its records, and two neighbours become one when they have few.
        """
        gone, change = sorted(lsns), Change([])
        for run in self._runs:
            lost = bisect_right(gone, run.last) - bisect_right(gone, run.after)
            if lost == run.records:
                remove_run(connection, run.number)
                continue
            if lost:
                run = run._replace(records=run.records - lost)
                write_run(connection, run)
            change.runs.append(run)
        if not len(self._memory[0]):  # else there may be a number in use that no run has yet
            self._join(connection, change)
        return change

    def settle(self, change: Change) -> None:
        """The change is on disk."""
        for number in {run.number for run in self._runs} - {run.number for run in change.runs}:
            self.filters.drop(number)
        for number, entries in change.names.items():
            self.filters.add(number, entries)
        self._runs = change.runs
        if change.steps:
            self._steps, self._since = change.steps, 0
        if change.indexed is not None:
            self.indexed = change.indexed  # before the terms leave memory: see `waiting`
            self._memory = (Newest(), self._memory[1])

    def _join(self, connection: apsw.Connection, change: Change) -> None:
        """Make one run of two neighbours, if there are two small enough."""
        for at, (one, two) in enumerate(pairwise(change.runs)):
            if one.records + two.records > limits.JOURNAL_RUN_RECORDS // 2:
                continue
            number, terms = 1 + max(run.number for run in self._runs), Newest()
            remember(connection, self.lexicon, terms, one.after, two.last)
            for run in (one, two):
                remove_run(connection, run.number)
            joined = Run(number, one.after, two.last, len(terms))
            write_whole(connection, joined, terms)
            change.runs[at : at + 2] = [joined]
            change.names[number] = terms.entries(NAME)
            return

    def _remembered(self, name: bytes) -> int | None:
        """When a name is free again, if one of the newest records bears it."""
        old, new = self._memory
        expiry = new.expiry(name)
        return old.expiry(name) if expiry is None else expiry

    def _stored(self, connection: apsw.Connection, name: bytes, held: list[int]) -> int:
        """When a name is free again that some runs may hold. Without an end it is taken while its record is there."""
        for run in reversed(self._runs):
            entry = newest_entry(connection, run.number, name) if run.number in held else None
            if entry is None:
                continue
            expiry = int.from_bytes(entry[-8:], "big")
            if (
                expiry == FOREVER
                and not connection.execute("SELECT 1 FROM records WHERE lsn = ?", (lsn_of(entry),)).get
            ):
                return 0
            return expiry
        return 0


def remember(connection: apsw.Connection, lexicon: Lexicon, newest: Newest, after: int, last: int) -> None:
    """Make the terms of stored records anew."""
    fresh = Fresh()
    for lsn, *columns in connection.execute(_TERMS_OF, (after, last)):
        row: Any = tuple(columns)
        fresh.add(lsn, expiry_of(row), lexicon.name_of(row), row)
    newest.add(fresh, lexicon)


def write_whole(connection: apsw.Connection, run: Run, terms: Newest) -> None:
    """Make a run of these terms at once."""
    remove_chunks(connection, run.number)  # what a crash left behind
    for kind in KINDS:
        write_chunks(connection, run.number, kind, terms.entries(kind))
    write_run(connection, run)
