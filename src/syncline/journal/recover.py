"""After damage, or to go back to a backup: put the damaged journal aside and carry what is intact into a new one.

The new journal has a new epoch, so none of its records can be taken for one of the old. Carried over are the records
that are in no segment yet, and the state of the protocols. Nothing is deleted: the damaged files keep their bytes
under another name, and `export_salvage` writes all intact records of them to a file.

Order, and why: the new journal is finished under the name `….recovered-<time>` before the first old file is touched.
Killed before that, nothing has happened; killed after, nobody opens what is left until a second call has finished it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import msgspec
import pyarrow.parquet as pq

from syncline.core import limits
from syncline.core.clock import Clock
from syncline.core.crash import crash_point
from syncline.core.errors import CorruptionError, SynclineError, UnavailableError, UsageError
from syncline.core.ports import StateChange
from syncline.core.record import Arrival, Record
from syncline.core.settings import JournalSettings
from syncline.formats.records import RECORD_SCHEMA
from syncline.formats.segments import read_segment
from syncline.journal import state
from syncline.journal.database import OLDEST, About, recovered_beside, sync_folder
from syncline.journal.files import Files
from syncline.journal.mark import Mark, mark_path, read_mark
from syncline.journal.reading import reading
from syncline.journal.rows import batch_of, record_of
from syncline.journal.salvage import salvage
from syncline.journal.store import Journal
from syncline.journal.targets import SegmentTarget

Progress = Callable[[int, int], None]


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """What was put aside, what was carried over, and what is lost."""

    quarantined: list[str]
    old_epoch: str | None
    epoch: str
    records: int  # carried over: intact, and in no segment
    states: int
    states_complete: bool
    missing: list[tuple[int, int]]  # ranges of the old epoch that are neither intact nor in a segment


def recover(
    path: Path,
    *,
    node: str,
    clock: Clock,
    target: SegmentTarget,
    source: Path | None = None,
    progress: Progress = lambda done, of: None,
) -> Recovery:
    """Replace the journal at `path` by what is intact of it, or of `source` (a backup), in a new epoch.

    Whatever is at `path` is put aside under the name `….corrupt-<time>`, with the answer beside it as JSON. A recovery
    that was cut short is finished instead.
    """
    origin = source or path
    if not origin.exists() and recovered_beside(path) is None:
        raise UsageError("there is no journal to recover", about=str(origin))
    if not path.parent.is_dir():  # a backup, carried over to a new machine
        Files().make_folder(path.parent)
    mark = Mark(path)  # keeps a running node out, and us out of a running node's journal
    try:
        if recovered_beside(path) is None:
            _prepare(path, origin, node, clock, target, progress)
        return _finish(path)
    finally:
        mark.close()


def export_salvage(
    path: Path, node: str, epoch: str, out: IO[bytes], progress: Progress = lambda done, of: None
) -> int:
    """Write every intact record of a damaged journal to a Parquet file, in the order of lsn; returns their number."""
    rows = sorted(salvage(path, progress), key=lambda row: int(row[0]))
    with pq.ParquetWriter(out, RECORD_SCHEMA, compression="zstd") as writer:
        for start in range(0, len(rows), limits.API_PAGE_RECORDS):
            writer.write_batch(batch_of(rows[start : start + limits.API_PAGE_RECORDS], node, epoch))
    return len(rows)


def _readable(path: Path) -> tuple[About | None, list[StateChange], bool]:
    """What SQLite can still read: what the file says of itself, its state, and whether that is all of the state."""
    about = None
    found: list[StateChange] = []
    try:
        with reading(path, OLDEST) as journal:
            about = journal.about
            for row in journal.connection.execute("SELECT * FROM state"):
                space, key, value, expires_at, _ = state.checked(row)
                found.append(StateChange(space=space, key=key, value=value, expires_at=expires_at))
    except (SynclineError, OSError) as error:
        if not isinstance(error, CorruptionError):
            raise
        return about, found, False
    return about, found, True


def _in_segments(target: SegmentTarget, node: str, epoch: str | None, about: About | None) -> tuple[int, set[int]]:
    """Up to which record everything is in segments, and which later ones are too."""
    sealed = about.sealed if about is not None else 0
    covered: set[int] = set()
    for name in target.list():
        if (name.node, name.epoch) == (node, epoch) and name.hi > sealed:
            try:
                covered.update(read_segment(target.read(name.path), name.path)[1]["lsn"].to_pylist())
            except CorruptionError:  # what it held may still be in the journal
                continue
    while sealed + 1 in covered:
        sealed += 1
    return sealed, covered


def _carry(records: list[Record], states: list[StateChange], fresh: Path, node: str, clock: Clock) -> str:
    """Make the new journal, in a file of its own."""
    settings = JournalSettings(refused_per_peer_hour=2**31, disk_free_all=0, disk_free_rejects=0)
    journal = Journal.open(fresh, node=node, clock=clock, settings=settings)
    try:
        for start in range(0, len(records), limits.JOURNAL_COMMIT_RECORDS):
            chunk = records[start : start + limits.JOURNAL_COMMIT_RECORDS]
            journal.append_sync([_arrival(record) for record in chunk])
        for start in range(0, len(states), limits.JOURNAL_COMMIT_RECORDS):
            journal.append_sync([], states[start : start + limits.JOURNAL_COMMIT_RECORDS])
        epoch = journal.epoch
    finally:
        journal.close()
    if fresh.with_name(f"{fresh.name}-wal").exists():  # closing works it in, unless the disk fails
        raise UnavailableError("the new journal could not be finished", hint="try again", about=str(fresh))
    mark_path(fresh).unlink()  # the note goes by the name of the file; the node writes a new one
    return epoch


def _prepare(path: Path, origin: Path, node: str, clock: Clock, target: SegmentTarget, progress: Progress) -> None:
    """Make the new journal and the report of it, and give both their names. Touches nothing of the old one."""
    moment = datetime.fromtimestamp(clock.now() / 1e6, UTC).strftime("%Y%m%dT%H%M%SZ")
    aside = _aside(path, moment)
    if aside.exists():
        raise UsageError("a journal was put aside this very second", hint="try again", about=str(aside))
    about, states, complete = _readable(origin)
    noted = read_mark(path)
    epoch = about.epoch if about else noted[0] if noted else None
    sealed, covered = _in_segments(target, node, epoch, about)
    rows = {row[0]: row for row in salvage(origin, progress) if row[0] > sealed and row[0] not in covered}
    known = max([about.newest if about else 0, noted[1] if noted and noted[0] == epoch else 0, *rows])
    fresh = path.with_name(f"{path.name}.recovering")
    _remove(fresh)
    records = [record_of(rows[lsn], node, epoch or "") for lsn in sorted(rows)]
    report = Recovery(
        quarantined=[str(new) for _, new in _moves(path, aside)],
        old_epoch=epoch,
        epoch=_carry(records, states, fresh, node, clock),
        records=len(rows),
        states=len(states),
        states_complete=complete,
        missing=list(_gaps(sealed, known, rows.keys() | covered)),
    )
    files = Files()
    files.write(_report(aside), msgspec.json.encode(report))
    files.sync(_report(aside))
    crash_point("recover.before-rename")
    fresh.rename(path.with_name(f"{path.name}.recovered-{moment}"))
    sync_folder(path.parent)


def _finish(path: Path) -> Recovery:
    """Put the old files aside and the new one in their place. Whatever of this was done before is not done again."""
    ready = recovered_beside(path)
    assert ready is not None
    aside = _aside(path, ready.name.rpartition("-")[2])
    for old, new in _moves(path, aside):
        old.rename(new)
        crash_point("recover.mid-quarantine")
    mark_path(path).unlink(missing_ok=True)  # of the old epoch, or an empty one that our own lock made
    sync_folder(path.parent)
    crash_point("recover.after-quarantine")
    ready.rename(path)
    sync_folder(path.parent)
    return msgspec.json.decode(_report(aside).read_bytes(), type=Recovery)


def _aside(path: Path, moment: str) -> Path:
    return path.with_name(f"{path.name}.corrupt-{moment}")


def _report(aside: Path) -> Path:
    return aside.with_name(f"{aside.name}.json")


def _moves(path: Path, aside: Path) -> list[tuple[Path, Path]]:
    """The files of a journal and where they go. The log keeps its name relative to the database, so both can be
    opened there. An empty note is no file of the journal: whoever takes the lock makes one."""
    moves = [
        (path.with_name(path.name + end), aside.with_name(aside.name + end)) for end in ("-wal", "-shm", "-mark", "")
    ]
    return [
        (old, new)
        for old, new in moves
        if old.exists() and not new.exists() and (old != mark_path(path) or old.stat().st_size)
    ]


def _arrival(record: Record) -> Arrival:
    return Arrival(**{field: getattr(record, field) for field in Arrival.__struct_fields__})


def _remove(fresh: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-mark"):
        fresh.with_name(fresh.name + suffix).unlink(missing_ok=True)


def _gaps(sealed: int, newest: int, present: Any) -> Iterator[tuple[int, int]]:
    start = None
    for lsn in range(sealed + 1, newest + 1):
        if lsn in present:
            if start is not None:
                yield start, lsn - 1
            start = None
        elif start is None:
            start = lsn
    if start is not None:
        yield start, newest
