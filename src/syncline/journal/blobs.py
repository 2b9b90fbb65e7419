"""Raw bytes too large for a row, kept once under their hash, in a local folder or an object store.

A reference is the SHA-256 of the bytes in hex, so what comes back is always checked. Blobs are never removed here:
sealed segments refer to them.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import obstore
from obstore.exceptions import AlreadyExistsError

from syncline.core.errors import CorruptionError, UnavailableError, UsageError
from syncline.journal.files import Files


class BlobStore(Protocol):
    """Keeps bytes under their hash. When `put` returns, they are durable; putting the same bytes again is nothing."""

    def put(self, data: bytes) -> str: ...

    def get(self, ref: str) -> bytes: ...


class LocalBlobs:
    """Blobs in a folder: `ab/abcdef…`."""

    def __init__(self, folder: Path, files: Files | None = None) -> None:
        self.folder = folder
        self._files = files or Files()

    def put(self, data: bytes) -> str:
        ref = sha256(data).hexdigest()
        path = self._path(ref)
        if not path.exists():
            self._files.make_folder(path.parent)
            temporary = path.with_name(f".{ref}.{os.urandom(4).hex()}")
            self._files.write(temporary, data)
            self._files.sync(temporary)
            self._files.rename(temporary, path)
        self._files.sync_folder(path.parent)  # even if it was there: whoever put it may not have come to this
        return ref

    def get(self, ref: str) -> bytes:
        path = self._path(ref)
        try:
            return checked(path.read_bytes(), ref)
        except FileNotFoundError:
            raise CorruptionError("raw bytes that a record refers to are gone", about=str(path)) from None

    def _path(self, ref: str) -> Path:
        if len(ref) != 64 or not set(ref) <= set("0123456789abcdef"):
            raise UsageError("a blob is named by 64 hex digits", about=ref[:80])
        return self.folder / ref[:2] / ref


class ObjectBlobs:
    """Blobs in an object store, below `blobs/`."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def put(self, data: bytes) -> str:
        ref = sha256(data).hexdigest()
        try:
            obstore.put(self._store, f"blobs/{ref}", data, mode="create")
        except AlreadyExistsError:
            pass
        except Exception as error:
            raise UnavailableError(f"the object store did not take a blob: {error}") from error
        return ref

    def get(self, ref: str) -> bytes:
        try:
            return checked(bytes(obstore.get(self._store, f"blobs/{ref}").bytes()), ref)
        except FileNotFoundError:
            raise CorruptionError("raw bytes that a record refers to are gone", about=ref) from None


def checked(data: bytes, ref: str) -> bytes:
    """The bytes, if they are those the reference names."""
    if sha256(data).hexdigest() != ref:
        raise CorruptionError("raw bytes do not match their hash", about=ref)
    return data
