"""libp2p hosts inside one process: the interface of `host.py` without sockets, for deterministic tests and simulation.

Hosts meet through a MemoryFabric by address. Signatures, verdicts, forwarding and framing are real; encryption and
multiplexing are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Self

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from syncline.core.clock import Clock, SystemClock
from syncline.core.errors import ClosedError, RefusedError, UnavailableError, UnreachableError, UsageError
from syncline.core.keys import NodeKey, peer_id
from syncline.core.limits import PUBSUB_BATCH, PUBSUB_MESSAGE_BYTES, PUBSUB_UNDECIDED
from syncline.core.verdict import Outcome, Reason, Verdict
from syncline.formats import pubsub as wire
from syncline.formats.framing import Framing
from syncline.networks.host import (
    Cut,
    Delivery,
    Message,
    PeerEvent,
    PeerInfo,
    Published,
    Stream,
    StreamHandler,
    Subscription,
)

FORGIVEN = 100.0


class MemoryFabric:
    """Where memory hosts find each other."""

    def __init__(self) -> None:
        self.hosts: dict[str, MemoryHost] = {}

    def host(self, key: NodeKey, *, clock: Clock | None = None) -> MemoryHost:
        """A host of this fabric; enter it with `async with`."""
        return MemoryHost(self, key, clock or SystemClock())


class MemoryNetworks:
    """Implements `core.ports.Networks` with a host that is already running."""

    def __init__(self, host: MemoryHost) -> None:
        self._host = host

    async def libp2p(self) -> MemoryHost:
        return self._host


class MemoryHost:
    """Implements `networks.host.Host`."""

    def __init__(self, fabric: MemoryFabric, key: NodeKey, clock: Clock) -> None:
        self.key, self.clock, self.fabric = key, clock, fabric
        self.gossip = MemoryPubSub(self)
        self.flood = MemoryPubSub(self)
        self.connected: dict[str, tuple[str, float]] = {}  # peer → (direction, since)
        self.counts: Counter[str] = Counter()
        self._blame: Counter[str] = Counter()
        self._banned: dict[str, float] = {}
        self._handlers: dict[str, tuple[StreamHandler, Framing, float, int]] = {}
        self._open: Counter[tuple[str, str]] = Counter()
        self._listeners: list[Callable[[PeerEvent], None]] = []
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._tasks = await anyio.create_task_group().__aenter__()
        self.fabric.hosts[self.peer_id] = self
        return self

    async def __aexit__(self, *exception: object) -> None:
        for peer in list(self.connected):
            await self.disconnect(peer)
        del self.fabric.hosts[self.peer_id]
        assert self._tasks is not None
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    @property
    def tasks(self) -> TaskGroup:
        if self._tasks is None:
            raise ClosedError("the host is not running")
        return self._tasks

    @property
    def peer_id(self) -> str:
        return self.key.peer_id

    @property
    def addresses(self) -> Sequence[str]:
        return [f"/memory/{self.peer_id}/p2p/{self.peer_id}"]

    async def connect(self, address: str) -> str:
        peer = address.rpartition("/p2p/")[2]
        if "/p2p/" not in address:
            raise UsageError("an address must end in a PeerID", about=address)
        other = self.fabric.hosts.get(peer)
        if other is None or other._banned.get(self.peer_id, 0.0) > self.clock.monotonic():
            raise UnreachableError("nobody answers", about=address)
        if peer not in self.connected:
            self._connected(peer, "out")
            other._connected(self.peer_id, "in")
        await anyio.lowlevel.checkpoint()
        return peer

    def _connected(self, peer: str, direction: str) -> None:
        self.connected[peer] = (direction, self.clock.monotonic())
        self._tell(PeerEvent(peer, True))
        self.gossip.changed()
        self.flood.changed()

    async def disconnect(self, peer: str, why: Cut = Cut.CLOSED, *, ban_seconds: float = 0.0) -> None:
        if ban_seconds:
            self._banned[peer] = self.clock.monotonic() + ban_seconds
        if self.connected.pop(peer, None) is not None:
            self.counts[f"cut_{why}"] += 1
            self._tell(PeerEvent(peer, False, why))
            other = self.fabric.hosts.get(peer)
            if other is not None:
                await other.disconnect(self.peer_id, Cut.DISCONNECTED)
        await anyio.lowlevel.checkpoint()

    def _tell(self, event: PeerEvent) -> None:
        for listener in self._listeners:
            listener(event)

    def blame(self, peer: str, weight: float = 1.0) -> None:
        self._blame[peer] += weight  # type: ignore[assignment]
        if self._blame[peer] > FORGIVEN and peer in self.connected:
            self.tasks.start_soon(lambda: self.disconnect(peer, Cut.MISBEHAVING, ban_seconds=60.0))

    async def open_stream(self, peer: str, protocol: str, framing: Framing, *, timeout: float = 10.0) -> Stream:
        other = self.fabric.hosts.get(peer) if peer in self.connected else None
        if other is None:
            raise UnreachableError("not connected", about=peer)
        if protocol not in other._handlers:
            raise RefusedError(
                "the peer does not speak this protocol", reason=Reason.UNSUPPORTED_VERSION, about=protocol
            )
        handler, their_framing, their_timeout, per_peer = other._handlers[protocol]
        there, here = _pipe(), _pipe()
        ours = MemoryStream(peer, protocol, framing, here[1], there[0], timeout)
        theirs = MemoryStream(self.peer_id, protocol, their_framing, there[1], here[0], their_timeout)
        if other._open[self.peer_id, protocol] >= per_peer:
            await theirs.close()
        else:
            other.tasks.start_soon(other._serve, theirs, handler)
        await anyio.lowlevel.checkpoint()
        return ours

    async def _serve(self, stream: MemoryStream, handler: StreamHandler) -> None:
        self._open[stream.peer, stream.protocol] += 1
        try:
            await handler(stream)
        except Exception:
            self.counts["stream_errors"] += 1
        finally:
            self._open[stream.peer, stream.protocol] -= 1
            with anyio.CancelScope(shield=True):
                await stream.close()

    def handle_stream(
        self, protocol: str, handler: StreamHandler, framing: Framing, *, timeout: float = 60.0, per_peer: int = 16
    ) -> None:
        self._handlers[protocol] = (handler, framing, timeout, per_peer)

    def watch(self, listener: Callable[[PeerEvent], None]) -> None:
        self._listeners.append(listener)

    def peers(self) -> list[PeerInfo]:
        now = self.clock.monotonic()
        return [
            PeerInfo(
                peer=peer, address=f"/memory/{peer}", direction=direction, since=now - since, score=-self._blame[peer]
            )
            for peer, (direction, since) in sorted(self.connected.items())
        ]

    def statistics(self) -> Mapping[str, int | float]:
        return {"connections": len(self.connected), **self.counts}


Pipe = tuple[MemoryObjectSendStream[bytes], MemoryObjectReceiveStream[bytes]]


def _pipe() -> Pipe:
    return anyio.create_memory_object_stream[bytes](64)


class MemoryStream:
    """Implements `networks.host.Stream` on two in-process pipes."""

    def __init__(
        self,
        peer: str,
        protocol: str,
        framing: Framing,
        inlet: MemoryObjectReceiveStream[bytes],
        outlet: MemoryObjectSendStream[bytes],
        timeout: float,
    ) -> None:
        self.peer, self.protocol = peer, protocol
        self._framing, self._inlet, self._outlet, self._timeout = framing, inlet, outlet, timeout
        self._reader, self._ready = framing.reader(), list[bytes]()

    async def receive(self) -> bytes | None:
        while not self._ready:
            try:
                with anyio.fail_after(self._timeout):
                    chunk = await self._inlet.receive()
            except TimeoutError:
                raise UnavailableError("the peer sent nothing in time", about=self.peer) from None
            except (anyio.EndOfStream, anyio.ClosedResourceError):
                self._reader.finish()
                return None
            self._ready = self._reader.feed(chunk)
        return self._ready.pop(0)

    async def send(self, frame: bytes) -> None:
        await self.send_many([frame])

    async def send_many(self, frames: Sequence[bytes]) -> None:
        try:
            with anyio.fail_after(self._timeout):
                await self._outlet.send(b"".join(map(self._framing.wrap, frames)))
        except TimeoutError:
            raise UnavailableError("the peer takes nothing", about=self.peer) from None
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise UnreachableError("the stream is closed", about=self.peer) from None

    async def end(self) -> None:
        await self._outlet.aclose()

    async def close(self) -> None:
        await self._outlet.aclose()
        await self._inlet.aclose()


class MemoryDelivery:
    """Implements `networks.host.Delivery`."""

    def __init__(
        self,
        message: Message,
        forwarder: str,
        verdict: Verdict | None,
        repeat: bool,
        decided: Callable[[Verdict], None],
    ) -> None:
        self.message, self.forwarder, self.verdict, self.repeat = message, forwarder, verdict, repeat
        self._decided: Callable[[Verdict], None] | None = decided

    def decide(self, verdict: Verdict) -> None:
        decided, self._decided = self._decided, None
        if decided is not None:
            decided(verdict)


class MemorySubscription:
    """Implements `networks.host.Subscription`."""

    def __init__(self, forward: bool, repeats: bool, refused: bool) -> None:
        self.forward, self.repeats, self.refused = forward, repeats, refused
        self.inlet, self._outlet = anyio.create_memory_object_stream[Delivery](PUBSUB_UNDECIDED)

    async def receive(self) -> Sequence[Delivery]:
        try:
            batch = [await self._outlet.receive()]
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            raise ClosedError("the subscription has ended") from None
        while len(batch) < PUBSUB_BATCH:
            try:
                batch.append(self._outlet.receive_nowait())
            except anyio.WouldBlock:
                break
        return batch

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[Delivery]:
        try:
            return await self.receive()
        except ClosedError:
            raise StopAsyncIteration from None

    def close(self) -> None:
        self.inlet.close()
        self._outlet.close()


class MemoryPubSub:
    """Implements `networks.host.PubSub`: floods along connections, forwarding what was accepted."""

    def __init__(self, host: MemoryHost) -> None:
        self._host = host
        self._topics: dict[str, MemorySubscription] = {}
        self._seen: dict[bytes, None] = {}
        self._seqno = host.clock.now() * 1_000
        self._change = anyio.Event()

    def changed(self) -> None:
        self._change.set()
        self._change = anyio.Event()

    def _twin(self, peer: str) -> MemoryPubSub | None:
        other = self._host.fabric.hosts.get(peer)
        if other is None:
            return None
        return other.gossip if self is self._host.gossip else other.flood

    @asynccontextmanager
    async def subscribe(
        self, topic: str, *, forward: bool = True, repeats: bool = False, refused: bool = False
    ) -> AsyncIterator[Subscription]:
        if topic in self._topics:
            raise UsageError("there is a subscription already", about=topic)
        subscription = self._topics[topic] = MemorySubscription(forward, repeats, refused)
        self._announce()
        try:
            yield subscription
        finally:
            del self._topics[topic]
            subscription.close()
            self._announce()

    def _announce(self) -> None:
        for peer in self._host.connected:
            twin = self._twin(peer)
            if twin is not None:
                twin.changed()

    def compose(self, topic: str, data: bytes) -> Message:
        if len(data) > PUBSUB_MESSAGE_BYTES:
            raise UsageError(f"{len(data)} bytes are more than a message can carry", about=topic)
        self._seqno += 1
        return read(wire.decode_message(wire.compose(self._host.key, topic, data, self._seqno)))

    async def publish(self, topic: str, data: bytes) -> Published:
        return await self.send(self.compose(topic, data))

    async def send(self, message: Message) -> Published:
        self._seen[message.id] = None
        sent = await self._flood(message, {self._host.peer_id})
        self._host.counts["published"] += 1
        return Published(message, tuple(sent))

    async def _flood(self, message: Message, without: set[str]) -> list[str]:
        sent = []
        for peer in self.neighbours(message.topic):
            twin = self._twin(peer)
            if peer not in without and twin is not None:
                await twin.take(message.raw, self._host.peer_id)
                sent.append(peer)
        await anyio.lowlevel.checkpoint()
        return sent

    async def take(self, raw: bytes, forwarder: str) -> None:
        signed = wire.decode_message(raw)
        subscription = self._topics.get(signed.topic)
        if subscription is None:
            return
        verdict = wire.judge(signed)
        repeat = verdict.accepted and signed.id in self._seen
        if verdict.accepted and not repeat:
            self._seen[signed.id] = None
        if (repeat and not subscription.repeats) or (not verdict.accepted and not subscription.refused):
            return
        message = read(signed)

        def decided(verdict: Verdict) -> None:
            if verdict.outcome is Outcome.ACCEPT and subscription.forward and not repeat:
                self._host.tasks.start_soon(self._flood, message, {forwarder, message.author})
            elif verdict.blames_sender:
                self._host.blame(forwarder)

        told = None if verdict.accepted else verdict
        try:
            await subscription.inlet.send(MemoryDelivery(message, forwarder, told, repeat, decided))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass

    def neighbours(self, topic: str) -> list[str]:
        found = []
        for peer in sorted(self._host.connected):
            twin = self._twin(peer)
            if twin is not None and topic in twin._topics:
                found.append(peer)
        return found

    async def wait_for_neighbours(self, topic: str, count: int = 1) -> None:
        while len(self.neighbours(topic)) < count:
            await self._change.wait()


def read(signed: wire.Signed) -> Message:
    """The message as the floors above see it."""
    public = wire.ed25519_key(signed.author)
    author = peer_id(public) if public else signed.author.hex()
    return Message(signed.topic, signed.data, author, int.from_bytes(signed.seqno, "big"), signed.id, signed.raw)
