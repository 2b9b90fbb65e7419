"""Is every record found by its terms, and was no id accepted twice? The part of verify.py that knows runs.

Reads while others may write: what looks wrong is looked at once more, in one moment, before it is called a problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge
from itertools import pairwise

from syncline.core import limits
from syncline.core.errors import CorruptionError
from syncline.journal.newest import KINDS
from syncline.journal.reading import Reading
from syncline.journal.rows import Row
from syncline.journal.runs import entries, holds, runs
from syncline.journal.terms import NAME, TERM_BYTES, Lexicon, lsn_of

_COUNTED = """
SELECT records, (SELECT count(*) FROM records WHERE lsn > runs.after AND lsn <= runs.last) FROM runs WHERE run = ?
"""


class TermsCheck:
    """Checks terms of records that come in the order of their numbers, then the runs themselves."""

    def __init__(self, journal: Reading, add: Callable[[str], None]) -> None:
        self._journal = journal
        self._add = add
        self._lexicon = Lexicon(journal.about.key)
        self._covered = (0, 0)  # the records after this one, up to that one, have their terms in `_entries`
        self._entries: set[bytes] | None = set()  # None if they cannot be read

    def check_records(self, rows: list[Row]) -> None:
        """That these rows are found by all of their terms."""
        for row in rows:
            if row[0] > self._journal.about.indexed:
                return
            wanted, found = self._lexicon.entries(row), self._near(row[0])
            if found is None or found.issuperset(wanted):
                continue
            with self._journal.moment():
                missed = self._missed(row[0], wanted)
            if missed:
                self._add(f"record {row[0]} is not found by all of its terms")

    def check_runs(self) -> None:
        """That runs follow one another, and know how many of their records are left: the last one takes them along."""
        found = runs(self._journal.connection)
        if any(one.last > two.after for one, two in pairwise(found)):
            self._add("the runs of terms overlap")
        for run in found:
            for counted, there in self._journal.all(_COUNTED, (run.number,)):
                if counted != there:
                    self._add(f"run {run.number} of terms counts {counted} records, but {there} are there")

    def check_names(self) -> None:
        """That no id was accepted again while it was taken. An hour is allowed, for clocks that were set."""
        last, living = b"", b""
        for entry in merge(*(self._names(run.number) for run in runs(self._journal.connection))):
            if entry <= last:  # pages in each other's place
                self._add("the table of terms is out of order")
                return
            twin, last = last[:TERM_BYTES] == entry[:TERM_BYTES], entry
            if not twin:
                living = entry
                continue
            if self._received_at(living) is None:  # removed, and its name free again
                living = entry
                continue
            received_at = self._received_at(entry)
            if received_at is None:
                continue
            if int.from_bytes(living[-8:], "big") > received_at + limits.HOUR:
                self._add(f"records {lsn_of(living)} and {lsn_of(entry)} are accepted under the same id")
            living = entry

    def _near(self, lsn: int) -> set[bytes] | None:
        """All entries of the run that this record is in."""
        if not self._covered[0] < lsn <= self._covered[1]:
            self._covered, self._entries = (lsn - 1, lsn), set()
            with self._journal.moment():
                for run in runs(self._journal.connection, lsn - 1, lsn):
                    self._covered, self._entries = (run.after, run.last), self._all(run.number)
        return self._entries

    def _all(self, run: int) -> set[bytes] | None:
        try:
            return {entry for kind in KINDS for entry in entries(self._journal.connection, run, kind)}
        except CorruptionError as error:
            self._add(error.message)
            return None

    def _missed(self, lsn: int, wanted: list[bytes]) -> bool:
        """Whether a record is there and some of its entries are not, after all."""
        connection = self._journal.connection
        if not self._journal.one("SELECT count(*) FROM records WHERE lsn = ?", (lsn,)):
            return False  # removed meanwhile
        covering = runs(connection, lsn - 1, lsn)
        return any(not any(holds(connection, run.number, entry) for run in covering) for entry in wanted)

    def _names(self, run: int) -> Iterator[bytes]:
        try:
            yield from entries(self._journal.connection, run, NAME)
        except CorruptionError as error:
            self._add(error.message)

    def _received_at(self, entry: bytes) -> int | None:
        found: int | None = self._journal.one("SELECT received_at FROM records WHERE lsn = ?", (lsn_of(entry),))
        return found
