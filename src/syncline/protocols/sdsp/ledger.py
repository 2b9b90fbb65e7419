"""What a publisher must not forget, kept ahead of what it sends: the frames of an object back to its newest full one.

A frame is on disk before it goes out, so a publisher killed at any moment never sends other content under a serial that
it may have used: it comes back with the same frame and sends that again. Inside a node the journal does this.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import anyio.to_thread
import msgspec

from syncline.core.errors import ConflictError, CorruptionError, UnavailableError
from syncline.core.limits import KIB, SDSP_FRAME_MAX, SDSP_OBJECT_MAX

FORMAT: Final = 1
_HEAD: Final = 8  # length and crc32, big-endian
_ENTRY_MAX: Final = SDSP_FRAME_MAX + SDSP_OBJECT_MAX + 64 * KIB


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One frame as it was or will be sent. `content` is the object of a full frame that only says where it is."""

    topic: str
    frame: bytes
    content: bytes | None = None


class Ledger(Protocol):
    """Where a publisher keeps its frames.

    Guarantee: when `write` returns, the entry survives a crash. One publisher at a time holds an object; another one
    that wants it gets ConflictError.
    """

    async def hold(self, uid: str) -> list[Entry]:
        """Take hold of an object: its entries since the newest full frame, oldest first; empty if it is new."""
        ...

    async def write(self, uid: str, entry: Entry, *, full: bool) -> None:
        """Add an entry; a full frame makes those before it superfluous."""
        ...

    async def release(self, uid: str) -> None: ...


class MemoryLedger:
    """Forgets everything with the process: for publishers that go on from the transport's history, or never."""

    def __init__(self) -> None:
        self._held: set[str] = set()

    async def hold(self, uid: str) -> list[Entry]:
        if uid in self._held:
            raise _taken(uid)
        self._held.add(uid)
        return []

    async def write(self, uid: str, entry: Entry, *, full: bool) -> None:
        pass

    async def release(self, uid: str) -> None:
        self._held.discard(uid)


class FileLedger:
    """One file per object in a folder. Not for network file systems: it relies on locks and on fsync."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, _File] = {}

    async def hold(self, uid: str) -> list[Entry]:
        if uid in self._open:
            raise _taken(uid)
        file = await anyio.to_thread.run_sync(_File, self._folder, uid)
        try:
            entries = await anyio.to_thread.run_sync(file.read)
        except BaseException:
            file.close()
            raise
        self._open[uid] = file
        return entries

    async def write(self, uid: str, entry: Entry, *, full: bool) -> None:
        file = self._open[uid]
        await anyio.to_thread.run_sync(file.replace if full else file.append, entry)

    async def release(self, uid: str) -> None:
        if (file := self._open.pop(uid, None)) is not None:
            file.close()


class _File:
    """Length, crc and entry, one after the other, behind a line that names format and object."""

    def __init__(self, folder: Path, uid: str) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        name = hashlib.sha256(uid.encode()).hexdigest()[:32]
        self._uid = uid
        self._path = folder / f"{name}.sdsp"
        self._lock = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise _taken(uid) from None

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def read(self) -> list[Entry]:
        try:
            stored = self._path.read_bytes()
        except FileNotFoundError:
            return []
        title = self._title()
        if not stored.startswith(title):
            raise self._damaged("it begins wrongly")
        entries, position = [], len(title)
        while position < len(stored):
            entry, end = self._entry(stored, position)
            if entry is None:  # a write that a crash cut short: it was not sent, for writing comes first
                self._cut(position)
                break
            entries.append(entry)
            position = end
        return entries

    def append(self, entry: Entry) -> None:
        """Add an entry, or leave the file as it was: what is half there would spoil the entries after it."""
        whole = self._path.stat().st_size
        with self._writing():
            try:
                with self._path.open("ab") as file:
                    file.write(_framed(entry))
                    file.flush()
                    os.fsync(file.fileno())
            except OSError:
                self._cut(whole)
                raise

    def replace(self, entry: Entry) -> None:
        """Begin the file anew; until the rename the old one is whole."""
        fresh = self._path.with_suffix(".new")
        with self._writing():
            with fresh.open("wb") as file:
                file.write(self._title() + _framed(entry))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._path)
            handle = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UnavailableError(
                f"the frame cannot be written down, and was not sent: {error.strerror or error}",
                hint="see to the disk, then repeat the call",
                about=str(self._path),
            ) from error

    def _title(self) -> bytes:
        return msgspec.json.encode(["syncline-sdsp-publisher", FORMAT, self._uid]) + b"\n"

    def _entry(self, stored: bytes, position: int) -> tuple[Entry | None, int]:
        """The entry at `position` and where the next one begins; None for one that ends with the file, unfinished."""
        body = position + _HEAD
        size = int.from_bytes(stored[position : position + 4])
        end = body + size
        if size > _ENTRY_MAX:
            raise self._damaged(f"an entry of {size} bytes")
        if end > len(stored):
            return None, end
        if zlib.crc32(stored[body:end]) != int.from_bytes(stored[position + 4 : body]):
            if end == len(stored):
                return None, end
            raise self._damaged("a checksum does not fit")
        try:
            return msgspec.msgpack.decode(stored[body:end], type=Entry), end
        except msgspec.DecodeError as error:
            raise self._damaged(str(error)) from None

    def _cut(self, position: int) -> None:
        with self._path.open("r+b") as file:
            file.truncate(position)
            os.fsync(file.fileno())

    def _damaged(self, what: str) -> CorruptionError:
        return CorruptionError(
            f"a publisher's file is damaged: {what}",
            hint="move it away and go on from the transport's history",
            about=str(self._path),
        )


def _framed(entry: Entry) -> bytes:
    body = msgspec.msgpack.encode(entry)
    return len(body).to_bytes(4) + zlib.crc32(body).to_bytes(4) + body


def _taken(uid: str) -> ConflictError:
    return ConflictError("another publisher here holds this object", hint="one publisher per object", about=uid)
