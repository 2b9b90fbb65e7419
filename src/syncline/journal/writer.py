"""The one thread that writes: it takes submissions in groups, commits each group with one fsync, then answers.

Within a group every submission stands alone: a failed expectation refuses that submission and leaves no trace of it.
Reading, sealing and files other than the database belong elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import apsw

from syncline.core.clock import Clock
from syncline.core.crash import crash_point
from syncline.core.errors import ConflictError, CorruptionError
from syncline.core.verdict import Reason, ignore
from syncline.journal import state
from syncline.journal.database import About, failures
from syncline.journal.disk import Intake, Watermark
from syncline.journal.identities import Identities, Merge
from syncline.journal.mark import Mark
from syncline.journal.refusals import Refusals
from syncline.journal.rows import INSERT, Row, row_of
from syncline.journal.submissions import Submission, SubmissionQueue, answer

DUPLICATE: Final = ignore(Reason.DUPLICATE)


class Group:
    """The rows one commit adds, as they are numbered."""

    __slots__ = ("commits", "merge", "names", "newest", "protocols", "rows")

    def __init__(self, newest: int, commits: int) -> None:
        self.newest = newest
        self.commits = commits
        self.rows: list[Row] = []
        self.names: list[tuple[bytes, int, int | None]] = []  # name, lsn, expires_at of the accepted ones
        self.merge: Merge | None = None
        self.protocols: set[str] = set()  # not seen before

    def number(self, row: Row) -> int:
        self.newest += 1
        self.rows.append((self.newest, *row))
        return self.newest


class Writer:
    """Owns the writing connection and the numbering of records."""

    def __init__(
        self,
        connection: apsw.Connection,
        path: Path,
        about: About,
        clock: Clock,
        mark: Mark,
        identities: Identities,
        refusals: Refusals,
        watermark: Watermark,
        committed: Callable[[], None],
    ) -> None:
        self.queue: Final = SubmissionQueue()
        self.newest = about.newest
        self.commits = about.commits
        self.failed_commits = 0
        self.largest_group = 0
        self.failure: CorruptionError | None = None
        self._connection = connection
        self._path = path
        self._epoch = about.epoch
        self._clock = clock
        self._mark = mark
        self._identities = identities
        self._refusals = refusals
        self._watermark = watermark
        self._committed = committed
        self._protocols: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="journal-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Commit what is queued, then end."""
        self.queue.close()
        self._thread.join()

    def _run(self) -> None:
        while (group := self.queue.take()) is not None:
            if group:
                self._settle(group)

    def _settle(self, submissions: list[Submission]) -> None:
        """Commit a group and answer it; whatever goes wrong is the answer."""
        try:
            if self.failure is not None:
                raise self.failure
            with failures(self._path):
                group = self._commit(submissions)
        except BaseException as error:  # every caller must get an answer
            self._undo(error)
            for submission in submissions:
                submission.error = submission.error or error
        else:
            self._accept(group)
            self.largest_group = max(self.largest_group, len(submissions))
        crash_point("journal.after-commit")
        answer(submissions)
        self._committed()

    def _commit(self, submissions: list[Submission]) -> Group:
        """Number, check and write a group in one transaction. Until it is committed only `submissions` change."""
        connection, group, now = self._connection, Group(self.newest, self.commits + 1), self._clock.now()
        connection.execute("BEGIN IMMEDIATE")
        names = [name for submission in submissions for name in submission.names if name is not None]
        live = self._identities.live(connection, names, now)
        room = self._watermark.look() is Intake.ALL
        for submission in submissions:
            if submission.state:
                try:
                    state.check_expectations(connection, submission.state, now)
                except ConflictError as error:
                    submission.error = error
                    continue
                state.apply(connection, submission.state)
            self._number(submission, group, live, now, room=room)
        connection.executemany(INSERT, group.rows)
        self._refusals.write(connection)
        group.merge = self._identities.merge(connection, len(group.rows))
        group.protocols = {row[1] for row in group.rows} - self._protocols
        connection.executemany("INSERT OR IGNORE INTO protocols VALUES (?)", [(name,) for name in group.protocols])
        connection.execute("UPDATE head SET newest = ?, commits = ?", (group.newest, group.commits))
        crash_point("journal.before-commit")
        connection.execute("COMMIT")
        return group

    def _number(self, submission: Submission, group: Group, live: set[bytes], now: int, *, room: bool) -> None:
        """Give each arrival its lsn; a repeat of a live id becomes an ignored one, and refused ones have their cap."""
        kept = submission.kept
        for arrival, row, name in zip(submission.arrivals, submission.rows, submission.names, strict=True):
            if name is not None:
                if name not in live:
                    lsn = group.number(row)
                    group.names.append((name, lsn, arrival.expires_at))
                    if arrival.expires_at is None or arrival.expires_at > now:
                        live.add(name)
                    kept.append((arrival, lsn))
                    continue
                arrival = arrival.judged(DUPLICATE)
                row = row_of(arrival)
            kept.append((arrival, group.number(row) if self._refusals.admit(arrival, now, room=room) else None))

    def _accept(self, group: Group) -> None:
        """The group is on disk: let the rest of the program see it."""
        self._protocols |= group.protocols
        self._identities.add(group.names)
        if group.merge is not None:
            self._identities.settle(group.merge)
        self.commits = group.commits
        self.newest = group.newest
        self._mark.write(self._epoch, group.newest, group.commits)

    def _undo(self, error: BaseException) -> None:
        self.failed_commits += 1
        if isinstance(error, CorruptionError):
            self.failure = error
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
