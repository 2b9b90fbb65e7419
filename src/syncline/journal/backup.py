"""A copy of a journal as of one moment, made while it is in use.

A copy must not go on as the journal it was copied from: its next records would bear numbers that are taken. Put it
back with `recover`, which carries it over into a new epoch.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import apsw

from syncline.core.errors import UsageError
from syncline.journal.database import CHECKSUM_VFS, failures, read_about, sync_folder
from syncline.journal.reading import reading

_PAGES: Final = 1_000  # copied between two reports of progress


def backup(path: Path, copy: Path, progress: Callable[[int, int], None] = lambda done, of: None) -> int:
    """Copy the journal at `path` to the new file `copy`, verified page by page; returns its newest lsn."""
    if copy.exists():
        raise UsageError("a file of this name is already there", hint="name a new one", about=str(copy))
    half_made = copy.with_name(f".{copy.name}.tmp")
    half_made.unlink(missing_ok=True)
    with reading(path) as journal, failures(path):
        target = apsw.Connection(str(half_made), vfs=CHECKSUM_VFS)
        try:
            target.reserve_bytes("main", journal.connection.reserve_bytes("main"))
            with target.backup("main", journal.connection, "main") as work:
                while not work.done:
                    work.step(_PAGES)
                    progress(work.page_count - work.remaining, work.page_count)
            target.pragma("journal_mode", "delete")  # a copy is one file
            newest = read_about(target, half_made).newest
        finally:
            target.close()
    handle = os.open(half_made, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    half_made.rename(copy)
    sync_folder(copy.parent)
    return newest
