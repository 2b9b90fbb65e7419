"""NDN over WebSockets: one packet in each binary message. Drives the sans-I/O core of `websockets` on anyio.

A web page can reach loopback, so Host and Origin are checked here as they are by the HTTP API: without an Origin (programs)
anybody may connect, with one only those that were allowed.
"""

from __future__ import annotations

from collections.abc import Iterable

import anyio
from anyio.abc import ByteStream, SocketStream
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidState
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from syncline.core.errors import DecodeError, UnreachableError
from syncline.core.limits import NDN_PACKET_BYTES
from syncline.networks.ndn.transports import CHUNK, is_loopback, remote_address

HANDSHAKE_SECONDS = 10.0
PING_SECONDS = 30.0


class WebSocketTransport:
    """One WebSocket, of either side, whose handshake is done."""

    def __init__(self, stream: ByteStream, core: ClientProtocol | ServerProtocol, uri: str, *, local: bool) -> None:
        self.uri = uri
        self.local = local
        self._stream = stream
        self._core = core
        self._sending = anyio.Lock()
        self._early = core.events_received()  # what came together with the handshake

    async def receive(self) -> list[bytes]:
        while True:
            events, self._early = self._early, []
            packets = [bytes(e.data) for e in events if isinstance(e, Frame) and e.opcode is Opcode.BINARY and e.fin]
            if any(isinstance(e, Frame) and (e.opcode is Opcode.TEXT or not e.fin) for e in events):
                raise DecodeError("NDN packets come in whole binary messages")
            if packets:
                return packets
            await self._flush()
            if self._core.state is not State.OPEN:  # its farewell, if there was one, has been answered
                raise anyio.EndOfStream
            await self._more()

    async def send(self, packets: list[bytes]) -> None:
        try:
            for packet in packets:
                self._core.send_binary(packet)
        except InvalidState:  # the other side has said farewell
            raise anyio.BrokenResourceError from None
        await self._flush()

    async def aclose(self) -> None:
        await anyio.aclose_forcefully(self._stream)

    async def _more(self) -> None:
        try:
            with anyio.fail_after(PING_SECONDS * 2):
                self._core.receive_data(await self._stream.receive(CHUNK))
        except anyio.EndOfStream:
            self._core.receive_eof()
        except TimeoutError:
            self._core.send_ping(b"")  # a dead peer's connection breaks, a living one answers
        self._early = self._core.events_received()
        await self._flush()

    async def _flush(self) -> None:
        async with self._sending:
            data = b"".join(self._core.data_to_send())
            if data:
                await self._stream.send(data)


async def connect(uri: str, host: str, port: int) -> WebSocketTransport:
    """A connection to a forwarder."""
    stream = await anyio.connect_tcp(host, port)
    try:
        core = ClientProtocol(parse_uri(uri), max_size=NDN_PACKET_BYTES)
        core.send_request(core.connect())
        await stream.send(b"".join(core.data_to_send()))
        while core.state is State.CONNECTING:
            core.receive_data(await stream.receive(CHUNK))
            if core.handshake_exc is not None:
                raise UnreachableError(f"the WebSocket was refused: {core.handshake_exc}", about=uri)
        return WebSocketTransport(stream, core, uri, local=is_loopback(remote_address(stream)[0]))
    except BaseException:
        with anyio.CancelScope(shield=True):
            await anyio.aclose_forcefully(stream)
        raise


async def accept(
    stream: SocketStream, uri: str, hosts: Iterable[str], origins: Iterable[str]
) -> WebSocketTransport | None:
    """Do the server's half of the handshake; None if the client was turned away."""
    core = ServerProtocol(max_size=NDN_PACKET_BYTES)
    request: Request | None = None
    with anyio.move_on_after(HANDSHAKE_SECONDS):
        while request is None and core.state is State.CONNECTING:
            try:
                core.receive_data(await stream.receive(CHUNK))
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return None
            if core.handshake_exc is not None:
                break
            request = next((event for event in core.events_received() if isinstance(event, Request)), None)
    if request is None:
        await anyio.aclose_forcefully(stream)
        return None
    response = core.accept(request)
    problem = refusal(request, hosts, origins)
    if problem and response.status_code == 101:
        response = core.reject(403, problem + "\n")
    core.send_response(response)
    await stream.send(b"".join(core.data_to_send()))
    if core.state is not State.OPEN:
        await anyio.aclose_forcefully(stream)
        return None
    return WebSocketTransport(stream, core, uri, local=is_loopback(remote_address(stream)[0]))


def refusal(request: Request, hosts: Iterable[str], origins: Iterable[str]) -> str:
    """Why a request may not connect; empty if it may."""
    host = request.headers.get("Host", "")
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    if name.strip("[]").lower() not in {each.lower() for each in hosts}:
        return "this Host is not served here"
    origin = request.headers.get("Origin")
    if origin is not None and origin.lower().rstrip("/") not in {each.lower().rstrip("/") for each in origins}:
        return "this Origin may not connect; add it to svs.websocket_origins"
    return ""
