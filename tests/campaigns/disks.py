"""Disks that fail: one that refuses an operation, and one that loses power with writes not forced out yet.

For SQLite they are VFS shims, for segments and blobs they stand in for the journal's own file layer.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from syncline.journal.database import CHECKSUM_VFS, connect
from syncline.journal.files import Files

_numbers = itertools.count()


class PowerCut(Exception):
    """Nothing works any more."""


class Faults:
    """Counts operations; at number `at` does `act`, and from then on, if `for_good`, at every one."""

    def __init__(self, at: int = 0, *, for_good: bool = False) -> None:
        self.at = at
        self.for_good = for_good
        self.count = 0
        self.fired = 0

    def step(self, what: str, fail: Callable[[str], Exception]) -> None:
        self.count += 1
        if self.at and (self.count == self.at or (self.for_good and self.count > self.at)):
            self.fired += 1
            raise fail(what)


def _io_error(what: str) -> Exception:
    return apsw.IOError(f"injected: {what}")


class Image:
    """What is surely on disk of the files below SQLite, and what was written but not forced out."""

    def __init__(self) -> None:
        self.durable: dict[str, bytearray] = {}
        self.pending: dict[str, list[tuple[int, bytes | None]]] = {}  # offset and bytes; None cuts the file there

    def wrote(self, name: str, offset: int, data: bytes | None) -> None:
        self.pending.setdefault(name, []).append((offset, data))

    def synced(self, name: str) -> None:
        self.durable[name] = self._with(name, self.pending.pop(name, []))

    def deleted(self, name: str) -> None:
        self.durable.pop(name, None)
        self.pending.pop(name, None)

    def after_power_cut(self, folder: Path, chance: random.Random) -> None:
        """Write the files as a disk may hold them then: of what was not forced out, anything may be missing."""
        folder.mkdir()
        for name in self.durable.keys() | self.pending.keys():
            pending = self.pending.get(name, [])
            kept = chance.choice([[], pending, [write for write in pending if chance.random() < 0.5]])
            if name in self.durable or kept:
                (folder / Path(name).name).write_bytes(self._with(name, kept))

    def _with(self, name: str, writes: list[tuple[int, bytes | None]]) -> bytearray:
        content = bytearray(self.durable.get(name, b""))
        for offset, data in writes:
            if data is None:
                del content[offset:]
            else:
                content.extend(bytes(max(0, offset - len(content))))
                content[offset : offset + len(data)] = data
        return content


class _File(apsw.VFSFile):
    def __init__(self, base: str, name: Any, flags: Any, faults: Faults, image: Image) -> None:
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._faults = faults
        self._image = image
        super().__init__(base, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._faults.step("write", _io_error)
        self._image.wrote(self._name, offset, bytes(data))
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:
        self._faults.step("truncate", _io_error)
        self._image.wrote(self._name, size, None)
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:
        self._faults.step("sync", _io_error)
        self._image.synced(self._name)
        super().xSync(flags)


class _VFS(apsw.VFS):
    def __init__(self, name: str, faults: Faults, image: Image) -> None:
        self._faults = faults
        self._image = image
        super().__init__(name, CHECKSUM_VFS)

    def xOpen(self, name: Any, flags: Any) -> _File:
        return _File(CHECKSUM_VFS, name, flags, self._faults, self._image)

    def xDelete(self, name: str, sync: bool) -> None:
        self._faults.step("delete", _io_error)
        self._image.deleted(name)
        super().xDelete(name, sync)


@contextmanager
def faulty_database(faults: Faults, image: Image | None = None) -> Iterator[str]:
    """The name of a VFS whose files fail as planned."""
    connect(Path(os.devnull)).close()  # registers the checksum VFS, on which this one stands
    name = f"faulty-{next(_numbers)}"
    vfs = _VFS(name, faults, image or Image())
    try:
        yield name
    finally:
        vfs.unregister()


class FaultyFiles(Files):
    """A file system that refuses an operation, or loses power at it."""

    def __init__(self, faults: Faults, error: type[Exception] = OSError) -> None:
        self.faults = faults
        self._error = error
        self.content: dict[Path, bytes] = {}  # forced out, under the name the file has now
        self.named: dict[Path, bytes] = {}  # name and content forced out

    def write(self, path: Path, data: bytes) -> None:
        self._step("write")
        super().write(path, data)

    def sync(self, path: Path) -> None:
        self._step("sync")
        super().sync(path)
        self.content[path] = path.read_bytes()

    def rename(self, old: Path, new: Path) -> None:
        self._step("rename")
        super().rename(old, new)
        self.content[new] = self.content.pop(old, b"")

    def remove(self, path: Path) -> None:
        self._step("remove")
        super().remove(path)
        self.content.pop(path, None)
        self.named.pop(path, None)

    def sync_folder(self, folder: Path) -> None:
        self._step("sync folder")
        super().sync_folder(folder)
        self.named |= {path: data for path, data in self.content.items() if path.parent == folder}

    def after_power_cut(self, old: Path, new: Path, chance: random.Random) -> None:
        """Write the files below `old` as a disk may hold them after the cut, below `new`."""
        for path in self.content.keys() | self.named.keys():
            if path in self.named or chance.random() < 0.5:
                copy = new / path.relative_to(old)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(self.named.get(path, self.content.get(path, b"")))

    def _step(self, what: str) -> None:
        def fail(what: str) -> Exception:
            return OSError(errno.EIO, f"injected: {what}") if self._error is OSError else self._error(what)

        self.faults.step(what, fail)
