"""Publishing objects: drives PublisherSessions on a transport, on trio or asyncio.

    async with Publisher("http://127.0.0.1:7070") as publisher:
        sat = await publisher.create({"alt": 550.5}, topic="sats")
        await sat.update({"alt": 549.7})

Keeps each frame in a ledger before it goes out. Full or delta, serials and versions are decided in `session`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import anyio
import anyio.to_thread
import msgspec
from msgspec import UNSET

from syncline.core.clock import Clock, SystemClock
from syncline.core.errors import ConflictError, NotFoundError, UsageError
from syncline.core.limits import SDSP_HEAVY_BYTES
from syncline.networks.fetch import Fetcher, FetchPolicy
from syncline.protocols.sdsp.deltas import Deltas
from syncline.protocols.sdsp.ledger import Entry, FileLedger, Ledger, MemoryLedger
from syncline.protocols.sdsp.plugins import ObjectStorage, Transport, header_of, open_storage, open_transport
from syncline.protocols.sdsp.rebuild import State
from syncline.protocols.sdsp.session import Draft, Policy, PublisherSession, new_uid
from syncline.protocols.sdsp.wire import Frame, Kind, ObjectKind, decode, resolve

_MEDIA_TYPES: Final = {
    ObjectKind.JSON: "application/json",
    ObjectKind.TEXT: "text/plain; charset=utf-8",
    ObjectKind.BINARY: "application/octet-stream",
}


class Publisher:
    """Publishes any number of objects on one transport.

    `state` is a folder (or a Ledger) in which frames are kept ahead of sending, so that a restart after a crash goes on
    where it stopped; without it, `open` goes on from the transport's history. `storage` takes objects that are too large
    for the transport. `options` are the transport's.
    """

    def __init__(
        self,
        where: str | Transport,
        *,
        state: Path | str | Ledger | None = None,
        storage: str | ObjectStorage | None = None,
        policy: Policy | None = None,
        fetch: FetchPolicy | None = None,
        deltas: Deltas | None = None,
        clock: Clock | None = None,
        **options: Any,
    ) -> None:
        self._where = where
        self._options = options
        self.ledger: Ledger
        if state is None:
            self.ledger = MemoryLedger()
        else:
            self.ledger = FileLedger(Path(state)) if isinstance(state, (str, Path)) else state
        self.storage = open_storage(storage) if isinstance(storage, str) else storage
        self._policy = policy or Policy()
        self._fetcher = Fetcher(fetch)
        self._deltas = deltas or Deltas.installed()
        self._clock = clock or SystemClock()
        self.transport: Transport
        self._stack = AsyncExitStack()
        self._held: set[str] = set()

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        if isinstance(self._where, str):
            self.transport = await self._stack.enter_async_context(open_transport(self._where, **self._options))
        else:
            self.transport = self._where
        most = min(self._policy.max_payload, self.transport.capabilities.max_payload)
        self._policy = msgspec.structs.replace(self._policy, max_payload=most)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for uid in self._held:
            await self.ledger.release(uid)
        await self._stack.__aexit__(kind, error, trace)

    async def create(
        self,
        value: Any,
        *,
        topic: str | None = None,
        uid: str | None = None,
        kind: ObjectKind | None = None,
        meta: Any = UNSET,
    ) -> PublishedObject:
        """Publish a new object. The uid is a new UUIDv7 unless given; the topic is the uid unless given.

        Raises ConflictError if an object of this uid is there already. After UnreachableError or UnavailableError nobody
        knows whether it went out: create it again in the same words, or with `state` open it.
        """
        name = uid or new_uid(self._clock.now(), os.urandom(10))  # SDSP: never a hash of the object
        session = PublisherSession(name, self._deltas, self._policy)
        if await self._hold(name):
            await self._let_go(name)
            raise ConflictError("this object has been published before", hint="use open", about=name)
        created = PublishedObject(self, session, name if topic is None else topic)
        try:
            await created._do(lambda: session.create(value, kind, meta=meta))
        except BaseException:  # whoever did not get the object cannot go on with it, but may open or create it again
            await self._let_go(name)
            raise
        return created

    async def open(self, uid: str, *, topic: str | None = None) -> PublishedObject:
        """Go on with an object published before: from the ledger, else from the transport's history.

        The newest frame of a ledger is sent once more, because nobody knows whether it went out; it counts once.
        Raises NotFoundError if nothing is known of it, ConflictError if somebody else has published it since.
        """
        entries = await self._hold(uid)
        try:
            if entries:
                return await self._from_ledger(uid, entries)
            return await self._from_history(uid, uid if topic is None else topic)
        except BaseException:
            await self._let_go(uid)
            raise

    async def _from_ledger(self, uid: str, entries: list[Entry]) -> PublishedObject:
        frames = [_resolved(entry) for entry in entries]
        session = PublisherSession.resume(uid, frames, self._deltas, self._policy)
        opened = PublishedObject(self, session, entries[-1].topic)
        for entry in entries:
            opened.weigh(entry, full=False)
        opened._unsent = entries[-1].frame
        await opened.flush()
        return opened

    async def _from_history(self, uid: str, topic: str) -> PublishedObject:
        newest = await self.transport.newest(topic, uid=uid) if self.transport.capabilities.history else None
        if newest is None:
            raise NotFoundError("nothing is known of this object", hint="create it first", about=uid)
        header = header_of(newest)
        payloads = await self.transport.replay(topic, uid=uid, first=header.base, last=header.serial)
        entries = [await self._entry(topic, payload) for payload in payloads]
        session = PublisherSession.resume(uid, map(_resolved, entries), self._deltas, self._policy)
        opened = PublishedObject(self, session, topic)
        for entry in entries:
            await self.ledger.write(uid, entry, full=decode(entry.frame).kind is Kind.FULL)
            opened.weigh(entry, full=False)
        return opened

    async def _entry(self, topic: str, payload: bytes) -> Entry:
        frame = decode(payload)
        return Entry(topic, payload, await self._load(frame.data_uri) if frame.unresolved else None)

    async def _load(self, uri: str) -> bytes:
        if self.storage is not None and self.storage.owns(uri):
            return await self.storage.load(uri)
        return (await self._fetcher.fetch(uri)).content

    async def _hold(self, uid: str) -> list[Entry]:
        entries = await self.ledger.hold(uid)
        self._held.add(uid)
        return entries

    async def _let_go(self, uid: str) -> None:
        self._held.discard(uid)
        await self.ledger.release(uid)


class PublishedObject:
    """One object of a publisher. Calls of several tasks are done one after the other, in the order they came.

    A call that raises UnreachableError or UnavailableError has still taken effect here: its frame is kept and goes out
    with the next call, or with `flush`; unless it could not even be written down, as the error then says.
    """

    def __init__(self, publisher: Publisher, session: PublisherSession, topic: str) -> None:
        self._publisher = publisher
        self._session = session
        self.topic = topic
        self._lock = anyio.Lock()
        self._weight = 0  # the bytes the object was sent in: how much work it is
        self._unsent: bytes | None = None
        self._lost: ConflictError | None = None

    @property
    def uid(self) -> str:
        return self._session.uid

    @property
    def state(self) -> State:
        """The object as last published."""
        state = self._session.state
        assert state is not None
        return state

    @property
    def value(self) -> Any:
        """The object as last published: read-only."""
        return self.state.value

    @property
    def serial(self) -> int:
        return self.state.serial

    @property
    def frozen(self) -> bool:
        return self.state.frozen

    async def update(self, new: Any, *, meta: Any = UNSET) -> int:
        """The object is now `new`. Sends a delta where that is worth it, and nothing where nothing changed.

        Gives the newest serial. Raises FrozenError after `freeze`, ConflictError once somebody else has published.
        """
        return await self._do(lambda: self._session.update(new, meta=meta))

    async def apply_delta(self, delta: Any, algorithm: str, *, meta: Any = UNSET) -> int:
        """Publish a delta made by the caller. Raises UsageError if it does not fit the object."""
        return await self._do(lambda: self._session.apply_delta(delta, algorithm, meta=meta))

    async def replace(self, new: Any, *, kind: ObjectKind | None = None, meta: Any = UNSET) -> int:
        """Publish the whole object, whatever was there before."""
        return await self._do(lambda: self._session.replace(new, kind, meta=meta))

    async def freeze(self, *, meta: Any = UNSET) -> int:
        """Say that the object will not change any more; every later call raises FrozenError."""
        return await self._do(lambda: self._session.freeze(meta=meta))

    async def flush(self) -> None:
        """Send what an earlier call could not."""
        async with self._lock:
            await self._send()

    async def _do(self, make: Callable[[], Draft | None]) -> int:
        async with self._lock:
            await self._send()
            heavy = self._weight >= SDSP_HEAVY_BYTES
            draft = await anyio.to_thread.run_sync(make) if heavy else make()
            if draft is not None:
                await self._keep(draft)
                await self._send()
            return self.serial

    async def _keep(self, draft: Draft) -> None:
        """Write the frame down; from here on it has this serial for ever."""
        content = draft.store
        if content is not None:
            draft = self._session.stored(draft, await self._stored(content, draft.state.kind))
        entry = Entry(self.topic, draft.raw, content)
        with anyio.CancelScope(shield=True):  # written and not committed, the serial would be used twice
            await self._publisher.ledger.write(self.uid, entry, full=draft.frame.kind is Kind.FULL)
            self._session.commit(draft)
            self._unsent = draft.raw
            self.weigh(entry, full=draft.frame.kind is Kind.FULL)

    def weigh(self, entry: Entry, *, full: bool) -> None:
        size = len(entry.frame) if entry.content is None else len(entry.content)
        self._weight = size if full else self._weight + size

    async def _stored(self, content: bytes, kind: ObjectKind) -> str:
        storage = self._publisher.storage
        if storage is None:
            raise UsageError(
                f"an object of {len(content)} bytes is too large for this transport",
                hint="give the publisher an object storage",
                about=self.uid,
            )
        return (await storage.store(content, media_type=_MEDIA_TYPES[kind])).uri

    async def _send(self) -> None:
        if self._lost is not None:
            raise self._lost
        if self._unsent is None:
            return
        expected = header_of(self._unsent).serial - 1
        name = dedupe_id(self._unsent)
        try:
            await self._publisher.transport.publish(self.topic, self._unsent, dedupe_id=name, expect_serial=expected)
        except ConflictError as error:
            self._lost = error
            raise
        self._unsent = None


def dedupe_id(payload: bytes) -> str:
    """A name for exactly these bytes: another publisher's frame with the same serial must not pass for a repeat."""
    return f"{header_of(payload).serial}-{hashlib.blake2b(payload, digest_size=16).hexdigest()}"


def _resolved(entry: Entry) -> Frame:
    frame = decode(entry.frame)
    return frame if entry.content is None else resolve(frame, entry.content)
