"""Is everything there, once, and as it was written? The long answer, for the database, its blobs and its segments.

Reads everything and changes nothing. What to do about damage is decided by people, with recover.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow.compute as pc

from syncline.core import limits
from syncline.core.errors import CorruptionError
from syncline.core.ports import RecordQuery
from syncline.formats.segments import SegmentName, read_segment
from syncline.journal import state
from syncline.journal.blobs import BlobStore
from syncline.journal.database import About, failures
from syncline.journal.mark import read_mark
from syncline.journal.reading import Reading, reading
from syncline.journal.rows import COLUMNS, check_row
from syncline.journal.targets import SegmentTarget
from syncline.journal.verify_terms import TermsCheck

Progress = Callable[[str, int, int], None]  # what is being checked, done, of

_RAW_REF: Final = COLUMNS.index("raw_ref") + 1
_PAGE: Final = 1_000  # records read at once; those of the page that damage ends at are not counted


class Problem(msgspec.Struct, frozen=True):
    """One thing that is not as it should be."""

    where: str
    what: str


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What was checked, and what was wrong with it."""

    records: int = 0
    states: int = 0
    blobs: int = 0
    segments: int = 0
    sealed_records: int = 0
    problems: list[Problem] = []

    @property
    def sound(self) -> bool:
        return not self.problems


def verify(
    path: Path,
    *,
    target: SegmentTarget | None = None,
    blobs: BlobStore | None = None,
    progress: Progress = lambda what, done, of: None,
) -> Verification:
    """Check a journal, which may be in use; with `target` its segments too, with `blobs` the raw bytes kept there."""
    work = _Work(progress)
    about = None
    try:
        with reading(path) as journal:
            about = journal.about
            work.check_database(journal, blobs)
    except CorruptionError as error:
        work.add(str(path), error.message)
    if target is not None and about is not None:
        work.check_segments(about.node, target, about)
    return Verification(**work.counts, problems=work.problems)


def verify_segments(target: SegmentTarget, node: str, progress: Progress = lambda what, done, of: None) -> Verification:
    """Check the segments of one node alone."""
    work = _Work(progress)
    work.check_segments(node, target, None)
    return Verification(**work.counts, problems=work.problems)


def _has_log(path: Path) -> bool:
    """Whether pages may be on their way from the log to the database."""
    log = path.with_name(f"{path.name}-wal")
    return log.is_file() and log.stat().st_size > 0


class _Work:
    """Collects figures and problems."""

    def __init__(self, progress: Progress) -> None:
        self.counts = {"records": 0, "states": 0, "blobs": 0, "segments": 0, "sealed_records": 0}
        self.problems: list[Problem] = []
        self._progress = progress

    def add(self, where: str, what: str) -> None:
        self.problems.append(Problem(where, what))

    def add_once(self, where: str, what: str) -> None:
        """The same damage may stop several checks."""
        if Problem(where, what) not in self.problems:
            self.add(where, what)

    def check_database(self, journal: Reading, blobs: BlobStore | None) -> None:
        where = str(journal.path)
        self._progress("pages", 0, 1)
        if journal.path.stat().st_size % limits.JOURNAL_PAGE_BYTES and not _has_log(journal.path):
            self.add(where, "the file ends in the middle of a page")  # SQLite takes zeros for what is missing
        terms = TermsCheck(journal, partial(self.add, where))
        checks: tuple[Callable[[], None], ...] = (
            partial(self._check_pages, journal),
            partial(self._check_records, journal, terms, blobs),
            terms.check_runs,
            terms.check_names,
            partial(self._check_states, journal),
            partial(self._check_small, journal),
            partial(self._check_mark, journal),
        )
        for check in checks:
            try:
                with failures(journal.path):
                    check()
            except CorruptionError as error:  # the others go on: they tell how much is intact
                self.add_once(where, error.message)
            except (TypeError, ValueError, OverflowError) as error:  # a page of another table in the place of theirs
                self.add(where, f"a table holds what cannot be in it: {error}")

    def _check_pages(self, journal: Reading) -> None:
        """Visits every page, so every page's checksum too."""
        for (text,) in journal.all("PRAGMA integrity_check"):
            if text != "ok":
                self.add(str(journal.path), text)

    def _check_mark(self, journal: Reading) -> None:
        """That the journal goes as far as its note says it did."""
        mark, about = read_mark(journal.path), journal.about
        if mark and mark[0] == about.epoch and mark[1] > journal.one("SELECT coalesce(max(lsn), 0) FROM records"):
            self.add(str(journal.path), f"the journal ends at record {about.newest}, but had come to record {mark[1]}")

    def _check_records(self, journal: Reading, terms: TermsCheck, blobs: BlobStore | None) -> None:
        """Every row's checksum; no hole after the sealed ones; every term in its table."""
        about, where = journal.about, str(journal.path)
        expected = about.sealed + 1
        for rows in journal.pages(RecordQuery(before=about.newest + 1, limit=2**63 - 1), _PAGE):
            sound = []
            for row in rows:
                if row[0] > about.sealed:
                    if row[0] != expected:
                        self.add(where, f"records {expected} to {row[0] - 1} are missing")
                    expected = row[0] + 1
                if self._check(where, check_row, row):
                    sound.append(row)
                    self._check_blob(f"{where} record {row[0]}", row[_RAW_REF], blobs)
            terms.check_records(sound)
            self.counts["records"] += len(rows)
            self._progress("records", rows[-1][0], about.newest)
        if expected <= about.newest:
            self.add(where, f"records {expected} to {about.newest} are missing")

    def _check_blob(self, where: str, ref: str | None, blobs: BlobStore | None) -> None:
        if ref is not None and blobs is not None:
            self.counts["blobs"] += 1
            self._check(where, blobs.get, ref)

    def _check_states(self, journal: Reading) -> None:
        space, key = "", b""
        while rows := journal.all(
            "SELECT * FROM state WHERE (space, key) > (?, ?) ORDER BY space, key LIMIT ?",
            (space, key, limits.API_PAGE_RECORDS),
        ):
            for row in rows:
                self._check(str(journal.path), state.checked, row)
            self.counts["states"] += len(rows)
            if tuple(rows[-1][:2]) <= (space, key):
                self.add(str(journal.path), "the table of states is out of order")
                return
            space, key = rows[-1][:2]

    def _check_small(self, journal: Reading) -> None:
        """Tables and indexes of a page or so, in which SQLite would not miss what is gone."""
        with journal.moment():
            self._check_counts(journal)

    def _check_counts(self, journal: Reading) -> None:
        lost = journal.all("SELECT DISTINCT protocol FROM records EXCEPT SELECT name FROM protocols")
        for (name,) in lost:
            self.add(str(journal.path), f"protocol {name} is not in the list of protocols")
        by_time = "FROM state INDEXED BY state_by_expiry WHERE expires_at IS NOT NULL"
        indexed = journal.one(f"SELECT count(*) {by_time} AND typeof(expires_at) = 'integer'")
        foreign = journal.one(f"SELECT count(*) {by_time}") - indexed
        there = journal.one("SELECT count(*) FROM state WHERE +expires_at IS NOT NULL")
        if indexed != there or foreign:
            self.add(str(journal.path), f"{there} states expire, but {indexed + foreign} are found by their time")

    def check_segments(self, node: str, target: SegmentTarget, about: About | None) -> None:
        """Every file's checksum; ranges that follow one another without gap or overlap; every record once."""
        names = sorted(name for name in target.list() if name.node == node)
        ranges: dict[tuple[str, int, int], list[SegmentName]] = {}
        for name in names:
            ranges.setdefault((name.epoch, name.lo, name.hi), []).append(name)
        last: dict[str, int] = {}
        for done, ((epoch, lo, hi), siblings) in enumerate(ranges.items()):
            if epoch in last and lo != last[epoch] + 1:
                kind = "are missing" if lo > last[epoch] else "are there twice"
                self.add(siblings[0].path, f"records between {last[epoch]} and {lo} of epoch {epoch} {kind}")
            last[epoch] = hi
            pending = about is not None and epoch == about.epoch and lo > about.sealed
            self._check_range(target, siblings, pending=pending)
            self._progress("segments", done + 1, len(ranges))
        if about is not None and (end := last.get(about.epoch, 0)) < about.sealed:
            self.add(f"epoch {about.epoch}", f"records up to {about.sealed} are sealed, but segments end at {end}")

    def _check_range(self, target: SegmentTarget, siblings: list[SegmentName], *, pending: bool) -> None:
        """One range. Siblings that are not there yet are no problem while the range is being sealed (`pending`)."""
        lo, hi = siblings[0].lo, siblings[0].hi
        lsns: list[int] = []
        claimed: set[str] = set()
        for name in siblings:
            try:
                info, table = read_segment(target.read(name.path), name.path)
            except CorruptionError as error:
                self.add(name.path, error.message)
                continue
            self.counts["segments"] += 1
            claimed |= info.siblings.keys()
            lsns += table["lsn"].to_pylist()
            for column, value in (("node", name.node), ("epoch", name.epoch), ("protocol", name.protocol)):
                if pc.unique(table[column]).to_pylist() != [value]:
                    self.add(name.path, f"the segment holds records of another {column}")
        self.counts["sealed_records"] += len(lsns)
        missing = sorted(claimed - {name.path for name in siblings})
        for path in missing if not pending else ():
            self.add(path, "the segment is missing")
        if len(set(lsns)) != len(lsns):
            self.add(siblings[0].path, "records are there twice")
        if not pending and not missing and sorted(set(lsns)) != list(range(lo, hi + 1)):
            self.add(siblings[0].path, f"records between {lo} and {hi} are missing")

    def _check(self, where: str, check: Callable[[Any], Any], value: Any) -> bool:
        try:
            check(value)
        except CorruptionError as error:
            self.add(where, error.message)
            return False
        return True
