"""The journal: append, read, remember state, wait for what comes next.

A receipt is given only after fsync; readers see only what is committed. The journal knows no protocol. Sealing into
segments, recovery from damage and inspection live beside this file.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pyarrow as pa

from syncline.core import limits
from syncline.core.clock import Clock
from syncline.core.errors import ClosedError, OverloadedError, UsageError
from syncline.core.ports import Receipt, RecordQuery, StateChange
from syncline.core.record import Arrival, Record
from syncline.core.settings import JournalSettings
from syncline.journal.database import check_layout, connect, create, failures, sync_folder
from syncline.journal.disk import FreeSpace, Intake, Watermark, free_bytes
from syncline.journal.queries import select
from syncline.journal.refusals import Refusals
from syncline.journal.rows import batch_of, record_of, row_of
from syncline.journal.submissions import Submission, TaskWaker, ThreadWaker, Waker, wake_all
from syncline.journal.writer import Writer, check_state, read_state


class Journal:
    """A durable, indexed log of records with the state that belongs to them. One process writes it at a time."""

    def __init__(self, path: Path, node: str, epoch: str, clock: Clock) -> None:
        self.path = path
        self.node = node
        self.epoch = epoch
        self._clock = clock
        self._writer: Writer
        self._watermark: Watermark
        self._refusals: Refusals
        self._connection: apsw.Connection
        self._lock = threading.Lock()
        self._tail: list[Waker] = []
        self._idle: list[apsw.Connection] = []
        self._closed = False

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        node: str,
        clock: Clock,
        settings: JournalSettings = JournalSettings(),  # noqa: B008 - frozen
        free_space: FreeSpace = free_bytes,
    ) -> Journal:
        """Open the journal of this node, making it if there is none."""
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = connect(path, write=True)
        with failures(path):
            if connection.pragma("schema_version") == 0:
                create(connection, node=node, epoch=new_epoch(clock.now()))
            meta = check_layout(connection, path)
            connection.pragma("journal_mode", "wal")
            connection.pragma("synchronous", "full")
            connection.execute("SELECT count(*) FROM records WHERE lsn = 0")
        sync_folder(path.parent)
        if meta["node"] != node:
            raise UsageError(
                f"the journal belongs to node {meta['node']}, not {node}",
                hint="use the key it was made with, or another data folder",
                about=str(path),
            )
        journal = cls(path, node, str(meta["epoch"]), clock)
        journal._connection = connection
        journal._refusals = Refusals(connection, settings.refused_per_peer_hour, clock.now())
        journal._watermark = Watermark(path.parent, settings, clock, free_space)
        journal._writer = Writer(
            connection, path, clock, journal._refusals, journal._watermark, int(meta["newest"]), journal._announce
        )
        journal._writer.start()
        return journal

    def close(self) -> None:
        """Commit what is queued, then let go of the file."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._writer.stop()
        with self._lock:
            idle, self._idle = self._idle, []
            tail, self._tail = self._tail, []
        wake_all(tail)
        for connection in idle:
            connection.close()
        self._connection.close()

    async def append(self, arrivals: Sequence[Arrival], state: Sequence[StateChange] = ()) -> list[Receipt]:
        """Keep all of this, or none, and answer once it is on disk.

        Order: receipts come in the order of `arrivals`; concurrent appends are committed in the order they were queued.
        A full queue makes the caller wait. Cancelled, the append may or may not have been kept.
        """
        waker = TaskWaker()
        submission = self._prepare(arrivals, state, waker)
        while (full := self._writer.queue.offer(submission, TaskWaker)) is not None:
            assert isinstance(full, TaskWaker)
            await full.wait()
        await waker.wait()
        return self._receipts(submission)

    def append_sync(self, arrivals: Sequence[Arrival], state: Sequence[StateChange] = ()) -> list[Receipt]:
        """The same for threads."""
        waker = ThreadWaker()
        submission = self._prepare(arrivals, state, waker)
        while (full := self._writer.queue.offer(submission, ThreadWaker)) is not None:
            assert isinstance(full, ThreadWaker)
            full.wait()
        waker.wait()
        return self._receipts(submission)

    def read(self, query: RecordQuery) -> list[Record]:
        """The records that match, in the order of their lsn."""
        statement, bindings = select(query)
        with self._reader() as connection:
            rows = connection.execute(statement, bindings).fetchall()
        return [record_of(row, self.node, self.epoch) for row in rows]

    def batches(self, query: RecordQuery, rows: int = limits.API_PAGE_RECORDS) -> Iterator[pa.RecordBatch]:
        """The same as Arrow batches of RECORD_SCHEMA. Each is one short read, so the file is never held open long."""
        if query.descending:
            raise UsageError("an export runs forward")
        after, left = query.after, query.limit
        while left > 0:
            page = msgspec.structs.replace(query, after=after, limit=min(rows, left))
            statement, bindings = select(page)
            with self._reader() as connection:
                found: list[Any] = connection.execute(statement, bindings).fetchall()
            if not found:
                return
            yield batch_of(found, self.node, self.epoch)
            after, left = found[-1][0], left - len(found)

    def get_state(self, space: str, key: bytes) -> bytes | None:
        with self._reader() as connection:
            return read_state(connection, space, key, self._clock.now())

    def scan_state(self, space: str, prefix: bytes = b"", limit: int = 10_000) -> list[tuple[bytes, bytes]]:
        """Keys that start with `prefix`, in order, with their values."""
        end = _after_prefix(prefix)
        statement = (
            "SELECT * FROM state WHERE space = ? AND key >= ? AND (? IS NULL OR key < ?) "
            "AND (expires_at IS NULL OR expires_at > ?) ORDER BY key LIMIT ?"
        )
        bindings = (space, prefix, end, end, self._clock.now(), limit)
        with self._reader() as connection:
            found: list[Any] = connection.execute(statement, bindings).fetchall()
        for row in found:
            check_state(row)
        return [(row[1], row[2]) for row in found]

    async def wait(self, after: int) -> int:
        """The newest lsn, once it is greater than `after`."""
        while self._writer.newest <= after:
            waker = TaskWaker()
            with self._lock:
                if self._closed:
                    raise ClosedError("the journal is closed")
                self._tail.append(waker)
            if self._writer.newest > after:
                break
            await waker.wait()
        return self._writer.newest

    def newest(self) -> int:
        """The lsn of the newest record; 0 before the first."""
        return self._writer.newest

    def statistics(self) -> dict[str, int | float]:
        """Counters and gauges, as `/metrics` shows them."""
        writer = self._writer
        return {
            "newest_lsn": writer.newest,
            "queued": len(writer.queue),
            "groups": writer.groups,
            "failed_groups": writer.failed_groups,
            "largest_group": writer.largest_group,
            "refused_counted": self._refusals.counted_total,
            "disk_free_bytes": self._watermark.free,
            "intake": int(self._watermark.intake),
            "damaged": int(writer.failure is not None),
        }

    def _prepare(self, arrivals: Sequence[Arrival], state: Sequence[StateChange], waker: Waker) -> Submission:
        if self._watermark.look() is Intake.NOTHING:
            raise OverloadedError(
                "the disk is almost full, so nothing is taken in",
                hint="free space, or lower journal.disk_free_all",
                about=str(self.path.parent),
            )
        return Submission(arrivals, [row_of(arrival) for arrival in arrivals], state, waker)

    def _receipts(self, submission: Submission) -> list[Receipt]:
        if submission.error is not None:
            raise submission.error
        return [
            Receipt(arrival=arrival, record=None if lsn is None else self._record(arrival, lsn))
            for arrival, lsn in submission.kept
        ]

    def _record(self, a: Arrival, lsn: int) -> Record:
        return Record(
            node=self.node, epoch=self.epoch, lsn=lsn, protocol=a.protocol, direction=a.direction, topic=a.topic,
            kind=a.kind, key=a.key, publisher=a.publisher, peer=a.peer, seq=a.seq, id=a.id,
            published_at=a.published_at, received_at=a.received_at, expires_at=a.expires_at, verdict=a.verdict,
            reason=a.reason, raw=a.raw, raw_ref=a.raw_ref,
        )  # fmt: skip

    def _announce(self, newest: int, size: int) -> None:
        """Called by the writer after each commit that added records."""
        if self._tail:
            with self._lock:
                tail, self._tail = self._tail, []
            wake_all(tail)

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


def new_epoch(now: int) -> str:
    """The name of a new journal file: 48 bits of milliseconds, 16 of chance, so that later ones sort later."""
    return f"{now // 1_000 & (1 << 48) - 1:012x}{os.urandom(2).hex()}"


def _after_prefix(prefix: bytes) -> bytes | None:
    """The least key that is greater than every key with this prefix; None if there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None
