"""The one thread that writes: it takes submissions in groups, commits each group with one fsync, then answers.

Within a group every submission stands alone: a failed expectation refuses that submission and leaves no trace of it.
Reading, sealing and files other than the database belong elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import apsw

from syncline.core import limits
from syncline.core.clock import Clock
from syncline.core.crash import crash_point
from syncline.core.errors import ConflictError, CorruptionError, SynclineError, UnavailableError
from syncline.core.ports import StateChange
from syncline.core.verdict import Outcome, Reason, ignore
from syncline.journal import state
from syncline.journal.database import About, failures, insert, insert_values
from syncline.journal.disk import Intake, Watermark
from syncline.journal.index import Change, Index
from syncline.journal.mark import Mark
from syncline.journal.newest import Fresh
from syncline.journal.refusals import Refusals
from syncline.journal.rows import STORED, row_of
from syncline.journal.submissions import Job, Submission, SubmissionQueue, answer
from syncline.journal.terms import FOREVER, NOT_TAKEN

DUPLICATE: Final = ignore(Reason.DUPLICATE)


class Group:
    """What one commit adds."""

    __slots__ = ("change", "fresh", "newest", "protocols", "quiet")

    def __init__(self, newest: int, quiet: int) -> None:
        self.newest = newest
        self.quiet = quiet
        self.fresh = Fresh()
        self.protocols: set[str] = set()  # not seen before
        self.change: Change | None = None  # to terms


class Writer:
    """Owns the writing connection and the numbering of records."""

    def __init__(
        self,
        connection: apsw.Connection,
        path: Path,
        about: About,
        clock: Clock,
        mark: Mark,
        index: Index,
        refusals: Refusals,
        watermark: Watermark,
        committed: Callable[[], None],
        housekeeping: Callable[[], Job],
    ) -> None:
        self.queue: Final = SubmissionQueue()
        self.newest = about.newest
        self.commits = 0
        self.failed_commits = 0
        self.failed_checkpoints = 0
        self.failed_notes = 0
        self.largest_group = 0
        self.raw_bytes = 0
        self.failure: CorruptionError | None = None
        self._unsure = False  # what the last commit left
        self._quiet = about.quiet
        self._epoch = about.epoch
        self._connection = connection
        self._path = path
        self._clock = clock
        self._mark = mark
        self._index = index
        self._refusals = refusals
        self._watermark = watermark
        self._committed = committed
        self._housekeeping = housekeeping
        self._protocols: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="journal-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Commit what is queued, then end."""
        self.queue.close()
        self._thread.join()

    def call(self, job: Job) -> Any:
        """Have the writer's thread do this in a transaction, and return its result once that is on disk."""
        self.queue.assign(job)
        job.done.wait()
        if job.error is not None:
            raise job.error
        return job.result

    def _run(self) -> None:
        swept_at = self._clock.monotonic()
        while (taken := self.queue.take(limits.JOURNAL_SWEEP_SECONDS)) is not None:
            if isinstance(taken, Job):
                self._do(taken)
            elif taken:
                self._settle(taken)
            if self._clock.monotonic() - swept_at >= limits.JOURNAL_SWEEP_SECONDS:
                self._do(self._housekeeping())
                swept_at = self._clock.monotonic()
            if self.failure is not None:
                self._committed()  # whoever waits for the next record waits in vain

    def _do(self, job: Job) -> None:
        try:
            self._check()
            with failures(self._path):
                self._connection.execute("BEGIN IMMEDIATE")
                job.result = job.work(self._connection)
                self._connection.execute("COMMIT")
            job.settle(job.result)
        except BaseException as error:  # the one who waits must get an answer
            self._undo(error)
            job.error = error
        job.done.set()

    def _settle(self, submissions: list[Submission]) -> None:
        """Commit a group and answer it; whatever goes wrong is the answer."""
        try:
            self._check()
            with failures(self._path):
                now = self._clock.now()
                group = self._commit_plain(submissions, now) or self._commit(submissions, now)
            self._accept(group)
            self.largest_group = max(self.largest_group, len(submissions))
            self.raw_bytes += sum([submission.size for submission in submissions])
        except BaseException as error:  # every caller must get an answer
            self._undo(error)
            for submission in submissions:
                submission.error = submission.error or error
        crash_point("journal.after-commit")
        answer(submissions)
        self._committed()
        self._trim_log()

    def _commit_plain(self, submissions: list[Submission], now: int) -> Group | None:
        """Commit the usual group, which only adds accepted records and state, by few statements; None if this is none.

        Every statement lets go of the interpreter's lock and has to win it back from the event loop. With one statement
        the whole commit runs beside the loop; with five it hardly ever does.
        """
        group, lsn = Group(self.newest, self._quiet), self.newest
        values: list[Any] = []
        changes: list[StateChange] = []
        fresh, accept, protocols = group.fresh, Outcome.ACCEPT, self._protocols
        for submission in submissions:
            if submission.state:
                if not state.only_puts(submission.state):
                    return None
                changes += submission.state
            for arrival, row, name in submission.items:
                if arrival.verdict is not accept or arrival.protocol not in protocols:
                    return None
                lsn += 1
                expires_at = arrival.expires_at
                values.append(lsn)
                values += row
                fresh.names.append(name)
                fresh.rows.append(row)
                fresh.expiries.append(FOREVER if expires_at is None else expires_at)
        fresh.lsns.extend(range(self.newest + 1, lsn + 1))
        names, count = set(fresh.names), len(fresh.names)
        if len(names) != count or not count:
            return None
        if self._index.takes(self._connection, names, now):
            return None
        self._write_plain(group, values, count, changes)
        for submission in submissions:
            submission.first = group.newest + 1
            group.newest += len(submission.items)
        return group

    def _write_plain(self, group: Group, values: list[Any], count: int, changes: list[StateChange]) -> None:
        """Commit these rows, and the state that belongs to them."""
        connection, due = self._connection, self._index.due()
        alone = count <= limits.JOURNAL_INSERT_ROWS and not changes and not due  # one statement is a transaction
        if not alone:
            connection.execute("BEGIN IMMEDIATE")
        insert_values(connection, "INSERT INTO records", STORED, values, count)
        if alone:
            return
        if changes:
            state.put(connection, changes)
        if due:
            group.change = self._index.merge(connection)
        crash_point("journal.before-commit")
        connection.execute("COMMIT")

    def _commit(self, submissions: list[Submission], now: int) -> Group:
        """Commit any group. Until that is done, nothing changes but `submissions`."""
        connection, group = self._connection, Group(self.newest, self._quiet)
        connection.execute("BEGIN IMMEDIATE")
        names = [name for each in submissions for arrival, _, name in each.items if arrival.accepted]
        live = self._index.live(connection, names, now)
        for submission in submissions:
            if submission.state:
                try:
                    state.check_expectations(connection, submission.state, now)
                except ConflictError as error:
                    submission.error = error
                    continue
                state.apply(connection, submission.state)
            self._number(submission, group, live, now)
        rows = [(lsn, *row) for lsn, row in zip(group.fresh.lsns, group.fresh.rows, strict=True)]
        insert(connection, "INSERT INTO records", STORED, rows)
        self._refusals.write(connection)
        if self._index.due():
            group.change = self._index.merge(connection)
        group.protocols = {row[1] for row in rows} - self._protocols
        for name in group.protocols:
            connection.execute("INSERT OR IGNORE INTO protocols VALUES (?)", (name,))
        if not rows:
            group.quiet += 1
            connection.execute("UPDATE head SET quiet = ?", (group.quiet,))
        crash_point("journal.before-commit")
        connection.execute("COMMIT")
        return group

    def _number(self, submission: Submission, group: Group, live: set[bytes], now: int) -> None:
        """Give each arrival its lsn; a repeat of a live id becomes an ignored one, and refused ones have their cap."""
        room = self._watermark.look() is Intake.ALL
        for arrival, row, name in submission.items:
            final, stored, found_by = arrival, row, name
            if arrival.accepted and name in live:
                final = arrival.judged(DUPLICATE)
                stored = row_of(final)
                found_by = self._index.lexicon.name_of(stored)
            if not final.accepted and not self._refusals.admit(final, now, room=room):
                submission.kept.append((final, None))
                continue
            group.newest += 1
            submission.kept.append((final, group.newest))
            expiry = NOT_TAKEN
            if final.accepted:
                expiry = FOREVER if final.expires_at is None else final.expires_at
                if expiry > now:
                    live.add(name)
            group.fresh.add(group.newest, expiry, found_by, stored)

    def _accept(self, group: Group) -> None:
        """The group is on disk: let the rest of the program see it."""
        self._protocols |= group.protocols
        if group.change is not None:
            self._index.settle(group.change)
        self._index.add(group.fresh)
        self.commits += 1
        self.newest, self._quiet = group.newest, group.quiet
        try:
            self._mark.write(self._epoch, group.newest, group.quiet)
        except OSError:  # the group is on disk all the same; a note that is behind says nothing
            self.failed_notes += 1

    def _undo(self, error: BaseException) -> None:
        """Nobody knows what of the failed commit is stored: find out, now or, if the disk is failing, before the next."""
        self.failed_commits += 1
        if isinstance(error, CorruptionError):
            self.failure = error
        self._unsure = True
        try:
            self._look_again()
        except (SynclineError, apsw.Error) as again:
            if isinstance(again, CorruptionError):
                self.failure = again

    def _look_again(self) -> None:
        """Go back to what is stored, which may yet be the group that failed."""
        connection = self._connection
        with failures(self._path):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            self._refusals.reload(connection)
            self._index.reload(connection)
            newest, quiet = connection.execute(
                "SELECT (SELECT coalesce(max(lsn), 0) FROM records), quiet FROM head"
            ).get
            if newest > self.newest:
                self._index.load(connection, self.newest)
            self.newest, self._quiet = max(newest, self.newest), quiet
        self._unsure = False

    def _check(self) -> None:
        """Whether there may be a commit."""
        if self.failure is not None:
            raise self.failure
        if self._unsure:
            self._look_again()

    def _trim_log(self) -> None:
        """Now and then, work the write-ahead log into the database. If that fails, the log is merely longer."""
        if self.commits % limits.JOURNAL_LOG_COMMITS:
            return
        try:
            with failures(self._path):
                pages, _ = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
                if pages * limits.JOURNAL_PAGE_BYTES >= limits.JOURNAL_LOG_BYTES:
                    self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except CorruptionError as error:
            self.failure = error
        except (UnavailableError, apsw.Error):
            self.failed_checkpoints += 1
