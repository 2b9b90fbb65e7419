"""The one thread that writes: it takes submissions in groups, commits each group with one fsync, then answers.

Within a group every submission stands alone: a failed expectation refuses that submission and leaves no trace of it.
Reading, sealing and files other than the database belong elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from zlib import crc32

import apsw

from syncline.core.clock import Clock
from syncline.core.crash import crash_point
from syncline.core.errors import ConflictError, CorruptionError
from syncline.core.ports import Anything, StateChange
from syncline.core.record import Arrival
from syncline.core.verdict import Reason, ignore
from syncline.journal.database import failures
from syncline.journal.disk import Intake, Watermark
from syncline.journal.refusals import Refusals
from syncline.journal.rows import INSERT, Row, row_of, sealed_row
from syncline.journal.submissions import Submission, SubmissionQueue, wake_all

DUPLICATE: Final = ignore(Reason.DUPLICATE)
_NEWEST_ACCEPTED: Final = """
SELECT i.value, r.expires_at FROM carray(?) i JOIN records r ON r.lsn =
    (SELECT lsn FROM records WHERE verdict = 'accept' AND id = i.value AND protocol = ? ORDER BY lsn DESC LIMIT 1)
"""
Committed = Callable[[int, int], None]  # newest lsn, raw bytes of the group


class Writer:
    """Owns the writing connection and the numbering of records."""

    def __init__(
        self,
        connection: apsw.Connection,
        path: Path,
        clock: Clock,
        refusals: Refusals,
        watermark: Watermark,
        newest: int,
        committed: Committed,
    ) -> None:
        self.queue: Final = SubmissionQueue()
        self.newest = newest
        self.groups = 0
        self.failed_groups = 0
        self.largest_group = 0
        self.failure: CorruptionError | None = None
        self._connection = connection
        self._path = path
        self._clock = clock
        self._refusals = refusals
        self._watermark = watermark
        self._committed = committed
        self._thread = threading.Thread(target=self._run, name="journal-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Commit what is queued, then end."""
        self.queue.close()
        self._thread.join()

    def _run(self) -> None:
        while (group := self.queue.take(None)) is not None:
            if group:
                self._settle(group)

    def _settle(self, group: list[Submission]) -> None:
        """Commit a group and answer it; whatever goes wrong is the answer."""
        try:
            if self.failure is not None:
                raise self.failure
            with failures(self._path):
                newest = self._commit(group)
        except BaseException as error:  # every caller must get an answer
            self._undo(error)
            for submission in group:
                submission.error = submission.error or error
        else:
            self.groups += 1
            self.largest_group = max(self.largest_group, len(group))
            if newest != self.newest:
                self.newest = newest
                self._committed(newest, sum(submission.size for submission in group))
        crash_point("journal.after-commit")
        wake_all([submission.waker for submission in group])

    def _undo(self, error: BaseException) -> None:
        self.failed_groups += 1
        if isinstance(error, CorruptionError):
            self.failure = error
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _commit(self, group: list[Submission]) -> int:
        """One transaction; returns the newest lsn."""
        connection = self._connection
        now = self._clock.now()
        connection.execute("BEGIN IMMEDIATE")
        numbering = _Numbering(connection, self.newest, now, self._refusals, self._watermark.look() is Intake.ALL)
        numbering.look_up(group)
        for submission in group:
            try:
                check_expectations(connection, submission.state, now)
            except ConflictError as error:
                submission.error = error
                continue
            change_state(connection, submission.state)
            submission.kept = [numbering.keep(*pair) for pair in zip(submission.arrivals, submission.rows, strict=True)]
        connection.executemany(INSERT, numbering.rows)
        self._refusals.write(connection)
        connection.execute("UPDATE meta SET value = ? WHERE name = 'newest'", (numbering.newest,))
        crash_point("journal.before-commit")
        connection.execute("COMMIT")
        return numbering.newest


class _Numbering:
    """Gives lsns to the rows of one group and turns repeats of live ids into ignored ones."""

    def __init__(self, connection: apsw.Connection, newest: int, now: int, refusals: Refusals, room: bool) -> None:
        self.newest = newest
        self.rows: list[Row] = []
        self._connection = connection
        self._now = now
        self._refusals = refusals
        self._room = room
        self._live: set[tuple[str, bytes]] = set()

    def look_up(self, group: list[Submission]) -> None:
        """Find which ids of this group are live already, one statement per protocol."""
        wanted: dict[str, set[bytes]] = {}
        for submission in group:
            for arrival in submission.arrivals:
                if arrival.accepted:
                    wanted.setdefault(arrival.protocol, set()).add(arrival.id)
        for protocol, ids in wanted.items():
            found = self._connection.execute(_NEWEST_ACCEPTED, (apsw.carray(tuple(ids)), protocol))
            self._live.update((protocol, id_) for id_, expires_at in found if self._is_live(expires_at))

    def keep(self, arrival: Arrival, row: Row) -> tuple[Arrival, int | None]:
        """The arrival as it is finally judged, and its lsn unless it was only counted."""
        if arrival.accepted:
            name = (arrival.protocol, arrival.id)
            if name not in self._live:
                if self._is_live(arrival.expires_at):
                    self._live.add(name)
                return arrival, self._number(row)
            arrival = arrival.judged(DUPLICATE)
            row = row_of(arrival)
        if self._refusals.admit(arrival, self._now, room=self._room):
            return arrival, self._number(row)
        return arrival, None

    def _number(self, row: Row) -> int:
        self.newest += 1
        self.rows.append(sealed_row(self.newest, row))
        return self.newest

    def _is_live(self, expires_at: int | None) -> bool:
        return expires_at is None or expires_at > self._now


def check_expectations(connection: apsw.Connection, changes: Sequence[StateChange], now: int) -> None:
    """Raise ConflictError unless every `expect` holds at its turn. Nothing has been written yet, so nothing remains."""
    ahead: dict[tuple[str, bytes], bytes | None] = {}
    for change in changes:
        name = (change.space, change.key)
        if not isinstance(change.expect, Anything):
            present = ahead[name] if name in ahead else read_state(connection, *name, now)
            if present != change.expect:
                raise ConflictError(
                    "the state is no longer what was expected", about=f"{change.space}/{change.key.hex()}"
                )
        ahead[name] = change.value


def change_state(connection: apsw.Connection, changes: Sequence[StateChange]) -> None:
    for change in changes:
        if change.value is None:
            connection.execute("DELETE FROM state WHERE space = ? AND key = ?", (change.space, change.key))
        else:
            row = (change.space, change.key, change.value, change.expires_at)
            connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?, ?)", (*row, state_checksum(row)))


def read_state(connection: apsw.Connection, space: str, key: bytes, now: int) -> bytes | None:
    """The value under this key, unless it has expired."""
    found = connection.execute("SELECT * FROM state WHERE space = ? AND key = ?", (space, key)).fetchone()
    if found is None:
        return None
    check_state(found)
    return found[2] if found[3] is None or found[3] > now else None


def check_state(row: Row) -> None:
    if state_checksum(row[:-1]) != row[-1]:
        raise CorruptionError(
            f"the state {row[0]}/{row[1].hex()} does not match its checksum",
            hint="run `syncline journal verify`, then `syncline journal recover`",
        )


def state_checksum(row: Row) -> int:
    return crc32(repr(row).encode())
