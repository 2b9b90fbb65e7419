"""How NDN packets travel: over TCP, Unix sockets, UDP and WebSockets, all with one shape.

A transport hands over whole packets as they come and takes batches of them. What they mean is not looked at here.
"""

from __future__ import annotations

import ipaddress
import os
from typing import Final, Protocol
from urllib.parse import urlsplit

import anyio
from anyio import TypedAttributeLookupError, TypedAttributeProvider
from anyio.abc import ByteStream, ConnectedUDPSocket, SocketAttribute

from syncline.core.errors import MissingError, UnreachableError, UsageError
from syncline.core.limits import NDN_DATAGRAM_BYTES, NDN_PACKET_BYTES
from syncline.formats.ndn.link import fragment
from syncline.formats.tlv import split

CHUNK: Final = 65_536
TCP_PORT: Final = 6363
WEBSOCKET_PORT: Final = 9696
CLIENT_VARIABLE: Final = "NDN_CLIENT_TRANSPORT"  # where NDN applications look for their forwarder
CONNECT_SECONDS: Final = 10.0


class Transport(Protocol):
    """One connection. `receive` ends with anyio.EndOfStream, or anyio.BrokenResourceError when it breaks."""

    uri: str
    local: bool  # both ends are on this machine

    async def receive(self) -> list[bytes]:
        """The next packets; raises DecodeError when the stream cannot be read on."""
        ...

    async def send(self, packets: list[bytes]) -> None: ...

    async def aclose(self) -> None: ...


class StreamTransport:
    """Packets one after another over TCP or a Unix socket."""

    def __init__(self, stream: ByteStream, uri: str, *, local: bool) -> None:
        self.uri = uri
        self.local = local
        self._stream = stream
        self._rest = b""

    async def receive(self) -> list[bytes]:
        while True:
            chunk = await self._stream.receive(CHUNK)
            stream = self._rest + chunk if self._rest else chunk
            packets, used = split(stream, NDN_PACKET_BYTES)
            self._rest = stream[used:]
            if packets:
                return packets

    async def send(self, packets: list[bytes]) -> None:
        await self._stream.send(b"".join(packets))

    async def aclose(self) -> None:
        await anyio.aclose_forcefully(self._stream)


class UdpTransport:
    """One packet, or one fragment of a packet, in each datagram."""

    def __init__(self, socket: ConnectedUDPSocket, uri: str, *, local: bool) -> None:
        self.uri = uri
        self.local = local
        self._socket = socket
        self._fragments = Fragments()

    async def receive(self) -> list[bytes]:
        return [await self._socket.receive()]

    async def send(self, packets: list[bytes]) -> None:
        for packet in packets:
            for datagram in self._fragments.of(packet):
                await self._socket.send(datagram)

    async def aclose(self) -> None:
        await self._socket.aclose()


class Fragments:
    """Cuts packets to the size of datagrams, numbering the pieces."""

    def __init__(self, largest: int = NDN_DATAGRAM_BYTES) -> None:
        self._largest = largest
        self._sequence = int.from_bytes(os.urandom(7), "big")

    def of(self, packet: bytes) -> list[bytes]:
        if len(packet) <= self._largest:
            return [packet]
        pieces = fragment(packet, self._largest, self._sequence)
        self._sequence = (self._sequence + len(pieces)) % 2**64
        return pieces


async def connect(address: str | None = None) -> Transport:
    """A connection to the forwarder at `address`: `tcp://host:6363`, `unix:///path`, `udp://…` or `ws://…`.

    Without one it is taken from NDN_CLIENT_TRANSPORT, as other NDN applications do, else tcp://127.0.0.1:6363.
    """
    uri = address or os.environ.get(CLIENT_VARIABLE) or f"tcp://127.0.0.1:{TCP_PORT}"
    parts = urlsplit(uri)
    scheme = parts.scheme.rstrip("46")
    try:
        with anyio.fail_after(CONNECT_SECONDS):
            if scheme == "unix":
                return StreamTransport(await anyio.connect_unix(parts.path), uri, local=True)
            host, port = parts.hostname or "127.0.0.1", parts.port
            if scheme == "tcp":
                stream = await anyio.connect_tcp(host, port or TCP_PORT)
                return StreamTransport(stream, uri, local=is_loopback(remote_address(stream)[0]))
            if scheme == "udp":
                socket = await anyio.create_connected_udp_socket(host, port or TCP_PORT)
                return UdpTransport(socket, uri, local=is_loopback(remote_address(socket)[0]))
            if scheme == "ws":
                return await _connect_websocket(uri, host, port or WEBSOCKET_PORT)
    except (OSError, TimeoutError, anyio.EndOfStream, anyio.BrokenResourceError) as error:
        raise UnreachableError(
            f"no NDN forwarder answers: {error or type(error).__name__}",
            hint="start a node with `syncline up`",
            about=uri,
        ) from None
    raise UsageError("a forwarder's address starts with tcp://, unix://, udp:// or ws://", about=uri)


async def _connect_websocket(uri: str, host: str, port: int) -> Transport:
    try:
        from syncline.networks.ndn import websocket
    except ImportError:
        raise MissingError("WebSockets are not installed", hint="pip install 'syncline[web]'", about=uri) from None
    return await websocket.connect(uri, host, port)


def local_address(socket: TypedAttributeProvider) -> tuple[str, int]:
    """Host and port of our end."""
    return _pair(socket.extra(SocketAttribute.local_address))  # noqa: S610 - not Django's


def remote_address(socket: TypedAttributeProvider) -> tuple[str, int]:
    """Host and port of the other end; a peer that has hung up already has none, and is a broken connection."""
    try:
        return _pair(socket.extra(SocketAttribute.remote_address))  # noqa: S610 - not Django's
    except TypedAttributeLookupError:
        raise anyio.BrokenResourceError from None


def authority(host: str, port: int) -> str:
    """`host:port`, as addresses write it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _pair(address: object) -> tuple[str, int]:
    assert isinstance(address, tuple)
    return str(address[0]), int(address[1])


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.split("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"
