"""The objects of a node: what is kept of each in the journal, the newest states in memory, and who waits for more.

The journal is the truth; everything here can be rebuilt from it. Memory is bounded: the least recently used object is
forgotten first. Publishing is in `service`, HTTP in `web`.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import anyio
import anyio.to_thread
import msgspec
import structlog

from syncline.core.errors import NotFoundError, OverloadedError, SynclineError, UnavailableError
from syncline.core.limits import (
    SDSP_FOLLOWERS,
    SDSP_HEAVY_BYTES,
    SDSP_HISTORY_FRAMES,
    SDSP_LIVE_BYTES,
    SDSP_PAGE_BYTES,
    SDSP_PAGE_FRAMES,
    SDSP_RECENT,
    SDSP_SERIAL_MAX,
)
from syncline.core.ports import Ground, RecordQuery
from syncline.core.verdict import Outcome
from syncline.networks.fetch import Fetcher
from syncline.protocols.sdsp.deltas import Deltas
from syncline.protocols.sdsp.plugins import ObjectStorage
from syncline.protocols.sdsp.rebuild import Problem, State, fold, object_at
from syncline.protocols.sdsp.rules import KIND, PROTOCOL
from syncline.protocols.sdsp.tips import Tip, Tips
from syncline.protocols.sdsp.wire import Frame, Kind, decode, object_to_bytes, resolve

log = structlog.get_logger(__name__)


class Live:
    """An object in memory: its state as far as it can be known, and the newest frames as they are sent out."""

    def __init__(self, state: State | Problem) -> None:
        self.state = state
        self.recent: deque[tuple[int, bytes]] = deque(maxlen=SDSP_RECENT)

    @property
    def weight(self) -> int:
        size = 0 if isinstance(self.state, Problem) else self.state.size
        return size + sum(len(payload) for _, payload in self.recent)


class Shelf:
    """Every object this node has frames of."""

    def __init__(
        self, ground: Ground, *, deltas: Deltas, fetcher: Fetcher, storage: ObjectStorage | None, objects: int
    ) -> None:
        self._ground = ground
        self._deltas = deltas
        self._fetcher = fetcher
        self.storage = storage
        self.tips = Tips(ground)
        self._objects = objects
        self._live: OrderedDict[str, Live] = OrderedDict()
        self._weight = 0
        self._locks: dict[str, tuple[anyio.Lock, list[None]]] = {}
        self._watching: dict[str, set[anyio.Event]] = {}
        self.followers = 0

    # What is kept -------------------------------------------------------------------------------------------------

    def tip(self, uid: str) -> Tip:
        tip, _ = self.tips.get(uid)
        if tip is None:
            raise NotFoundError("this node has no object of that name", about=uid)
        return tip

    async def listed(self, limit: int) -> list[tuple[str, Tip]]:
        """Objects by name."""
        return await anyio.to_thread.run_sync(self.tips.listed, limit)

    async def oldest(self, uid: str) -> int | None:
        """The serial of the first frame that is kept."""
        tip, _ = self.tips.get(uid)
        if tip is not None and tip.kept >= tip.base:
            return tip.base
        query = RecordQuery(protocol=PROTOCOL, kind=KIND, key=uid, verdict=Outcome.ACCEPT, limit=1)
        found = await anyio.to_thread.run_sync(self._ground.records.read, query)
        return found[0].seq if found else None

    async def page(self, uid: str, first: int, last: int | None = None) -> list[tuple[int, bytes]]:
        """Serials and payloads from `first` on, ascending, as many as one answer may hold; at least one if any is kept."""
        tip, _ = self.tips.get(uid)
        end = SDSP_SERIAL_MAX if last is None else last
        # records come in the order they were kept: only within as many serials as fit an answer is none left out
        near = min(first + SDSP_PAGE_FRAMES - 1, end)
        by_serial = await self._between(uid, tip, first, near)
        if not by_serial and tip is not None and near < min(end, tip.serial):  # a full frame may jump any gap
            by_serial = await self._between(uid, tip, near + 1, end)
        page: list[tuple[int, bytes]] = []
        size = 0
        for serial in sorted(by_serial):
            size += len(by_serial[serial])
            if page and size > SDSP_PAGE_BYTES:
                break
            page.append((serial, by_serial[serial]))
        return page

    async def _between(self, uid: str, tip: Tip | None, first: int, last: int) -> dict[int, bytes]:
        """Payloads by their serials: of what is there, as much as one read gives."""
        if first > last:
            return {}
        query = RecordQuery(
            after=tip.floor if tip is not None and first >= tip.base else 0,
            protocol=PROTOCOL,
            kind=KIND,
            key=uid,
            verdict=Outcome.ACCEPT,
            seq_from=first,
            seq_to=last,
            limit=SDSP_PAGE_FRAMES,
        )
        found = await anyio.to_thread.run_sync(self._ground.records.read, query)
        by_serial = {record.seq: record.raw for record in found if record.raw is not None and record.seq is not None}
        if first not in by_serial:  # older than the journal keeps
            by_serial = {**await self._older(uid, tip, query), **by_serial}
        return by_serial

    async def _older(self, uid: str, tip: Tip | None, query: RecordQuery) -> dict[int, bytes]:
        assert query.seq_from is not None
        assert query.seq_to is not None
        if tip is not None and tip.base <= query.seq_from <= tip.kept:
            last = min(query.seq_to, tip.kept)
            return await anyio.to_thread.run_sync(self.tips.kept, uid, query.seq_from, last)
        if self._ground.archive is None:
            return {}
        try:
            records = [record async for record in self._ground.archive.read(query)]
        except SynclineError as error:  # a gap, which whoever asked will ask about again
            log.warning("sdsp_archive_unavailable", error=str(error))
            return {}
        return {record.seq: record.raw for record in records if record.raw is not None and record.seq is not None}

    async def after(self, uid: str, serial: int) -> list[tuple[int, bytes]]:
        """What came after a serial; from memory, if that reaches back far enough."""
        live = self._live.get(uid)
        if live is not None and live.recent and live.recent[0][0] <= serial + 1:
            return [(each, payload) for each, payload in live.recent if each > serial]
        return await self.page(uid, serial + 1)

    async def chain(self, uid: str, serial: int | None = None) -> list[Frame]:
        """The frames that make up the object at `serial` (its newest, if None), with their objects loaded."""
        if serial is None:
            tip = self.tip(uid)
            return await self._chain(uid, tip.base, tip.serial)
        page = await self.page(uid, serial, serial)
        if not page:
            raise NotFoundError(f"this node has no frame {serial} of the object", about=uid)
        return await self._chain(uid, decode(page[0][1]).base, serial)

    async def _chain(self, uid: str, first: int, last: int) -> list[Frame]:
        if last - first > SDSP_HISTORY_FRAMES:
            raise UnavailableError(f"more than {SDSP_HISTORY_FRAMES} deltas since the last whole object", about=uid)
        frames: list[Frame] = []
        while first <= last:
            page = await self.page(uid, first, last)
            if not page:
                break
            frames += [await self.resolved(decode(payload)) for _, payload in page]
            first = page[-1][0] + 1
        return frames

    async def resolved(self, frame: Frame) -> Frame:
        """A full frame with its object, wherever that is. Raises what loading raises."""
        if not frame.unresolved:
            return frame
        if self.storage is not None and self.storage.owns(frame.data_uri):
            return resolve(frame, await self.storage.load(frame.data_uri))
        return resolve(frame, (await self._fetcher.fetch(frame.data_uri)).content)

    # What is in memory --------------------------------------------------------------------------------------------

    async def state(self, uid: str) -> State:
        """The newest object. Raises NotFoundError, or UnavailableError if its frames do not make up an object."""
        live = self._live.get(uid)
        if live is None:
            live = await self._loaded(uid)
        else:
            self._live.move_to_end(uid)
        if isinstance(live.state, Problem):
            problem = live.state
            raise UnavailableError(
                f"the object cannot be rebuilt: {problem.cause} at serial {problem.serial}", about=uid
            )
        return live.state

    async def _loaded(self, uid: str) -> Live:
        """The object from the journal. Only what nobody has added to meanwhile stays in memory, as the newest."""
        with self._watch(uid) as watch:
            news = watch.look()
            live = Live(await self._rebuilt(uid))
        if (quicker := self._live.get(uid)) is not None:
            return quicker
        if not news.is_set():
            self._keep(uid, live)
        return live

    async def state_at(self, uid: str, serial: int) -> State:
        """The object as it was after a serial."""
        frames = await self.chain(uid, serial)
        found = await anyio.to_thread.run_sync(object_at, serial, frames, self._deltas)
        if isinstance(found, Problem):
            raise UnavailableError(f"the object cannot be rebuilt: {found.cause} at serial {found.serial}", about=uid)
        return found

    async def _rebuilt(self, uid: str) -> State | Problem:
        tip = self.tip(uid)
        frames = await self._chain(uid, tip.base, tip.serial)
        return await anyio.to_thread.run_sync(self._built, tip.serial, frames)

    def _built(self, serial: int, frames: Sequence[Frame]) -> State | Problem:
        state = object_at(serial, frames, self._deltas)
        if isinstance(state, State):  # measured, because the fold only knows an upper bound
            state = msgspec.structs.replace(state, size=len(object_to_bytes(state.value, state.kind)))
        return state

    async def add(self, frame: Frame, payload: bytes, state: State | None = None) -> None:
        """A frame has been committed: remember it, and wake who waits. `state` is the object after it, if known."""
        before = self._live.get(frame.uid)
        if before is None or isinstance(before.state, Problem) or frame.serial > before.state.serial:
            if state is None and before is not None:
                state = await self._folded(before, frame, len(payload))
            self._follow(frame, payload, state)
        for waiting in self._watching.get(frame.uid, ()):
            waiting.set()

    def _follow(self, frame: Frame, payload: bytes, state: State | None) -> None:
        """Put the object as it is now where the older one is, or was: others may have needed its room meanwhile."""
        live = self._live.get(frame.uid)
        self.forget(frame.uid)
        if state is None:
            return
        if live is None or (live.recent and frame.serial != live.recent[-1][0] + 1):
            live = Live(state)
        live.state = state
        live.recent.append((frame.serial, payload))
        self._keep(frame.uid, live)

    async def _folded(self, live: Live, frame: Frame, size: int) -> State | None:
        """The state after one more frame, or None if it has to be rebuilt when somebody asks."""
        full = frame.kind is Kind.FULL
        before = None if full else live.state
        if isinstance(before, Problem):
            return None
        heavy = max(size, 0 if before is None else before.size) >= SDSP_HEAVY_BYTES
        found = (
            await anyio.to_thread.run_sync(fold, before, frame, self._deltas)
            if heavy
            else fold(before, frame, self._deltas)
        )
        if not isinstance(found, State):
            return None
        return msgspec.structs.replace(found, size=size) if full else found

    def forget(self, uid: str) -> None:
        """Rebuild the object from the journal when it is asked for next."""
        live = self._live.pop(uid, None)
        if live is not None:
            self._weight -= live.weight

    def _keep(self, uid: str, live: Live) -> None:
        self._live[uid] = live
        self._weight += live.weight
        self._make_room()

    def _make_room(self) -> None:
        while len(self._live) > 1 and (len(self._live) > self._objects or self._weight > SDSP_LIVE_BYTES):
            _, oldest = self._live.popitem(last=False)
            self._weight -= oldest.weight

    @property
    def live(self) -> int:
        return len(self._live)

    # Who waits ----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def alone(self, uid: str) -> AsyncIterator[None]:
        """One change of an object at a time."""
        lock, users = self._locks.setdefault(uid, (anyio.Lock(), []))
        users.append(None)
        try:
            async with lock:
                yield
        finally:
            users.pop()
            if not users:
                self._locks.pop(uid, None)

    def check_room(self) -> None:
        """Raises OverloadedError if nobody more can be watching."""
        if self.followers >= SDSP_FOLLOWERS:
            raise OverloadedError(f"{SDSP_FOLLOWERS} followers are here already")

    @contextmanager
    def watching(self, uid: str) -> Iterator[Watch]:
        """News of an object for a follower, for the length of the block."""
        self.check_room()
        self.followers += 1
        try:
            with self._watch(uid) as watch:
                yield watch
        finally:
            self.followers -= 1

    @contextmanager
    def _watch(self, uid: str) -> Iterator[Watch]:
        watch = Watch(self._watching.setdefault(uid, set()))
        try:
            yield watch
        finally:
            watch.close()
            if not self._watching.get(uid):
                self._watching.pop(uid, None)


class Watch:
    """Tells when something was added since the last look."""

    def __init__(self, events: set[anyio.Event]) -> None:
        self._events = events
        self._event = anyio.Event()
        events.add(self._event)

    def look(self) -> anyio.Event:
        """Call before reading: the event is set by whatever is added from now on."""
        self._events.discard(self._event)
        self._event = anyio.Event()
        self._events.add(self._event)
        return self._event

    def close(self) -> None:
        self._events.discard(self._event)
