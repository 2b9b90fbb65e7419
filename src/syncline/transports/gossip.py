"""SDSP over GossipSub: the frames of an SDSP topic on the gossip topic `/sdsp/1.0.0/<topic>`, each signed by its publisher.

`gossip:/ip4/127.0.0.1/tcp/7099/p2p/PEERID` names a peer to stay connected to; several are separated by commas, and
`?listen=/ip4/127.0.0.1/tcp/7099` says where others reach us. Gossip reaches those who listen now, in no promised order; it
keeps nothing, so late joiners wait for the next full frame or find the past elsewhere (`historyUri`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import parse_qs

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from syncline.core.errors import DecodeError, UnreachableError, UsageError
from syncline.core.keys import NodeKey
from syncline.core.limits import PUBSUB_MESSAGE_BYTES, PUBSUB_TOPIC_CHARACTERS, SDSP_FRAME_MAX
from syncline.core.verdict import ACCEPT, Verdict
from syncline.networks.host import Host, PubSub
from syncline.protocols.sdsp.plugins import Capabilities, Delivery, Start, header_of

PREFIX: Final = "/sdsp/1.0.0/"
REMEMBERED: Final = 4_096  # publishes that are recognised when they are repeated
UNREAD: Final = 64  # frames a reader has not taken; then its neighbours are not read either
LISTENER_SECONDS: Final = 5.0  # for a first listener to be heard of, before a publish


class GossipTransport:
    """Implements `Transport` on a host. One gossip subscription per topic serves all its readers here."""

    capabilities: Final = Capabilities(
        max_payload=min(PUBSUB_MESSAGE_BYTES, SDSP_FRAME_MAX),
        ordered=False,
        history=False,
        optimistic=False,
        durable=False,
        authenticated=True,
    )

    def __init__(self, host: Host, tasks: TaskGroup, *, listener_seconds: float = LISTENER_SECONDS) -> None:
        self._host = host
        self._tasks = tasks
        self._patience = listener_seconds
        self._rooms: dict[str, _Room] = {}
        self._waited: set[str] = set()  # topics that had a listener
        self._published: OrderedDict[tuple[str, str], None] = OrderedDict()

    async def publish(self, topic: str, payload: bytes, *, dedupe_id: str, expect_serial: int | None) -> None:
        """Raises UnreachableError while nobody listens: what nobody took is nowhere."""
        if (topic, dedupe_id) in self._published:
            return
        header_of(payload)
        name = gossip_topic(topic)
        room = self._rooms.get(name)
        if room is not None and room.scope.cancel_called:
            room = None
        if name not in self._waited:  # right after connecting, listeners are not known yet
            with anyio.move_on_after(self._patience):
                await self._host.gossip.wait_for_neighbours(name)
                self._waited.add(name)
        sent = await self._host.gossip.publish(name, payload) if self._host.gossip.neighbours(name) else None
        if room is not None:
            await room.tell(Delivery(payload, self._host.peer_id))
        elif sent is None or not sent.sent:
            raise UnreachableError("nobody listens on this topic", about=name, hint="start a subscriber, then repeat")
        self._published[topic, dedupe_id] = None
        if len(self._published) > REMEMBERED:
            self._published.popitem(last=False)

    @asynccontextmanager
    async def subscribe(self, topic: str, start: Start) -> AsyncIterator[AsyncIterator[Delivery]]:
        name = gossip_topic(topic)
        send, receive = anyio.create_memory_object_stream[Delivery](UNREAD)
        async with send, receive:
            room = await self._enter(name, send)
            deliveries = _chosen(receive, start)
            try:
                yield deliveries
            finally:
                room.leave(send)
                await deliveries.aclose()

    async def _enter(self, name: str, reader: MemoryObjectSendStream[Delivery]) -> _Room:
        while (room := self._rooms.get(name)) is not None and room.scope.cancel_called:
            await room.left.wait()  # the last reader has gone; the topic can be joined again in a moment
        if room is None:
            room = self._rooms[name] = _Room()
            self._tasks.start_soon(self._run, name, room)
        room.readers.append(reader)
        await room.joined.wait()
        return room

    async def _run(self, name: str, room: _Room) -> None:
        try:
            await room.run(self._host.gossip, name)
        finally:
            del self._rooms[name]
            room.left.set()

    async def replay(self, topic: str, *, uid: str, first: int, last: int) -> Sequence[bytes]:
        return []

    async def newest(self, topic: str, *, uid: str) -> bytes | None:
        return None


class _Room:
    """The one gossip subscription of a topic, and its readers."""

    def __init__(self) -> None:
        self.readers: list[MemoryObjectSendStream[Delivery]] = []
        self.joined = anyio.Event()
        self.left = anyio.Event()
        self.scope = anyio.CancelScope()

    async def run(self, gossip: PubSub, topic: str) -> None:
        with self.scope:
            async with gossip.subscribe(topic) as subscription:
                self.joined.set()
                async for batch in subscription:
                    for delivery in batch:
                        verdict = _judged(delivery.message.data)
                        delivery.decide(verdict)  # others need not wait for our readers
                        if verdict.accepted:
                            await self.tell(Delivery(delivery.message.data, delivery.message.author))

    def leave(self, reader: MemoryObjectSendStream[Delivery]) -> None:
        self.readers.remove(reader)
        if not self.readers:
            self.scope.cancel()

    async def tell(self, delivery: Delivery) -> None:
        """Hand a frame to every reader; the slowest sets the pace."""
        for reader in tuple(self.readers):
            try:
                await reader.send(delivery)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):  # it is leaving
                continue


def _judged(payload: bytes) -> Verdict:
    """What is no frame at all is not passed on; whether a frame is good is for every subscriber's session to say."""
    try:
        header_of(payload)
    except DecodeError as error:
        return error.verdict
    return ACCEPT


async def _chosen(receive: MemoryObjectReceiveStream[Delivery], start: Start) -> AsyncGenerator[Delivery]:
    """The frames of one object that its reader does not have yet."""
    async for delivery in receive:
        header = header_of(delivery.payload)
        if header.uid == start.uid and (start.after is None or header.serial > start.after):
            yield delivery


def gossip_topic(topic: str) -> str:
    """The gossip topic of an SDSP topic."""
    name = f"{PREFIX}{topic}"
    if len(name) > PUBSUB_TOPIC_CHARACTERS:
        raise UsageError(f"a topic has at most {PUBSUB_TOPIC_CHARACTERS - len(PREFIX)} characters", about=topic[:80])
    return name


@asynccontextmanager
async def open_gossip(
    url: str, *, key: NodeKey | None = None, listener_seconds: float = LISTENER_SECONDS
) -> AsyncIterator[GossipTransport]:
    """A host of its own, connected to the peers a URL names; `key` is its name, a new one if none is given."""
    from syncline.networks.libp2p.host import HostSettings, running_host
    from syncline.networks.libp2p.multiaddr import parse

    peers, _, query = url.removeprefix("gossip:").partition("?")
    options = parse_qs(query)
    bootstrap = tuple(each for each in peers.split(",") if each)
    names_all = all(parse(each).peer for each in bootstrap)
    if set(options) - {"listen"} or not (bootstrap or options) or not names_all:
        raise UsageError("gossip is written gossip:/ip4/ADDRESS/tcp/PORT/p2p/PEERID[,…][?listen=/ip4/…]", about=url)
    settings = HostSettings(listen=tuple(options.get("listen", ())), bootstrap=bootstrap)
    async with running_host(key or NodeKey.generate(), settings) as host, anyio.create_task_group() as tasks:
        try:
            yield GossipTransport(host, tasks, listener_seconds=listener_seconds)
        finally:
            tasks.cancel_scope.cancel()
