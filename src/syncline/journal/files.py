"""The few things done to files beside the database, in one place so that tests can make each of them fail.

Every operation that must survive a power cut is here; nothing here decides when it is needed.
"""

from __future__ import annotations

import os
from pathlib import Path


class Files:
    """The real file system."""

    def make_folder(self, folder: Path) -> None:
        """Make a folder and the missing ones above it, so that their names survive a power cut."""
        if not folder.is_dir():
            self.make_folder(folder.parent)
            folder.mkdir(exist_ok=True)
        self.sync_folder(folder.parent)  # even if it was there: whoever made it may not have come to this

    def write(self, path: Path, data: bytes) -> None:
        """Write a whole file; it is on disk only after `sync`."""
        path.write_bytes(data)

    def sync(self, path: Path) -> None:
        """Force a file's bytes to disk."""
        self._sync(path)

    def rename(self, old: Path, new: Path) -> None:
        """Give a file its final name."""
        old.rename(new)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def sync_folder(self, folder: Path) -> None:
        """Force the names in a folder to disk."""
        self._sync(folder)

    def _sync(self, path: Path) -> None:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
