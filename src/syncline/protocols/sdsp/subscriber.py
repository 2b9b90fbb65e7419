"""Following an object: drives a SubscriberSession on a transport, on trio or asyncio.

    async with follow("http://127.0.0.1:7070", uid) as object:
        async for event in object:
            print(event.serial, object.value)

The object moves when the loop does: nothing is queued beyond what the transport has handed over. What an event means is
decided in `session`; what may be fetched in `networks.fetch`.
"""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from msgspec import structs

from syncline.core.errors import DecodeError, SynclineError, UsageError
from syncline.core.limits import SDSP_HEAVY_BYTES, SDSP_HEAVY_FRAMES, SDSP_INBOX
from syncline.core.ports import RecordReader
from syncline.networks.background import background
from syncline.networks.fetch import Fetcher, FetchPolicy
from syncline.protocols.sdsp.deltas import Deltas
from syncline.protocols.sdsp.history import Histories, transport_history, uri_history
from syncline.protocols.sdsp.plugins import (
    Delivery,
    History,
    HistoryGround,
    ObjectStorage,
    Start,
    Transport,
    make_histories,
    open_transport,
)
from syncline.protocols.sdsp.rebuild import State, Status
from syncline.protocols.sdsp.session import (
    AskHistory,
    DataFailed,
    DataLoaded,
    Emit,
    Event,
    Following,
    FrameReceived,
    Frozen,
    HistoryAnswered,
    HistoryFailed,
    LoadData,
    SubscriberSession,
    TimerFired,
    UserEvent,
)
from syncline.protocols.sdsp.wire import Frame, Kind, decode, object_to_bytes

_Inlet = MemoryObjectSendStream[Event | SynclineError]
_Outlet = MemoryObjectReceiveStream[Event | SynclineError]


class FollowedObject:
    """An object kept in step with its publisher. Iterate over it for its events; made by `follow`."""

    def __init__(self, session: SubscriberSession, fetching: _Fetching, inbox: _Outlet, until_frozen: bool) -> None:
        self._session = session
        self._fetching = fetching
        self._inbox = inbox
        self._until_frozen = until_frozen
        self._events: list[UserEvent] = []
        known = session.state
        self._over = until_frozen and known is not None and known.frozen
        self._weight = 0 if known is None else len(object_to_bytes(known.value, known.kind))

    @property
    def uid(self) -> str:
        return self._session.uid

    @property
    def state(self) -> State | None:
        """The newest good object with its serial; give it to `follow` to go on there later."""
        return self._session.state

    @property
    def value(self) -> Any:
        """The newest good object; None before the first (`state` tells the two apart)."""
        return None if self.state is None else self.state.value

    @property
    def status(self) -> Status:
        return self._session.status

    @property
    def publisher(self) -> str:
        """Whom the object is pinned to; empty where the transport proves no names, or nothing came yet."""
        return self._fetching.publisher

    def statistics(self) -> dict[str, int]:
        return {**self._session.statistics(), **self._fetching.counts}

    def __aiter__(self) -> FollowedObject:
        return self

    async def __anext__(self) -> UserEvent:
        """The next event. Ends after `Frozen` unless asked otherwise; raises when the transport gives up."""
        while not self._events:
            if self._over:
                raise StopAsyncIteration
            await self._step()
        event = self._events.pop(0)
        self._over = self._over or (self._until_frozen and isinstance(event, Frozen))
        return event

    async def _step(self) -> None:
        """Take in one happening, or the passing of a deadline, and do what the session asks for."""
        deadline = self._session.deadline
        happened: Event | SynclineError = TimerFired()
        with anyio.CancelScope(deadline=math.inf if deadline is None else deadline):
            happened = await self._inbox.receive()
        if isinstance(happened, SynclineError):
            raise happened
        for action in await self._told(happened):
            match action:
                case Emit(event):
                    self._events.append(event)
                case AskHistory() | LoadData():
                    self._fetching.start(action)

    async def _told(self, happened: Event) -> Sequence[Any]:
        """The session's answer; a big object is worked on beside the event loop."""
        now = anyio.current_time()
        self._weigh(happened)
        if self._weight < SDSP_HEAVY_BYTES:
            return self._session.receive(happened, now)
        return await anyio.to_thread.run_sync(self._session.receive, happened, now)

    def _weigh(self, happened: Event) -> None:
        """Keep an estimate of how much work the object is: the bytes it came in."""
        match happened:
            case FrameReceived(frame, size):
                self._weight = size if frame.kind is Kind.FULL else self._weight + size
            case DataLoaded(_, data):
                self._weight = len(data)
            case HistoryAnswered(_, frames) if len(frames) > SDSP_HEAVY_FRAMES:
                self._weight = max(self._weight, SDSP_HEAVY_BYTES)
            case _:
                pass


class _Fetching:
    """The errands of a session: the frames the transport delivers, history, objects kept elsewhere."""

    def __init__(
        self,
        tasks: TaskGroup,
        inbox: _Inlet,
        history: History,
        fetcher: Fetcher,
        storage: ObjectStorage | None,
        publisher: str,
    ) -> None:
        self._tasks = tasks
        self._inbox = inbox
        self._history = history
        self._fetcher = fetcher
        self._storage = storage
        self.publisher = publisher
        self.counts = {"malformed": 0, "foreign": 0, "strangers": 0}

    def start(self, errand: AskHistory | LoadData) -> None:
        if isinstance(errand, AskHistory):
            self._tasks.start_soon(self._ask, errand)
        else:
            self._tasks.start_soon(self._load, errand)

    async def listen(self, transport: Transport, topic: str, start: Start) -> None:
        try:
            async with transport.subscribe(topic, start) as deliveries:
                if start.after is None and not transport.capabilities.history:
                    await self._begin(start.uid)
                async for delivery in deliveries:
                    if (frame := self._frame(delivery, start.uid)) is not None:
                        await self._inbox.send(FrameReceived(frame, len(delivery.payload)))
        except SynclineError as error:
            await self._inbox.send(error)

    async def _begin(self, uid: str) -> None:
        """Where the transport does not: tell of the last published frame, if a history knows it."""
        try:
            payload = await self._history.last(uid)
            frame = None if payload is None else decode(payload)
        except SynclineError:
            return  # SDSP: then it waits for the first frame to be delivered
        if payload is not None and frame is not None and frame.uid == uid:
            await self._inbox.send(FrameReceived(frame, len(payload)))

    def _frame(self, delivery: Delivery, uid: str) -> Frame | None:
        """The frame, if it is one, of this object, by the publisher that the object is pinned to."""
        try:
            frame = decode(delivery.payload)
        except DecodeError:
            self.counts["malformed"] += 1
            return None
        if frame.uid != uid:
            self.counts["foreign"] += 1
            return None
        self.publisher = self.publisher or delivery.publisher
        if delivery.publisher != self.publisher:
            self.counts["strangers"] += 1
            return None
        return frame

    async def _ask(self, errand: AskHistory) -> None:
        try:
            payloads = await self._history.history(structs.replace(errand.frame, history_uri=errand.uri))
            await self._inbox.send(HistoryAnswered(errand.ask, _decodable(payloads)))
        except SynclineError as error:
            await self._inbox.send(HistoryFailed(errand.ask, str(error)))

    async def _load(self, errand: LoadData) -> None:
        try:
            if self._storage is not None and self._storage.owns(errand.uri):
                data = await self._storage.load(errand.uri)
            else:
                data = (await self._fetcher.fetch(errand.uri)).content
            await self._inbox.send(DataLoaded(errand.serial, data))
        except SynclineError as error:
            await self._inbox.send(DataFailed(errand.serial, str(error)))


@asynccontextmanager
async def follow(
    where: str | Transport,
    uid: str,
    *,
    topic: str | None = None,
    state: State | None = None,
    publisher: str = "",
    until_frozen: bool = True,
    following: Following | None = None,
    history: Sequence[str | History] | None = None,
    records: RecordReader | None = None,
    storage: ObjectStorage | None = None,
    fetch: FetchPolicy | Fetcher | None = None,
    deltas: Deltas | None = None,
    **options: Any,
) -> AsyncIterator[FollowedObject]:
    """Follow the object `uid` on a transport, given as such or by its URL (`options` are then the transport's).

    `topic` is the uid itself unless the publisher chose another; nodes need none. With `state`, go on after it. Where the
    transport proves who published, the object stays with `publisher`, or with whoever comes first. The loop ends when the
    object is frozen, unless `until_frozen` is False. `history` are plug-ins, or their names, in the order they are asked;
    by default a frame's historyUri (`uri`), then the transport (`transport`); `journal` reads `records`, a node's journal.
    """
    opening = open_transport(where, **options) if isinstance(where, str) else nullcontext(where)
    fetcher = fetch if isinstance(fetch, Fetcher) else Fetcher(fetch)
    async with opening as transport:
        if publisher and not transport.capabilities.authenticated:
            raise UsageError("this transport proves no names", hint="leave out `publisher`", about=uid)
        channel = uid if topic is None else topic
        ground = HistoryGround(topic=channel, transport=transport, fetcher=fetcher, records=records)
        chosen = following or Following(
            serial_jump=None if transport.capabilities.authenticated else Following().serial_jump
        )
        session = SubscriberSession(
            uid, deltas or Deltas.installed(), random=random.random, state=state, following=chosen
        )
        histories = Histories(_chosen(history, ground))
        inbox, outbox = anyio.create_memory_object_stream[Event | SynclineError](SDSP_INBOX)
        with inbox, outbox:
            async with background() as tasks:
                errands = _Fetching(tasks, inbox, histories, fetcher, storage, publisher)
                start = Start(uid=uid, after=None if state is None else state.serial)
                tasks.start_soon(errands.listen, transport, channel, start)
                yield FollowedObject(session, errands, outbox, until_frozen)


def _chosen(history: Sequence[str | History] | None, ground: HistoryGround) -> list[History]:
    if history is None:  # SDSP: a historyUri is asked first, else the transport's history
        usual = [uri_history(ground), transport_history(ground)]
        return [each for each in usual if each is not None]
    named = [make_histories([each], ground) if isinstance(each, str) else [each] for each in history]
    return [each for several in named for each in several]


def _decodable(payloads: Sequence[bytes]) -> list[Frame]:
    frames = []
    for payload in payloads:
        try:
            frames.append(decode(payload))
        except DecodeError:
            continue
    return frames
