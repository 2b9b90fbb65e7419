"""The journal: append, read, remember state, wait for what comes next.

A receipt is given only after fsync; readers see only what is committed. The journal knows no protocol. Sealing into
segments, recovery from damage and inspection live beside this file.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import apsw
import msgspec
import pyarrow as pa
from anyio import to_thread

from syncline.core import limits
from syncline.core.clock import Clock
from syncline.core.errors import ClosedError, OverloadedError, UsageError
from syncline.core.ports import Receipt, RecordQuery, StateChange
from syncline.core.record import Arrival, Record
from syncline.core.settings import JournalSettings
from syncline.core.verdict import Outcome
from syncline.journal import state as states
from syncline.journal.blobs import BlobStore, LocalBlobs
from syncline.journal.database import (
    CHECKSUM_VFS,
    OLDEST,
    VERSION,
    About,
    check_whole,
    connect,
    create,
    damaged,
    failures,
    keep_log,
    keeps_log,
    read_about,
    sync_folder,
)
from syncline.journal.disk import FreeSpace, Intake, Watermark, free_bytes
from syncline.journal.files import Files
from syncline.journal.index import Index
from syncline.journal.mark import Mark, read_mark
from syncline.journal.queries import by_terms, is_full, plain
from syncline.journal.refusals import Refusals
from syncline.journal.retention import Retention, Swept
from syncline.journal.rows import Row, batch_of, record_of, row_of
from syncline.journal.submissions import Gate, Item, Job, Submission, open_gates, running_loop
from syncline.journal.terms import Lexicon
from syncline.journal.upgrade import upgrade
from syncline.journal.writer import Writer

_NOTHING: Final = Intake.NOTHING  # members of enums are slow to look up
_IGNORE: Final = Outcome.IGNORE


class Journal:
    """A durable, indexed log of records with the state that belongs to them. One process writes it at a time."""

    def __init__(
        self,
        path: Path,
        connection: apsw.Connection,
        about: About,
        mark: Mark,
        clock: Clock,
        settings: JournalSettings,
        free_space: FreeSpace,
        blobs: BlobStore,
    ) -> None:
        self.path = path
        self.node = about.node
        self.epoch = about.epoch
        self.blobs = blobs
        self._connection = connection
        self._clock = clock
        self._mark = mark
        self._index = Index(connection, Lexicon(about.key), about.indexed)
        self._refusals = Refusals(connection, settings.refused_per_peer_hour, clock.now())
        self._watermark = Watermark(path.parent, settings, clock, free_space)
        self._retention = Retention(settings.retention_hours, self._index)
        self._writer = Writer(
            connection,
            path,
            about,
            clock,
            mark,
            self._index,
            self._refusals,
            self._watermark,
            self._announce,
            self._sweeping,
        )
        self._sealed = about.sealed
        self._lock = threading.Lock()
        self._tail: dict[Any, Gate] = {}  # where those wait who want the next record, by event loop
        self._alarm: dict[Any, Gate] = {}  # where those wait who want to know of damage
        self._idle: list[apsw.Connection] = []
        self._closed = False
        self._writer.start()

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        node: str,
        clock: Clock,
        settings: JournalSettings = JournalSettings(),  # noqa: B008 - frozen
        blobs: BlobStore | None = None,
        free_space: FreeSpace = free_bytes,
        vfs: str = CHECKSUM_VFS,
    ) -> Journal:
        """Open the journal of this node, making it if there is none. Raises CorruptionError if it is damaged.

        `blobs` keeps raw bytes too large for a row; by default a folder beside the file. `free_space` and `vfs` are for
        tests.
        """
        blobs = blobs or LocalBlobs(path.parent / "blobs")
        if not path.parent.is_dir():
            Files().make_folder(path.parent)
        check_whole(path)
        mark = Mark(path)
        connection = None
        try:
            connection = connect(path, write=True, vfs=vfs)
            with failures(path):
                if connection.pragma("schema_version") == 0:
                    _check_absence(path)
                    create(connection, node=node, epoch=new_epoch(clock.now()))
                    sync_folder(path.parent)
                about = read_about(connection, path, OLDEST)
                _check_owner(about, node, path)
                _check_mark(about, path)
                _check_original(about, connection, path)
                keep_log(connection)
                if about.version < VERSION:
                    about = upgrade(connection, path, about)
                return cls(path, connection, about, mark, clock, settings, free_space, blobs)
        except BaseException:
            if connection is not None:
                connection.close(force=True)
            mark.close()
            raise

    def close(self) -> None:
        """Commit what is queued, then let go of the file."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._writer.stop()
        with self._lock:
            idle, self._idle = self._idle, []
            tail, self._tail = self._tail, {}
            alarm, self._alarm = self._alarm, {}
        open_gates([*tail.values(), *alarm.values()])
        for connection in (*idle, self._connection):
            with suppress(apsw.Error):  # a log that cannot be worked in now is worked in when the journal is opened
                connection.close()
        self._mark.close()

    async def append(self, arrivals: Sequence[Arrival], state: Sequence[StateChange] = ()) -> list[Receipt]:
        """Keep all of this, or none, and answer once it is on disk.

        Receipts come in the order of `arrivals`; concurrent appends are committed in the order they were queued. A full
        queue makes the caller wait. Cancelled, the append may or may not have been kept.
        """
        for arrival in arrivals:
            if _trims(arrival):
                arrivals = await to_thread.run_sync(self._trimmed, arrivals)
                break
        submission, loop, queued = self._prepare(arrivals, state), running_loop(), False
        while not queued:
            gate, queued = self._writer.queue.offer(submission, loop)
            await gate.event.wait()
        return self._receipts(submission)

    def append_sync(self, arrivals: Sequence[Arrival], state: Sequence[StateChange] = ()) -> list[Receipt]:
        """The same for threads."""
        submission, queued = self._prepare(self._trimmed(arrivals), state), False
        while not queued:
            gate, queued = self._writer.queue.offer(submission, None)
            gate.event.wait()
        return self._receipts(submission)

    def read(self, query: RecordQuery) -> list[Record]:
        """The records that match, in the order of their lsn."""
        return [record_of(row, self.node, self.epoch) for row in self.rows(query)]

    def page(self, query: RecordQuery) -> tuple[list[Record], int]:
        """The first records that match, up to a bound on their bytes, and up to which lsn there are no others.

        Whoever reads on from there, page by page, gets all of them.
        """
        newest = self._writer.newest if query.before is None else query.before - 1
        query = msgspec.structs.replace(query, before=newest + 1, descending=False, raw_bytes=limits.JOURNAL_PAGE_RAW)
        rows = self.rows(query)
        cut = len(rows) >= min(query.limit, limits.JOURNAL_READ_MAX) or is_full(query, rows)
        return [record_of(row, self.node, self.epoch) for row in rows], rows[-1][0] if rows and cut else newest

    def batches(self, query: RecordQuery, rows: int = limits.API_PAGE_RECORDS) -> Iterator[pa.RecordBatch]:
        """The same as Arrow batches of RECORD_SCHEMA. Each is one short read, so the log can always be trimmed."""
        if query.descending:
            raise UsageError("an export runs forward")
        after, left = query.after, query.limit
        while left > 0:
            page = msgspec.structs.replace(query, after=after, limit=min(rows, left), raw_bytes=limits.JOURNAL_PAGE_RAW)
            if not (found := self.rows(page)):
                return
            yield batch_of(found, self.node, self.epoch)
            after, left = found[-1][0], left - len(found)

    def rows(self, query: RecordQuery) -> list[Row]:
        """The same as stored rows, not verified yet; see rows.py."""
        with self._reader() as connection:
            found: Any = ()
            if query.id is not None:
                found = [(query.protocol,)] if query.protocol else connection.execute("SELECT name FROM protocols")
            where = self._index.lexicon.spans(query, [name for (name,) in found])
            if where is None:
                return plain(connection, query)
            waiting, indexed = self._index.waiting(where.spans)
            return by_terms(connection, query, where, waiting, indexed, self._index.filters)

    def partitions(self, after: int) -> list[tuple[str, int]]:
        """The protocols and days (since 1970) of the records after this lsn."""
        with self._reader() as connection:
            found: list[Any] = connection.execute(
                "SELECT DISTINCT protocol, received_at / ? FROM records WHERE lsn > ?", (limits.DAY, after)
            ).fetchall()
        return sorted(found)

    def count_after(self, protocol: str, after: int, limit: int) -> tuple[int, int | None, int | None]:
        """How many records of a protocol follow this lsn (counted up to `limit`), and lsn and time of the first of them.

        No message is read for it, however large.
        """
        some = "SELECT lsn, received_at FROM records WHERE lsn > ? AND protocol = ? ORDER BY lsn LIMIT ?"
        with self._reader() as connection:
            found: Any = connection.execute(
                f"SELECT count(*), min(lsn), min(received_at) FROM ({some})",  # noqa: S608 - the text above
                (after, protocol, limit),
            ).get
        count, first, since = found
        return count, first, since

    def get_state(self, space: str, key: bytes) -> bytes | None:
        with self._reader() as connection:
            return states.get(connection, space, key, self._clock.now())

    def scan_state(self, space: str, prefix: bytes = b"", limit: int = 10_000) -> list[tuple[bytes, bytes]]:
        """Keys that start with `prefix`, in their order, with their values."""
        with self._reader() as connection:
            return states.scan(connection, space, prefix, limit, self._clock.now())

    async def wait(self, after: int) -> int:
        """The newest lsn, once it is greater than `after`. Raises CorruptionError when there will be none any more."""
        loop = running_loop()
        while self._writer.newest <= after:
            if self._writer.failure is not None:
                raise self._writer.failure
            with self._lock:
                if self._closed:
                    raise ClosedError("the journal is closed")
                gate = self._tail.setdefault(loop, Gate(loop))
            if (
                self._writer.newest <= after and self._writer.failure is None
            ):  # not before there was a gate to be opened
                await gate.event.wait()
        return self._writer.newest

    async def damage(self) -> None:
        """Wait until the writer meets damage, and raise it. Nobody who waits here is woken by a commit."""
        loop = running_loop()
        with self._lock:
            gate = self._alarm.setdefault(loop, Gate(loop))
        if self._writer.failure is None:
            await gate.event.wait()
        if self._writer.failure is not None:
            raise self._writer.failure

    def newest(self) -> int:
        """The lsn of the newest record; 0 before the first."""
        return self._writer.newest

    def sealed(self) -> int:
        """Every record up to this lsn is in a segment."""
        return self._sealed

    def seal(self, upto: int) -> None:
        """Note that every record up to this lsn is in a segment. Only what is sealed is ever removed."""

        def work(connection: apsw.Connection) -> int:
            connection.execute("UPDATE head SET sealed = max(sealed, ?)", (upto,))
            sealed: int = connection.execute("SELECT sealed FROM head").get
            return sealed

        self._sealed = self._writer.call(Job(work))

    def sweep(self) -> Swept:
        """Remove some of what retention lets go of. The journal does this by itself now and then."""
        swept: Swept = self._writer.call(self._sweeping())
        return swept

    def raw(self, record: Record) -> bytes | None:
        """The raw bytes of a record, wherever they are kept."""
        return record.raw if record.raw_ref is None else self.blobs.get(record.raw_ref)

    def raw_bytes(self) -> int:
        """Raw bytes appended since the journal was opened."""
        return self._writer.raw_bytes

    def statistics(self) -> dict[str, int | float]:
        """Counters and gauges, as `/metrics` shows them."""
        writer = self._writer
        return {
            "newest_lsn": writer.newest,
            "queued": len(writer.queue),
            "commits": writer.commits,
            "failed_commits": writer.failed_commits,
            "failed_checkpoints": writer.failed_checkpoints,
            "failed_notes": writer.failed_notes,
            "largest_group": writer.largest_group,
            "unindexed": len(self._index),
            "runs": self._index.count,
            "refused_counted": self._refusals.counted,
            "sealed_lsn": self._sealed,
            "raw_bytes": self.raw_bytes(),
            "disk_free_bytes": self._watermark.free,
            "intake": int(self._watermark.intake),
            "damaged": int(writer.failure is not None),
        }

    def _prepare(self, arrivals: Sequence[Arrival], state: Sequence[StateChange]) -> Submission:
        """Everything that can be done, or can go wrong, before the writer's turn."""
        if self._watermark.look() is _NOTHING:
            raise OverloadedError(
                "the disk is almost full, so nothing is taken in",
                hint="free space, or lower journal.disk_free_all",
                about=str(self.path.parent),
            )
        for change in state:
            states.check_change(change)
        items: list[Item] = []
        size, name_of = 0, self._index.lexicon.name_of
        for arrival in arrivals:
            row = row_of(arrival)
            items.append((arrival, row, name_of(row)))
            if arrival.raw is not None:
                size += len(arrival.raw)
        return Submission(items, size, state)

    def _trimmed(self, arrivals: Sequence[Arrival]) -> list[Arrival]:
        """Raw bytes only where they belong: none with ignored messages, large ones in the blob store. May block."""
        return [self._without_raw(arrival) if _trims(arrival) else arrival for arrival in arrivals]

    def _without_raw(self, arrival: Arrival) -> Arrival:
        """A large message's bytes are durable in the blob store before its row is.

        Only accepted messages have a claim to that: a flood of large rejects must not fill the disk.
        """
        raw = arrival.raw or b""
        if len(raw) > limits.RAW_MAX:
            raise UsageError(f"raw bytes of one message are at most {limits.RAW_MAX}", about=arrival.protocol)
        return msgspec.structs.replace(arrival, raw=None, raw_ref=self.blobs.put(raw) if arrival.accepted else None)

    def _sweeping(self) -> Job:
        return Job(lambda connection: self._retention.sweep(connection, self._clock.now()), self._retention.settle)

    def _receipts(self, submission: Submission) -> list[Receipt]:
        if submission.error is not None:
            raise submission.error
        node, epoch, items, first = self.node, self.epoch, submission.items, submission.first
        if first is not None and len(items) == 1:  # usually
            return [Receipt(arrival=items[0][0], node=node, epoch=epoch, lsn=first)]
        if first is not None:
            return [Receipt(arrival=item[0], node=node, epoch=epoch, lsn=lsn) for lsn, item in enumerate(items, first)]
        return [Receipt(arrival=arrival, node=node, epoch=epoch, lsn=lsn) for arrival, lsn in submission.kept]

    def _announce(self) -> None:
        """Called by the writer after each commit, and when it has met damage."""
        if self._tail:
            with self._lock:
                tail, self._tail = self._tail, {}
            open_gates(tail.values())
        if self._writer.failure is not None:
            with self._lock:
                alarm, self._alarm = self._alarm, {}
            open_gates(alarm.values())

    @contextmanager
    def _reader(self) -> Iterator[apsw.Connection]:
        """A read-only connection for one short read."""
        with self._lock:
            if self._closed:
                raise ClosedError("the journal is closed")
            connection = self._idle.pop() if self._idle else None
        connection = connection or connect(self.path)
        try:
            with failures(self.path):
                yield connection
        finally:
            with self._lock:
                keep = not self._closed and len(self._idle) < limits.JOURNAL_IDLE_READERS
                if keep:
                    self._idle.append(connection)
            if not keep:
                connection.close()


def _trims(arrival: Arrival) -> bool:
    raw = arrival.raw
    return raw is not None and (len(raw) > limits.RAW_INLINE_MAX or arrival.verdict is _IGNORE)


def new_epoch(now: int) -> str:
    """The name of a new journal file: 48 bits of milliseconds, 16 of chance, so that later ones sort later."""
    return f"{now // 1_000 & (1 << 48) - 1:012x}{os.urandom(2).hex()}"


def _check_owner(about: About, node: str, path: Path) -> None:
    if about.node != node:
        raise UsageError(
            f"the journal belongs to node {about.node}, not {node}",
            hint="use the key it was made with, or another data folder",
            about=str(path),
        )


def _check_original(about: About, connection: apsw.Connection, path: Path) -> None:
    """A backup must not go on as the journal it was copied from: its next numbers are taken."""
    if about.newest and not keeps_log(connection):
        raise UsageError(
            "this is a backup of a journal",
            hint="run `syncline journal recover`, which carries it over into a new one",
            about=str(path),
        )


def _check_absence(path: Path) -> None:
    """An empty database beside a note of many records is a loss, not a fresh start."""
    mark = read_mark(path)
    if mark is not None:
        raise damaged(f"the journal is gone, but had come to record {mark[1]}", path)


def _check_mark(about: About, path: Path) -> None:
    """A database behind its note has lost commits that were acknowledged."""
    mark = read_mark(path)
    if mark is not None and mark[0] == about.epoch and (mark[1] > about.newest or mark[2] > about.quiet):
        raise damaged(f"the journal ends at record {about.newest}, but had come to record {mark[1]}", path)
