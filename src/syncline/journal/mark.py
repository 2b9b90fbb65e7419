"""A note beside the database of how far it had come, which also keeps a second writer out.

SQLite takes damage in its write-ahead log for a torn tail and silently goes on without it. The note, rewritten after
every commit, tells: a database that is behind its note has lost acknowledged commits. It is not synced, so after a
power cut it may itself be behind, which says nothing; it is never ahead of what was acknowledged.
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path
from typing import Final
from zlib import crc32

from syncline.core.errors import UnavailableError

_LAYOUT: Final = struct.Struct("<16sQQ")  # epoch, newest lsn, quiet commits; then a CRC-32 of them
SIZE: Final = _LAYOUT.size + 4


def mark_path(database: Path) -> Path:
    return database.with_name(database.name + "-mark")


def read_mark(database: Path) -> tuple[str, int, int] | None:
    """Epoch, newest lsn and quiet commits of the note; None if it is absent or unreadable, which says nothing."""
    try:
        data = mark_path(database).read_bytes()
    except FileNotFoundError:
        return None
    if len(data) != SIZE or crc32(data[:-4]) != int.from_bytes(data[-4:], "little"):
        return None
    epoch, newest, quiet = _LAYOUT.unpack(data[:-4])
    return epoch.decode("ascii", "replace"), newest, quiet


class Mark:
    """The note, held open and locked by the one process that writes the journal."""

    def __init__(self, database: Path) -> None:
        path = mark_path(database)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise UnavailableError(
                "another process has this journal open", hint="stop it, or use another data folder", about=str(database)
            ) from None

    def write(self, epoch: str, newest: int, quiet: int) -> None:
        data = _LAYOUT.pack(epoch.encode(), newest, quiet)
        os.pwrite(self._file, data + crc32(data).to_bytes(4, "little"), 0)

    def close(self) -> None:
        os.close(self._file)
