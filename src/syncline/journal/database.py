"""The journal's SQLite file: its tables, how connections to it are opened, and what its failures mean.

Every page carries a checksum (SQLite's checksum VFS), so a damaged page is an error and never a wrong answer. What is
written, and when, is the writer's business.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import apsw
import apsw.sqlite_extra

from syncline.core import limits
from syncline.core.errors import CorruptionError, MissingError, OverloadedError, SynclineError, UnavailableError
from syncline.journal.mark import read_mark

VERSION: Final = 2
OLDEST: Final = 1  # a journal of this version is brought to ours when it is opened to be written; see upgrade.py
CHECKSUM_VFS: Final = "cksmvfs"
CHECKSUM_BYTES: Final = 8  # at the end of every page

# Rows carry `crc` beside the page checksums: a page that was zeroed, or took the place of another, has a valid sum.
TERMS_SCHEMA: Final = """
CREATE TABLE runs (run INTEGER PRIMARY KEY, after INTEGER NOT NULL, last INTEGER NOT NULL, records INTEGER NOT NULL) STRICT;
CREATE TABLE terms (
    run INTEGER NOT NULL, first BLOB NOT NULL, entries BLOB NOT NULL, crc INTEGER NOT NULL, UNIQUE (run, first)
) STRICT;
"""
SCHEMA: Final = f"""{TERMS_SCHEMA}
CREATE TABLE about (version INTEGER NOT NULL, node TEXT NOT NULL, epoch TEXT NOT NULL, key BLOB NOT NULL) STRICT;
CREATE TABLE head (
    quiet INTEGER NOT NULL, sealed INTEGER NOT NULL, indexed INTEGER NOT NULL
) STRICT;
CREATE TABLE records (
    lsn INTEGER PRIMARY KEY,
    protocol TEXT NOT NULL, direction TEXT NOT NULL, topic TEXT NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL,
    publisher TEXT NOT NULL, peer TEXT NOT NULL, seq BLOB, id BLOB NOT NULL,
    published_at INTEGER, received_at INTEGER NOT NULL, expires_at INTEGER,
    verdict TEXT NOT NULL, reason TEXT, raw_ref TEXT, crc INTEGER NOT NULL, raw BLOB
) STRICT;
CREATE INDEX records_by_time ON records (received_at);
CREATE TABLE protocols (name TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
CREATE TABLE state (
    space TEXT NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, expires_at INTEGER, crc INTEGER NOT NULL,
    PRIMARY KEY (space, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX state_by_expiry ON state (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE refused (
    hour INTEGER NOT NULL, peer TEXT NOT NULL, kept INTEGER NOT NULL, counted INTEGER NOT NULL,
    PRIMARY KEY (hour, peer)
) STRICT, WITHOUT ROWID;
CREATE TABLE counted (
    protocol TEXT NOT NULL, verdict TEXT NOT NULL, reason TEXT NOT NULL, count INTEGER NOT NULL,
    PRIMARY KEY (protocol, verdict, reason)
) STRICT, WITHOUT ROWID;
"""


class About(NamedTuple):
    """The two one-row tables: what the journal is, and how far it has come."""

    version: int
    node: str
    epoch: str
    key: bytes  # of the hashes in `terms`
    quiet: int  # commits that added no record
    sealed: int  # every record up to this lsn is in a segment
    indexed: int  # the terms of every record up to this lsn are in a run
    newest: int  # lsn; the newest record is never removed


_SIZES: Final = (1, 8, 32, 64, 128, 192, 256, limits.JOURNAL_INSERT_ROWS)  # rows of the statements kept prepared
_DAMAGE: Final = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError)
_registering = threading.Lock()


def connect(path: Path, *, write: bool = False, vfs: str = CHECKSUM_VFS) -> apsw.Connection:
    """A connection that verifies page checksums; `write` creates the file if need be."""
    _register_checksums()
    flags = apsw.SQLITE_OPEN_READONLY
    if write:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    with failures(path):
        connection = apsw.Connection(str(path), flags=flags, vfs=vfs)
        connection.set_busy_timeout(limits.JOURNAL_BUSY_MS)
        connection.pragma("mmap_size", 0)  # a read error under mmap is a signal that kills the process
        cache = limits.JOURNAL_CACHE_BYTES if write else limits.JOURNAL_READER_CACHE_BYTES
        connection.pragma("cache_size", -cache // limits.KIB)
        if write:
            connection.pragma("synchronous", "full")  # every commit is on disk before it is answered
            connection.wal_autocheckpoint(0)  # a failure while trimming the log would pass for a failed commit
        return connection


def create(connection: apsw.Connection, *, node: str, epoch: str) -> None:
    """Lay out an empty file. Page size and reserved bytes must precede the first page."""
    connection.reserve_bytes("main", CHECKSUM_BYTES)
    connection.pragma("page_size", limits.JOURNAL_PAGE_BYTES)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(SCHEMA)
    connection.execute("INSERT INTO about VALUES (?, ?, ?, ?)", (VERSION, node, epoch, os.urandom(16)))
    connection.execute("INSERT INTO head VALUES (0, 0, 0)")
    connection.execute("COMMIT")


def keep_log(connection: apsw.Connection) -> None:
    """Write ahead into a log. The file remembers it, but a crash right after `create` may have come first."""
    connection.pragma("journal_mode", "wal")


def keeps_log(connection: apsw.Connection) -> bool:
    """Whether the file is written by way of a log: journals are, their backups are not."""
    return bool(connection.pragma("journal_mode") == "wal")


def read_about(connection: apsw.Connection, path: Path, oldest: int = VERSION) -> About:
    """What a file of ours says of itself. A damaged header must not switch the checksums off unnoticed.

    `oldest` is the oldest version that the caller can do with.
    """
    with failures(path):
        if connection.reserve_bytes("main") != CHECKSUM_BYTES or connection.pragma("checksum_verification") != "1":
            raise damaged("the header is damaged, or this is not a journal", path)
        try:
            newest = "SELECT coalesce(max(lsn), 0) FROM records"
            found = About(*connection.execute(f"SELECT *, ({newest}) FROM about, head").get)  # noqa: S608
        except (apsw.SQLError, TypeError) as error:
            raise damaged(f"this is not a journal: {error}", path) from error
    if not _is_plausible(found):  # another table's page in the place of this one
        raise damaged("what the journal says of itself cannot be", path)
    if not oldest <= found.version <= VERSION:
        known = OLDEST <= found.version < VERSION
        raise SynclineError(
            f"the journal has version {found.version}, this program knows version {VERSION}",
            hint="start the node, which brings it up to date" if known else "use the version of syncline that made it",
            about=str(path),
        )
    return found


def _is_plausible(about: About) -> bool:
    kinds = {"version": int, "node": str, "epoch": str, "key": bytes}
    return all(type(getattr(about, name)) is kind for name, kind in kinds.items()) and about.version >= 1


def recovered_beside(path: Path) -> Path | None:
    """The finished file of a recovery that has not taken the place of the damaged one yet; see recover.py."""
    return next(iter(sorted(path.parent.glob(f"{path.name}.recovered-*Z"))), None)


def check_whole(path: Path) -> None:
    """Raise CorruptionError if there was more here than there is: the database is gone, but not the note beside it; or
    a recovery was cut short, so that its log may be put aside already, and it not."""
    if recovered_beside(path) is not None:
        raise CorruptionError(
            "a recovery of this journal was cut short",
            hint="run `syncline journal recover` again, which finishes it",
            about=str(path),
        )
    if not path.exists() and (mark := read_mark(path)) is not None:
        raise damaged(f"the journal is gone, but had come to record {mark[1]}", path)


def damaged(what: str, path: Path) -> CorruptionError:
    return CorruptionError(what, hint="run `syncline journal verify`, then `syncline journal recover`", about=str(path))


@contextmanager
def failures(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours: damage, a full disk, or a disk that fails."""
    try:
        yield
    except _DAMAGE as error:
        raise damaged(f"the journal is damaged: {error}", path) from error
    except apsw.FullError as error:
        raise OverloadedError(
            "the disk is full", hint="free space on the disk of the journal", about=str(path)
        ) from error
    except apsw.IOError as error:
        if getattr(error, "extendedresult", None) == apsw.SQLITE_IOERR_DATA:
            raise damaged("a page of the journal does not match its checksum", path) from error
        raise UnavailableError(f"the journal's disk failed: {error}", about=str(path)) from error
    except (apsw.CantOpenError, apsw.BusyError, apsw.ReadOnlyError) as error:
        raise UnavailableError(f"the journal cannot be opened: {error}", about=str(path)) from error


@contextmanager
def moment(connection: apsw.Connection) -> Iterator[None]:
    """Several reads of one and the same state, though others write. The log cannot be trimmed meanwhile: be quick."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:  # a read that fails on damage ends it
            connection.execute("ROLLBACK")


def insert(connection: apsw.Connection, into: str, select: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert many rows by few statements: `into` the table, `select` from column1, column2, …."""
    if rows:
        insert_values(connection, into, select, list(chain.from_iterable(rows)), len(rows))


def insert_values(
    connection: apsw.Connection,
    into: str,
    select: str,
    values: list[Any],
    rows: int,
) -> None:
    """The same for the values of all rows, one after the other.

    Every statement lets go of the interpreter's lock and must win it back from a busy event loop, which takes longer
    than inserting a row. So there are statements for a few sizes, and the places left over are filled with NULLs. None
    is so long that it would be parsed again for every commit, which takes longer than all of its rows.
    """
    width = len(values) // rows
    for start in range(0, rows, limits.JOURNAL_INSERT_ROWS):
        chunk = values[start * width : (start + limits.JOURNAL_INSERT_ROWS) * width]
        size = next(size for size in _SIZES if size * width >= len(chunk))
        filling = (None,) * (width * size - len(chunk))
        connection.execute(_insert(into, select, width, size), (*chunk, *filling))


@cache
def _insert(into: str, select: str, width: int, size: int) -> str:
    row = f"({','.join('?' * width)})"
    return f"{into} SELECT {select} FROM (VALUES {','.join([row] * size)}) WHERE column1 IS NOT NULL"  # noqa: S608


def sync_folder(folder: Path) -> None:
    """Make names in this folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _register_checksums() -> None:
    """Load the checksum VFS once per process, leaving SQLite's default VFS as it was."""
    with _registering:
        if CHECKSUM_VFS in apsw.vfs_names():
            return
        default = apsw.vfs_names()[0]
        try:
            apsw.sqlite_extra.load(apsw.Connection(":memory:"), "cksumvfs")
        except (apsw.sqlite_extra.NotAvailable, apsw.Error) as error:
            raise MissingError(
                f"this build of apsw lacks SQLite's checksum VFS: {error}", hint="pip install --force-reinstall apsw"
            ) from error
        apsw.set_default_vfs(default)
