"""The host: listens, dials, keeps bootstrap peers, asks and answers identify and ping, and hands streams to protocols.

Implements `networks.host.Host`. Who is let in is decided by the guard; pubsub is the overlays'. Use `running_host`.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from random import Random, SystemRandom
from typing import Any, Final

import anyio
import msgspec
import structlog
from anyio.abc import ByteStream, TaskGroup, TaskStatus

from syncline.core.clock import Clock, SystemClock
from syncline.core.errors import DecodeError, RefusedError, SynclineError, UnreachableError, UsageError
from syncline.core.keys import NodeKey, public_of_peer_id
from syncline.core.limits import HANDSHAKE_SECONDS, SLOW_PEER_SECONDS
from syncline.core.retry import Backoff
from syncline.formats.framing import Framing
from syncline.networks.host import Cut, PeerEvent, PeerInfo, StreamHandler
from syncline.networks.libp2p import identify
from syncline.networks.libp2p.connection import Channel, Connection
from syncline.networks.libp2p.guard import Guard, Limits
from syncline.networks.libp2p.multiaddr import Address, parse
from syncline.networks.libp2p.noise import ED25519_KEY_PREFIX
from syncline.networks.libp2p.secure import SecureStream, secured
from syncline.networks.libp2p.streams import FramedStream
from syncline.networks.libp2p.transport import TcpTransport, Transport
from syncline.networks.pubsub.gossip import GossipRouter
from syncline.networks.pubsub.overlay import Overlay
from syncline.networks.pubsub.router import Router
from syncline.networks.signal import Signal

log = structlog.get_logger()
PING: Final = "/ipfs/ping/1.0.0"
PING_BYTES: Final = 32
TWO_OVERLAYS: Final = "/syncline/two-overlays/1.0.0"  # said in identify, spoken never: see `_join_overlays`
IDENTIFY_SECONDS: Final = 10.0
IDENTIFY_FRAMING: Final = Framing("varint", identify.MESSAGE_MAX)
RECONNECT: Final = Backoff(first=1.0, longest=60.0)
SETTLED_SECONDS: Final = 60.0  # a connection that held so long makes the next wait short again


class HostSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where to listen, whom to keep close, and how much to bear."""

    listen: tuple[str, ...] = ("/ip4/127.0.0.1/tcp/0",)
    announce: tuple[str, ...] = ()  # addresses others reach us at, if not those we listen on
    bootstrap: tuple[str, ...] = ()
    limits: Limits = Limits()
    slow_seconds: float = SLOW_PEER_SECONDS


class _Handler(msgspec.Struct, frozen=True):
    handler: StreamHandler
    framing: Framing
    timeout: float
    per_peer: int


class _Peer:
    """A connected peer and what it told us about itself."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.identity: identify.Identity | None = None


class Libp2pHost:
    """Implements `networks.host.Host`."""

    def __init__(
        self, key: NodeKey, settings: HostSettings, transport: Transport, clock: Clock, random: Random, tasks: TaskGroup
    ) -> None:
        self._key, self._settings, self._transport, self._tasks = key, settings, transport, tasks
        self._guard = Guard(settings.limits)
        self._peers: dict[str, _Peer] = {}
        self._handlers: dict[str, _Handler] = {}
        self._open: Counter[tuple[str, str]] = Counter()
        self._listeners: list[Callable[[PeerEvent], None]] = []
        self._listening: list[Address] = []
        self._dials: dict[str, anyio.Event] = {}
        self._gone = Signal()
        self._random = random
        self._bytes: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.gossip = Overlay(GossipRouter(random), key, self, clock, slow_seconds=settings.slow_seconds)
        self.flood = Overlay(Router(), key, self, clock, slow_seconds=settings.slow_seconds)
        self._overlays = (self.gossip, self.flood)

    # life

    async def start(self) -> None:
        for overlay in self._overlays:
            await overlay.run(self._tasks)
        for text in self._settings.listen:
            self._listening.append(await self._transport.listen(parse(text), self._accept, self._tasks))
        for text in self._settings.bootstrap:
            address = parse(text)
            if not address.peer:
                raise UsageError("a bootstrap address must end in /p2p/PEERID", about=text)
            if address.peer != self.peer_id:
                self._tasks.start_soon(self._keep_connected, address)

    async def stop(self) -> None:
        """Let queues drain for a moment, then say goodbye to everybody."""
        for overlay in self._overlays:
            await overlay.drain()
        async with anyio.create_task_group() as closing:
            for peer in list(self._peers.values()):
                for connection in peer.connections:
                    closing.start_soon(connection.close)

    @property
    def peer_id(self) -> str:
        return self._key.peer_id

    @property
    def addresses(self) -> Sequence[str]:
        announced = [parse(text) for text in self._settings.announce] or self._listening
        return [str(address.with_peer(self.peer_id)) for address in announced]

    # connecting

    async def connect(self, address: str) -> str:
        target = parse(address)
        if not target.peer:
            raise UsageError("an address to dial must end in /p2p/PEERID", about=address)
        if target.peer == self.peer_id:
            raise UsageError("this is our own address", about=address)
        while target.peer in self._dials:  # somebody is dialling it already
            await self._dials[target.peer].wait()
        if not self._is_open(target.peer):
            await self._dial(target)
        return target.peer

    async def _dial(self, target: Address) -> None:
        done = self._dials[target.peer] = anyio.Event()
        try:
            with anyio.fail_after(HANDSHAKE_SECONDS):
                raw = await self._transport.dial(target)
            stream = await secured(
                raw,
                self._key,
                initiator=True,
                timeout=HANDSHAKE_SECONDS,
                expected=public_of_peer_id(target.peer),
            )
            await self._adopt(stream, target, initiator=True)
        except TimeoutError:
            raise UnreachableError("nobody answers in time", about=str(target)) from None
        except (DecodeError, RefusedError) as error:
            raise UnreachableError(f"no libp2p there: {error.message}", about=str(target)) from None
        finally:
            del self._dials[target.peer]
            done.set()

    async def _accept(self, raw: ByteStream, remote: Address) -> None:
        place = _place(remote)
        if self._guard.knock(place, anyio.current_time()) is not None:
            await anyio.aclose_forcefully(raw)
            return
        try:
            try:
                stream = await secured(raw, self._key, initiator=False, timeout=HANDSHAKE_SECONDS)
            except SynclineError:
                self.counts["handshakes_failed"] += 1
                return
            finally:
                self._guard.shaken()
            connection = self._enter(stream, remote, initiator=False)
            if connection is None:
                await stream.close()
            else:
                await self._run(connection)
        finally:
            self._guard.left(place)

    async def _adopt(self, stream: SecureStream, address: Address, *, initiator: bool) -> None:
        connection = self._enter(stream, address, initiator=initiator)
        if connection is None:
            await stream.close()
            raise UnreachableError("the peer is not let in", about=str(address))
        self._tasks.start_soon(self._run, connection)

    def _enter(self, stream: SecureStream, address: Address, *, initiator: bool) -> Connection | None:
        connection = Connection(
            stream,
            initiator=initiator,
            address=address,
            on_stream=self._answer,
            on_over=self._exit,
            slow_seconds=self._settings.slow_seconds,
        )
        if connection.peer == self.peer_id:
            return None
        if self._guard.enter(connection.peer, anyio.current_time()) is not None:
            return None
        peer = self._peers.get(connection.peer)
        if peer is None:
            peer = self._peers[connection.peer] = _Peer()
            self.counts["connected"] += 1
            self._tell(PeerEvent(connection.peer, True))
        peer.connections.append(connection)
        return connection

    async def _run(self, connection: Connection) -> None:
        self._tasks.start_soon(self._identify, connection)
        await connection.run()

    def _exit(self, connection: Connection) -> None:
        self._guard.exit(connection.peer)
        sent, received = connection.wire_bytes
        self._bytes["sent"] += sent
        self._bytes["received"] += received
        why = connection.why or Cut.DISCONNECTED
        peer = self._peers[connection.peer]
        peer.connections.remove(connection)
        if not peer.connections:
            del self._peers[connection.peer]
            self.counts[f"cut_{why}"] += 1
            for overlay in self._overlays:
                overlay.peer_left(connection.peer, why)
            self._tell(PeerEvent(connection.peer, False, why))
        self._gone.set()

    async def _keep_connected(self, address: Address) -> None:
        """Dial a bootstrap peer whenever it is not connected, with growing pauses."""
        pauses = RECONNECT.spans(self._random)
        while True:
            with suppress(UnreachableError):
                await self.connect(str(address))
            since = anyio.current_time()
            while address.peer in self._peers:
                await self._gone.wait()
            if anyio.current_time() - since > SETTLED_SECONDS:
                pauses = RECONNECT.spans(self._random)
            await anyio.sleep(next(pauses))

    async def disconnect(self, peer: str, why: Cut = Cut.CLOSED, *, ban_seconds: float = 0.0) -> None:
        if ban_seconds:
            self._guard.ban(peer, ban_seconds, anyio.current_time())
        self.cut(peer, why)
        while peer in self._peers:
            await self._gone.wait()

    def cut(self, peer: str, why: Cut) -> None:
        """Close the connections to a peer at once; being slow or spamming is held against it."""
        if why in (Cut.SLOW_READER, Cut.SPAM, Cut.MALFORMED, Cut.OVERSIZE):
            log.info("peer_cut", peer=peer, why=why)
            now = anyio.current_time()
            if self._guard.blame(peer, self._settings.limits.faults / 2, now):
                self._guard.ban(peer, self._settings.limits.ban_seconds, now)
        for connection in list(self._peers[peer].connections) if peer in self._peers else ():
            connection.cut(why)

    def blame(self, peer: str, weight: float = 1.0) -> None:
        now = anyio.current_time()
        if self._guard.blame(peer, weight, now) and self._is_open(peer):
            log.info("peer_cut", peer=peer, why=Cut.MISBEHAVING)
            self._guard.ban(peer, self._settings.limits.ban_seconds, now)
            self.cut(peer, Cut.MISBEHAVING)

    def _is_open(self, peer: str) -> bool:
        """Whether there is a connection to the peer that has not been cut yet."""
        return peer in self._peers and not all(each.over for each in self._peers[peer].connections)

    def watch(self, listener: Callable[[PeerEvent], None]) -> None:
        self._listeners.append(listener)

    def _tell(self, event: PeerEvent) -> None:
        for listener in self._listeners:
            listener(event)

    def dialled(self, peer: str) -> bool:
        return peer in self._peers and any(each.direction == "out" for each in self._peers[peer].connections)

    # streams

    async def open_channel(self, peer: str, protocols: Sequence[str]) -> Channel:
        """A stream on the newest connection to the peer that is not about to end."""
        found = [each for each in self._peers[peer].connections if each.can_open] if peer in self._peers else []
        if not found:
            raise UnreachableError("not connected", about=peer)
        connection = found[-1]
        try:
            with anyio.fail_after(HANDSHAKE_SECONDS):
                return await connection.open(protocols)
        except TimeoutError:
            raise UnreachableError("the peer does not answer", about=peer) from None
        except DecodeError as error:
            raise UnreachableError(f"the peer answers nonsense: {error.message}", about=peer) from None

    async def open_stream(self, peer: str, protocol: str, framing: Framing, *, timeout: float = 10.0) -> FramedStream:
        try:
            with anyio.fail_after(timeout):
                return FramedStream(await self.open_channel(peer, [protocol]), framing, timeout)
        except TimeoutError:
            raise UnreachableError("the peer does not answer", about=peer) from None

    def handle_stream(
        self, protocol: str, handler: StreamHandler, framing: Framing, *, timeout: float = 60.0, per_peer: int = 16
    ) -> None:
        if protocol in self._protocols():
            raise UsageError("this protocol is handled already", about=protocol)
        self._handlers[protocol] = _Handler(handler, framing, timeout, per_peer)
        for peer in self._peers:
            self._tasks.start_soon(self._push_identity, peer)

    def _protocols(self) -> list[str]:
        pubsub = [protocol for overlay in self._overlays for protocol in overlay.router.protocols]
        return [identify.PROTOCOL, identify.PUSH, PING, *pubsub, *self._handlers]

    async def _answer(self, channel: Channel) -> None:
        """Serve a stream a peer opened. Nothing it does on the stream ends more than the stream."""
        try:
            await channel.connection.accept(channel, self._protocols())
            await self._serve(channel)
        except (SynclineError, TimeoutError) as error:
            self.counts["streams_failed"] += 1
            log.debug("stream_failed", peer=channel.peer, protocol=channel.protocol, error=str(error))
        except Exception:
            self.counts["handlers_failed"] += 1
            log.exception("stream_handler_failed", peer=channel.peer, protocol=channel.protocol)

    async def _serve(self, channel: Channel) -> None:
        protocol = channel.protocol
        if protocol == identify.PROTOCOL:
            await channel.send(IDENTIFY_FRAMING.wrap(self._identity(channel.connection)))
        elif protocol == identify.PUSH:
            await self._hear_identity(channel)
        elif protocol == PING:
            await self._pong(channel)
        elif protocol in self._handlers:
            await self._handle(channel, self._handlers[protocol])
        else:
            for overlay in self._overlays:
                if protocol in overlay.router.protocols:
                    await overlay.serve(channel)

    async def _handle(self, channel: Channel, how: _Handler) -> None:
        slot = channel.peer, channel.protocol
        if self._open[slot] >= how.per_peer:
            self.counts["streams_refused"] += 1
            return
        self._open[slot] += 1
        stream = FramedStream(channel, how.framing, how.timeout)
        try:
            await how.handler(stream)
        finally:
            self._open[slot] -= 1
            if not self._open[slot]:
                del self._open[slot]

    async def _pong(self, channel: Channel) -> None:
        while data := await channel.receive(PING_BYTES):
            await channel.send(data)

    # identify

    def _identity(self, connection: Connection) -> bytes:
        addresses = [parse(text).to_bytes() for text in self._settings.announce]
        return identify.encode(
            identify.Identity(
                public_key=ED25519_KEY_PREFIX + self._key.public,
                addresses=tuple(addresses or [address.to_bytes() for address in self._listening]),
                protocols=(*self._protocols(), TWO_OVERLAYS),
                observed=connection.address.to_bytes(),
                protocol_version="ipfs/0.1.0",
                agent=f"syncline/{version('syncline')}",
            )
        )

    async def _identify(self, connection: Connection) -> None:
        """Ask a new peer what it speaks, then offer it to the overlays. One that does not say is simply tried."""
        peer = self._peers.get(connection.peer)
        with suppress(SynclineError, TimeoutError), anyio.fail_after(IDENTIFY_SECONDS):
            channel = await connection.open([identify.PROTOCOL])
            await self._hear_identity(channel)
        if peer is not None and peer.connections and peer.identity is None:
            self.gossip.peer_joined(connection.peer, None)

    async def _hear_identity(self, channel: Channel) -> None:
        reader = IDENTIFY_FRAMING.reader()
        try:
            with anyio.fail_after(IDENTIFY_SECONDS):
                while chunk := await channel.receive(identify.MESSAGE_MAX):
                    if frames := reader.feed(chunk):
                        self._note_identity(channel.peer, identify.decode(frames[0]))
                        return
        finally:
            channel.close()

    def _note_identity(self, peer: str, identity: identify.Identity) -> None:
        known = self._peers.get(peer)
        if known is not None:
            known.identity = identity
            self._join_overlays(peer, identity.protocols)

    def _join_overlays(self, peer: str, protocols: Sequence[str]) -> None:
        """Offer a peer to the overlays it speaks.

        GossipSub implementations also answer to FloodSub's name, for old peers, but keep only one stream per peer: a
        second would end the first. So a peer with both names is a GossipSub peer, unless it says that it keeps them
        apart, as we do, or opens a FloodSub stream itself.
        """
        self.gossip.peer_joined(peer, protocols)
        if TWO_OVERLAYS in protocols or not set(protocols) & set(self.gossip.router.protocols):
            self.flood.peer_joined(peer, protocols)

    async def _push_identity(self, peer: str) -> None:
        """Tell a peer that we speak something new."""
        with suppress(SynclineError):
            channel = await self.open_channel(peer, [identify.PUSH])
            await channel.send(IDENTIFY_FRAMING.wrap(self._identity(channel.connection)))
            channel.close()

    # looking in

    def peers(self) -> list[PeerInfo]:
        now = anyio.current_time()
        return [self._info(name, peer, now) for name, peer in sorted(self._peers.items())]

    def _info(self, name: str, peer: _Peer, now: float) -> PeerInfo:
        connection = peer.connections[-1]
        identity = peer.identity or identify.Identity()
        return PeerInfo(
            peer=name,
            address=str(connection.address),
            direction=connection.direction,
            since=now - connection.since,
            agent=identity.agent,
            protocols=identity.protocols,
            topics=tuple(topic for overlay in self._overlays for topic in overlay.topics_of(name)),
            score=self.gossip.router.score(name, now) - self._guard.faults(name, now),
            queued_bytes=sum(overlay.queued_bytes(name) for overlay in self._overlays),
        )

    def statistics(self) -> Mapping[str, int | float]:
        live = [connection.wire_bytes for peer in self._peers.values() for connection in peer.connections]
        found: dict[str, Any] = {
            "peers": len(self._peers),
            "connections": self._guard.connections,
            "handshakes": self._guard.handshakes,
            "bytes_sent": self._bytes["sent"] + sum(sent for sent, _ in live),
            "bytes_received": self._bytes["received"] + sum(received for _, received in live),
            **self.counts,
            **{f"refused_{why}": count for why, count in self._guard.refused.items()},
        }
        for name, overlay in (("gossip", self.gossip), ("flood", self.flood)):
            found |= {f"{name}_{key}": value for key, value in overlay.statistics().items()}
        return found


@asynccontextmanager
async def running_host(
    key: NodeKey,
    settings: HostSettings | None = None,
    *,
    transport: Transport | None = None,
    clock: Clock | None = None,
    random: Random | None = None,
) -> AsyncIterator[Libp2pHost]:
    """A host that runs for the length of the block.

    However the block ends, by cancellation too, what was queued gets a few seconds to leave.
    """
    over = anyio.Event()

    async def run(*, task_status: TaskStatus[Libp2pHost]) -> None:
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as tasks:
                host = Libp2pHost(
                    key,
                    settings or HostSettings(),
                    transport or TcpTransport(),
                    clock or SystemClock(),
                    random or SystemRandom(),
                    tasks,
                )
                await host.start()
                task_status.started(host)
                await over.wait()
                await host.stop()
                tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as life:
        host: Libp2pHost = await life.start(run)
        try:
            yield host
        finally:
            over.set()


def _place(address: Address) -> str:
    """What counts as one address: IPv6 by /64, because one customer gets so many; mapped IPv4 as what it is."""
    if address.kind != "ip6":
        return address.host
    ip = ipaddress.IPv6Address(address.host)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ipaddress.IPv6Network((ip, 64), strict=False))
