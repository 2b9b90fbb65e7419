"""The drainer: seals committed records into segments, so that the lake can read them and the journal forget them.

Order, and why: write all files of a range, force them to disk, make them visible one by one, then move the cursor. A
visible segment may have been landed already, so it is never deleted and its range never cut anew: after a crash the
range of what is visible is completed. Reading rows is the journal's business, landing them the lake's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import anyio
import pyarrow as pa
import pyarrow.parquet as pq
import structlog
from anyio import to_thread

from syncline.core import limits
from syncline.core.crash import crash_point
from syncline.core.errors import CorruptionError, UnavailableError
from syncline.core.ports import RecordQuery
from syncline.core.settings import SegmentSettings
from syncline.formats.records import RECORD_SCHEMA
from syncline.formats.segments import SegmentInfo, SegmentName, read_segment, stamped
from syncline.journal.rows import COLUMNS, Row, batch_of
from syncline.journal.store import Journal
from syncline.journal.targets import SegmentTarget

log = structlog.get_logger(__name__)
Partition = tuple[str, int]  # protocol, days since 1970

_PROTOCOL: Final = COLUMNS.index("protocol") + 1
_RECEIVED_AT: Final = COLUMNS.index("received_at") + 1
_RAW: Final = COLUMNS.index("raw") + 1


class Drainer:
    """Seals the journal of one node into one target."""

    def __init__(self, journal: Journal, target: SegmentTarget, settings: SegmentSettings) -> None:
        self._journal = journal
        self._target = target
        self._settings = settings
        self._lock = threading.Lock()
        self._recovered = False  # whether it is known that nothing beyond the cursor is visible
        self._drained_bytes = 0
        self._counts = {"segments": 0, "sealed_records": 0, "drains_failed": 0}

    def drain(self) -> list[SegmentInfo]:
        """Seal everything that is committed now and not sealed yet. Blocks; safe to call from any thread."""
        with self._lock:
            sealed: list[SegmentInfo] = []
            drained = self._journal.raw_bytes()
            try:
                if not self._recovered:
                    sealed += self._recover()
                newest = self._journal.newest()
                while self._journal.sealed() < newest:
                    sealed += self._seal(newest)
            except BaseException:
                self._recovered = False
                self._counts["drains_failed"] += 1
                raise
            self._drained_bytes = drained
            self._counts["segments"] += len(sealed)
            self._counts["sealed_records"] += sum(segment.rows for segment in sealed)
            return sealed

    async def run(self) -> None:
        """Drain every `settings.seconds` while records come in, or as soon as `settings.bytes` wait. Runs until
        cancelled. A target that does not answer is tried again; damage ends it."""
        while True:
            await self._journal.wait(self._journal.sealed())
            with anyio.move_on_after(self._settings.seconds):
                await self._enough()
            try:
                await to_thread.run_sync(self.drain)
            except UnavailableError as error:
                log.warning("segments cannot be sealed now", error=str(error))
                await anyio.sleep(self._settings.seconds)

    async def _enough(self) -> None:
        """Return when as many bytes wait as are sealed at once. Looks now and then, not at every commit."""
        while self._journal.raw_bytes() - self._drained_bytes < self._settings.bytes:  # noqa: ASYNC110
            await anyio.sleep(limits.SEGMENT_POLL_SECONDS)

    def statistics(self) -> dict[str, int | float]:
        """Counters and gauges, as `/metrics` shows them."""
        waiting = self._journal.newest() - self._journal.sealed()
        return {**self._counts, "unsealed_records": waiting}

    def _recover(self) -> list[SegmentInfo]:
        """Finish what a crash interrupted: complete the range of segments that are visible beyond the cursor."""
        journal, target = self._journal, self._target
        if removed := target.discard(journal.node, journal.epoch):
            log.info("removed half-made segments", count=removed)
        sealed = journal.sealed()
        visible = [
            name
            for partition in journal.partitions(sealed)
            for name in target.list(_folder(partition))
            if (name.node, name.epoch) == (journal.node, journal.epoch) and name.hi > sealed
        ]
        self._recovered = True
        if not visible:
            return []
        ranges = {(name.lo, name.hi) for name in visible}
        lo, hi = visible[0].lo, visible[0].hi
        if len(ranges) > 1 or lo != sealed + 1 or hi > journal.newest():
            raise CorruptionError(
                f"segments of records {sorted(ranges)} exist, but the journal has sealed up to {sealed} of "
                f"{journal.newest()}",
                hint="an older copy of the journal may have been put back; run `syncline journal recover`",
                about=visible[0].path,
            )
        return self._seal(hi, whole=True, present=[name.path for name in visible])

    def _seal(self, upto: int, *, whole: bool = False, present: Sequence[str] = ()) -> list[SegmentInfo]:
        """Seal the next range: up to `upto`, or less if that is too much for one and need not be `whole`."""
        lo, sheaf = self._journal.sealed() + 1, _Sheaf(self._journal.node, self._journal.epoch)
        for row in self._rows(lo, upto):
            if not whole and sheaf.full(row):
                break
            sheaf.add(row)
        return self._publish(sheaf, lo, present)

    def _rows(self, lo: int, hi: int) -> Iterator[Row]:
        """Every record from lo to hi. One that is missing was lost, for only sealed ones are ever removed."""
        expected = lo
        while expected <= hi:
            most, size = limits.SEGMENT_PAGE_RECORDS, limits.JOURNAL_PAGE_RAW
            rows = self._journal.rows(RecordQuery(after=expected - 1, before=hi + 1, limit=most, raw_bytes=size))
            for row in rows:
                if row[0] != expected:
                    break
                expected += 1
                yield row
            else:
                if rows:
                    continue
            raise CorruptionError(f"record {expected} is missing", about=str(self._journal.path))

    def _publish(self, sheaf: _Sheaf, lo: int, present: Sequence[str]) -> list[SegmentInfo]:
        """Make visible what is not yet. What is (`present`) must be what the journal holds, record by record: an older
        journal put back counts on from where it was and would take its new records for those sealed long ago."""
        infos, segments = sheaf.close(lo)
        for path in present:
            info, rows = read_segment(self._target.read(path), path)
            made = segments.pop(path, None)
            if made is None or info.siblings != infos[0].siblings or not rows.equals(read_segment(made, path)[1]):
                raise CorruptionError(
                    "a visible segment does not agree with the journal",
                    hint="an older copy of the journal may have been put back; run `syncline journal recover`",
                    about=path,
                )
        self._target.publish(segments)
        crash_point("segment.before-cursor")
        self._journal.seal(infos[0].hi)
        return infos


class _Sheaf:
    """The segments of one range while they are filled: one per protocol and day. Bounded by the caps on a range."""

    def __init__(self, node: str, epoch: str) -> None:
        self._node = node
        self._epoch = epoch
        self._rows: dict[Partition, list[Row]] = {}  # not handed to a writer yet
        self._writers: dict[Partition, tuple[pa.BufferOutputStream, pq.ParquetWriter]] = {}
        self._counts: dict[Partition, int] = {}
        self._hi = 0
        self._total = 0
        self._bytes = 0

    def full(self, row: Row) -> bool:
        """Whether this row must go into the next range."""
        return self._total > 0 and (
            self._bytes >= limits.SEGMENT_BYTES
            or self._total >= limits.SEGMENT_RECORDS
            or (_partition(row) not in self._counts and len(self._counts) >= limits.SEGMENT_PARTITIONS)
        )

    def add(self, row: Row) -> None:
        partition = _partition(row)
        waiting = self._rows.setdefault(partition, [])
        waiting.append(row)
        self._counts[partition] = self._counts.get(partition, 0) + 1
        self._hi = row[0]
        self._total += 1
        self._bytes += len(row[_RAW] or b"")
        if len(waiting) >= limits.SEGMENT_PAGE_RECORDS:
            self._flush(partition)

    def close(self, lo: int) -> tuple[list[SegmentInfo], dict[str, bytes]]:
        """What each segment says of itself, and its bytes by path."""
        names = {part: SegmentName(self._node, self._epoch, lo, self._hi, *_text(part)) for part in self._counts}
        siblings = {names[partition].path: self._counts[partition] for partition in sorted(self._counts)}
        infos, segments = [], {}
        for partition in sorted(self._counts):
            self._flush(partition)
            info = SegmentInfo.of(names[partition], siblings)
            stream, writer = self._writers[partition]
            writer.add_key_value_metadata(info.metadata())
            writer.close()
            infos.append(info)
            segments[info.path] = stamped(stream.getvalue().to_pybytes())
        return infos, segments

    def _flush(self, partition: Partition) -> None:
        rows = self._rows[partition]
        if not rows:
            return
        if partition not in self._writers:
            stream = pa.BufferOutputStream()
            writer = pq.ParquetWriter(stream, RECORD_SCHEMA, compression="zstd", write_page_checksum=True)
            self._writers[partition] = (stream, writer)
        self._writers[partition][1].write_batch(batch_of(rows, self._node, self._epoch))
        self._rows[partition] = []


def _partition(row: Row) -> Partition:
    return row[_PROTOCOL], row[_RECEIVED_AT] // limits.DAY


def _text(partition: Partition) -> tuple[str, str]:
    protocol, day = partition
    return protocol, (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)).date().isoformat()


def _folder(partition: Partition) -> str:
    protocol, date = _text(partition)
    return f"protocol={protocol}/date={date}"
