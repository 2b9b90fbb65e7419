"""Where applications and other forwarders come in: TCP, Unix socket, UDP and WebSocket listeners of a hub."""

from __future__ import annotations

import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import msgspec
import structlog
from anyio.abc import Listener, SocketStream, TaskGroup, UDPSocket

from syncline.core.errors import OverloadedError, UnavailableError
from syncline.core.limits import NDN_UDP_IDLE_SECONDS
from syncline.networks.accepting import serve
from syncline.networks.ndn.bell import Bell
from syncline.networks.ndn.faces import Face
from syncline.networks.ndn.transports import (
    Fragments,
    StreamTransport,
    authority,
    is_loopback,
    local_address,
    remote_address,
)

if TYPE_CHECKING:
    from syncline.networks.ndn.hub import Hub

log = structlog.get_logger()


class DoorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where to listen. None: not at all; 0: a free port."""

    host: str = "127.0.0.1"
    tcp_port: int | None = None
    udp_port: int | None = None
    websocket_port: int | None = None
    websocket_origins: tuple[str, ...] = ()  # web pages that may connect
    websocket_hosts: tuple[str, ...] = ()  # further names we answer to
    unix_path: str = ""


class Doors:
    """The listeners of one hub."""

    def __init__(self, hub: Hub, options: DoorOptions, tasks: TaskGroup) -> None:
        self._hub = hub
        self._options = options
        self._tasks = tasks

    async def open(self) -> dict[str, str]:
        """Start listening; the address of each kind of door."""
        options, addresses = self._options, {}
        if options.tcp_port is not None:
            addresses["tcp"] = await self._tcp(options.tcp_port)
        if options.udp_port is not None:
            addresses["udp"] = await self._udp(options.udp_port)
        if options.websocket_port is not None and (address := await self._websocket(options.websocket_port)):
            addresses["ws"] = address
        if options.unix_path:
            addresses["unix"] = await self._unix(Path(options.unix_path))
        return addresses

    async def _tcp(self, port: int) -> str:
        listener = await anyio.create_tcp_listener(local_host=self._options.host, local_port=port)

        async def accept(stream: SocketStream) -> None:
            peer = remote_address(stream)
            uri = f"tcp://{authority(*peer)}"
            await self._hub.carry(StreamTransport(stream, uri, local=is_loopback(peer[0])))

        self._tasks.start_soon(_serve, listener, accept)
        return f"tcp://{authority(*local_address(listener))}"

    async def _unix(self, path: Path) -> str:
        await _remove_stale_socket(anyio.Path(path))
        listener = await anyio.create_unix_listener(path, mode=0o600)
        uri = f"unix://{path}"

        async def accept(stream: SocketStream) -> None:
            await self._hub.carry(StreamTransport(stream, uri, local=True))

        async def serve_and_remove() -> None:
            try:
                await _serve(listener, accept)
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.Path(path).unlink(missing_ok=True)

        self._tasks.start_soon(serve_and_remove)
        return uri

    async def _websocket(self, port: int) -> str:
        try:
            from syncline.networks.ndn import websocket
        except ImportError:
            log.warning("ndn_no_websocket", hint="pip install 'syncline[web]'")
            return ""
        options = self._options
        listener = await anyio.create_tcp_listener(local_host=options.host, local_port=port)
        hosts = {"localhost", "127.0.0.1", "::1", options.host, *options.websocket_hosts}

        async def accept(stream: SocketStream) -> None:
            uri = f"ws://{authority(*remote_address(stream))}"
            transport = await websocket.accept(stream, uri, hosts, options.websocket_origins)
            if transport is not None:
                await self._hub.carry(transport)

        self._tasks.start_soon(_serve, listener, accept)
        return f"ws://{authority(*local_address(listener))}"

    async def _udp(self, port: int) -> str:
        socket = await anyio.create_udp_socket(local_host=self._options.host, local_port=port)
        self._tasks.start_soon(_UdpDoor(self._hub, socket).run)
        return f"udp://{authority(*local_address(socket))}"


class _UdpDoor:
    """One UDP socket with a face for each address that sends to it."""

    def __init__(self, hub: Hub, socket: UDPSocket) -> None:
        self._hub = hub
        self._socket = socket
        self._faces: dict[tuple[str, int], Face] = {}
        self._seen: dict[tuple[str, int], float] = {}
        self._bell = Bell()
        self._fragments = Fragments()

    async def run(self) -> None:
        async with self._socket, anyio.create_task_group() as tasks:
            tasks.start_soon(self._read)
            tasks.start_soon(self._sweep)
            await self._write()

    async def _read(self) -> None:
        while True:
            try:
                packet, address = await self._socket.receive()
            except (OSError, anyio.BrokenResourceError):
                await anyio.sleep(0.01)  # an ICMP error of some earlier datagram
                continue
            now = anyio.current_time()
            face = self._face((str(address[0]), int(address[1])), now)
            if face is not None:
                self._hub.forwarder.receive(face, [packet], now)

    async def _write(self) -> None:
        while True:
            await self._bell.wait()
            for address, face in list(self._faces.items()):
                for packet in face.take():
                    for datagram in self._fragments.of(packet):
                        await self._send(datagram, address)
                if face.closed:
                    self._forget(address, face)

    async def _sweep(self) -> None:
        """Datagrams have no end: who has said nothing for long is gone, and its routes with it."""
        while True:
            await anyio.sleep(NDN_UDP_IDLE_SECONDS / 10)
            self._forget_idle(anyio.current_time())

    async def _send(self, datagram: bytes, address: tuple[str, int]) -> None:
        try:
            await self._socket.sendto(datagram, *address)
        except OSError:
            pass  # a datagram may be lost

    def _face(self, address: tuple[str, int], now: float) -> Face | None:
        if address in self._faces:
            self._seen[address] = now
            return self._faces[address]
        self._forget_idle(now)
        # An address is easily made up, a connection is not: datagrams leave room for those.
        if len(self._faces) >= max(1, self._hub.options.limits.faces // 2):
            return None
        uri = f"udp://{authority(*address)}"
        try:
            face = self._hub.forwarder.add_face(uri, local=is_loopback(address[0]), notify=self._bell.ring, now=now)
        except OverloadedError:
            return None
        self._faces[address], self._seen[address] = face, now
        return face

    def _forget_idle(self, now: float) -> None:
        for address in [each for each, seen in self._seen.items() if seen + NDN_UDP_IDLE_SECONDS < now]:
            self._forget(address, self._faces[address])

    def _forget(self, address: tuple[str, int], face: Face) -> None:
        """Unless it was forgotten while datagrams were on their way out, and perhaps came back with another face."""
        if self._faces.get(address) is face:
            del self._faces[address], self._seen[address]
            self._hub.drop(face)


async def _serve(listener: Listener[SocketStream], accept: Callable[[SocketStream], Awaitable[None]]) -> None:
    async def accept_alone(stream: SocketStream) -> None:
        """A peer that hangs up at the door, even before it was looked at, ends alone."""
        async with stream:
            try:
                await accept(stream)
            except (OSError, anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                log.debug("ndn_peer_gone_early")

    await serve(listener, accept_alone)


async def _remove_stale_socket(path: anyio.Path) -> None:
    """Remove the socket a crashed process left behind; refuse to take one that somebody listens on."""
    if not await path.exists() or not stat.S_ISSOCK((await path.stat()).st_mode):
        return
    try:
        stream = await anyio.connect_unix(path)
    except OSError:
        await path.unlink()
        return
    await stream.aclose()
    raise UnavailableError("another forwarder listens on this socket", about=str(path))
