"""Object storage for objects too large for a transport, through obstore: S3, GCS, Azure, a local folder, memory.

Names are UUIDv7, never a hash of the content: two publishers that start from the same bytes must not share an object.
Clouds answer with presigned URLs, so that subscribers need no credentials; who may fetch which URI is `networks.fetch`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import anyio.to_thread
import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import AzureStore, GCSStore, LocalStore, MemoryStore, S3Store, from_url

from syncline.core.clock import Clock, SystemClock
from syncline.core.errors import NotFoundError, RefusedError, UnavailableError, UsageError
from syncline.core.limits import FETCH_BYTES, SDSP_OBJECT_TTL, SECOND
from syncline.core.verdict import Reason
from syncline.protocols.sdsp.plugins import Location
from syncline.protocols.sdsp.session import new_uid

_SIGNING: Final = (S3Store, GCSStore, AzureStore)


class ObstoreStorage:
    """Implements `ObjectStorage` on any store of obstore.

    `base` is what URIs begin with when they are not presigned: a public address of the same files, or the store's own.
    """

    def __init__(
        self,
        store: Any,
        *,
        base: str = "",
        ttl: int = SDSP_OBJECT_TTL,
        clock: Clock | None = None,
    ) -> None:
        self.backend = store
        self._base = base.rstrip("/")
        self._ttl = timedelta(seconds=ttl / SECOND)
        self._clock = clock or SystemClock()
        if not base and not isinstance(store, _SIGNING):
            raise UsageError("this store cannot presign URLs", hint="say with `base` where its files are served")

    async def store(self, content: bytes, *, media_type: str = "application/json") -> Location:
        # SDSP: a hash of the object as its UID is fraught with problems; a GUID guarantees uniqueness
        uid = new_uid(self._clock.now(), os.urandom(10))
        attributes = {"Content-Type": media_type} if isinstance(self.backend, _SIGNING) else None
        with _translated(uid):
            await anyio.to_thread.run_sync(lambda: obstore.put(self.backend, uid, content, attributes=attributes))
            return Location(await anyio.to_thread.run_sync(self._uri, uid), uid)

    async def load(self, uri: str) -> bytes:
        name = self._name(uri)
        with _translated(uri):
            return await anyio.to_thread.run_sync(self._read, name)

    async def delete(self, uri: str) -> None:
        name = self._name(uri)
        with _translated(uri):
            try:
                await anyio.to_thread.run_sync(obstore.delete, self.backend, name)
            except FileNotFoundError:
                pass

    def owns(self, uri: str) -> bool:
        return uri.startswith(self._prefix) and "/" not in self._rest(uri)

    def _uri(self, name: str) -> str:
        return f"{self._base}/{name}" if self._base else str(obstore.sign(self.backend, "GET", name, self._ttl))

    @cached_property
    def _prefix(self) -> str:
        """What every URI of this storage begins with."""
        if self._base:
            return self._base + "/"
        probe: str = obstore.sign(self.backend, "GET", "-", self._ttl)
        return urlsplit(probe)._replace(query="", fragment="").geturl()[:-1]

    def _rest(self, uri: str) -> str:
        return unquote(uri.removeprefix(self._prefix).partition("?")[0])

    def _name(self, uri: str) -> str:
        if not self.owns(uri):
            raise NotFoundError("not an address of this storage", about=uri)
        return self._rest(uri)

    def _read(self, name: str) -> bytes:
        found = obstore.get(self.backend, name)
        if found.meta["size"] > FETCH_BYTES:
            raise RefusedError(f"larger than {FETCH_BYTES} bytes", reason=Reason.OVERSIZE, about=name)
        return bytes(found.bytes())


def open_obstore(url: str, *, base: str = "", **options: Any) -> ObstoreStorage:
    """The storage at a URL obstore knows (`s3://bucket/prefix`, `gs://…`, `az://…`, `file:///folder`, `memory:`).

    `options` go to obstore (keys, region, endpoint); what is absent comes from the environment, as the clouds' own tools
    read it.
    """
    scheme = url.partition(":")[0]
    if scheme == "memory":
        return ObstoreStorage(MemoryStore(), base=base or "memory:")
    if scheme == "file":
        folder = Path(unquote(urlsplit(url).path))
        return ObstoreStorage(LocalStore(folder, mkdir=True), base=base or folder.as_uri())
    return ObstoreStorage(from_url(url, **options), base=base)


@contextmanager
def _translated(about: str) -> Iterator[None]:
    """obstore's errors as ours."""
    try:
        yield
    except FileNotFoundError:
        raise NotFoundError("the stored object is gone", about=about) from None
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise RefusedError(f"the store refuses: {error}", reason=Reason.UNAUTHORISED, about=about) from None
    except BaseError as error:
        raise UnavailableError(f"the store fails: {error}", about=about) from None
