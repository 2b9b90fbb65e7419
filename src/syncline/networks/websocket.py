"""A WebSocket client on anyio, so that users' programs on trio and on asyncio can use it: `websockets`' sans-I/O core.

Whole messages in and out, bounded in size; answers pings, sends its own, and gives up on a silent peer. Reconnecting is
the caller's business.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import anyio
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus, InvalidURI
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from syncline.core.errors import ClosedError, RefusedError, UnavailableError, UnreachableError, UsageError
from syncline.core.limits import FETCH_SECONDS, WEBSOCKET_MESSAGE
from syncline.core.verdict import Reason

CHUNK: Final = 65_536
PING_SECONDS: Final = 20.0  # of silence after which we ask whether somebody is there
SILENCE_SECONDS: Final = 45.0  # of silence after which nobody is


class WebSocket:
    """One open connection. One task may receive and another send at the same time."""

    def __init__(self, stream: ByteStream, protocol: ClientProtocol, url: str) -> None:
        self._stream = stream
        self._protocol = protocol
        self._url = url
        self._messages: list[str | bytes] = []
        self._fragments: list[bytes] = []
        self._text = True
        self._writing = anyio.Lock()

    @property
    def is_open(self) -> bool:
        return self._protocol.state is State.OPEN

    async def receive(self) -> str | bytes:
        """The next message: text as str, binary as bytes. Raises ClosedError when the other side has ended."""
        while not self._messages:
            if self._protocol.state is State.CLOSED or self._protocol.close_rcvd is not None:
                raise ClosedError(self._farewell(), about=self._url)
            await self._read()
        return self._messages.pop(0)

    async def send(self, message: str | bytes) -> None:
        """Send one message; returns when it is handed to the machine."""
        if self._protocol.state is not State.OPEN:
            raise ClosedError("the WebSocket is closed", about=self._url)
        if isinstance(message, str):
            self._protocol.send_text(message.encode())
        else:
            self._protocol.send_binary(message)
        await self._flush()

    async def close(self) -> None:
        """Say goodbye, without waiting long for an answer."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(1):
            try:
                if self._protocol.state is State.OPEN:
                    self._protocol.send_close(1000)
                    await self._flush()
            except (ClosedError, UnreachableError):
                pass
            await self._stream.aclose()

    async def shake_hands(self, headers: Mapping[str, str]) -> None:
        request = self._protocol.connect()
        for name, value in headers.items():
            request.headers[name] = value
        self._protocol.send_request(request)
        await self._flush()
        while self._protocol.state is State.CONNECTING and self._protocol.handshake_exc is None:
            await self._read()
        if self._protocol.handshake_exc is not None:
            raise _no_handshake(self._protocol.handshake_exc, self._url)

    async def _read(self) -> None:
        """Take in what comes next, asking once whether the other side is still there."""
        chunk = None
        with anyio.move_on_after(PING_SECONDS):
            chunk = await self._chunk()
        if chunk is None:
            if self._protocol.state is State.OPEN:
                self._protocol.send_ping(b"")
                await self._flush()
            with anyio.move_on_after(SILENCE_SECONDS - PING_SECONDS):
                chunk = await self._chunk()
        if chunk is None:
            raise UnreachableError(f"silent for {SILENCE_SECONDS:g} s", about=self._url)
        self._protocol.receive_data(chunk) if chunk else self._protocol.receive_eof()
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._take(event)
        await self._flush()

    async def _chunk(self) -> bytes:
        """What the network has, or nothing when it has ended."""
        try:
            return await self._stream.receive(CHUNK)
        except anyio.EndOfStream:
            return b""
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
            raise UnreachableError(f"the connection broke: {error}", about=self._url) from None

    def _take(self, frame: Frame) -> None:
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY):
            self._text = frame.opcode is Opcode.TEXT
        elif frame.opcode is not Opcode.CONT:
            return  # the core answers control frames
        self._fragments.append(bytes(frame.data))
        if frame.fin:
            message = b"".join(self._fragments)
            self._fragments.clear()
            self._messages.append(message.decode() if self._text else message)

    async def _flush(self) -> None:
        async with self._writing:
            for data in self._protocol.data_to_send():
                try:
                    if data:
                        await self._stream.send(data)
                    elif not isinstance(self._stream, TLSStream):
                        await self._stream.send_eof()
                except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
                    raise UnreachableError(f"the connection broke: {error}", about=self._url) from None

    def _farewell(self) -> str:
        goodbye = self._protocol.close_rcvd or self._protocol.close_sent
        if goodbye is None:
            return "the WebSocket broke off"
        return f"the WebSocket was closed ({goodbye.code}{': ' + goodbye.reason if goodbye.reason else ''})"


@asynccontextmanager
async def connect(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    max_message: int = WEBSOCKET_MESSAGE,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[WebSocket]:
    """An open WebSocket for the length of the block.

    Raises UnreachableError when nobody answers, RefusedError when a token is missing or wrong, UnavailableError when the
    server answers something else than a WebSocket.
    """
    try:
        where = parse_uri(url)
    except InvalidURI as error:
        raise UsageError(f"not a WebSocket address: {error}", about=url) from None
    socket: WebSocket | None = None
    try:
        with anyio.fail_after(FETCH_SECONDS):
            stream: ByteStream = await anyio.connect_tcp(where.host, where.port)
            if where.secure:
                context = tls or ssl.create_default_context()
                stream = await TLSStream.wrap(
                    stream, hostname=where.host, ssl_context=context, standard_compatible=False
                )
            socket = WebSocket(stream, ClientProtocol(where, max_size=max_message), url)
            await socket.shake_hands(headers or {})
    except (OSError, TimeoutError) as error:
        raise UnreachableError(f"no answer: {error or type(error).__name__}", about=url) from None
    finally:
        if socket is not None and not socket.is_open:
            await socket.close()
    try:
        yield socket
    finally:
        await socket.close()


def _no_handshake(error: Exception, url: str) -> RefusedError | UnavailableError:
    if isinstance(error, InvalidStatus) and error.response.status_code in (401, 403):
        return RefusedError(f"answered {error.response.status_code}", reason=Reason.UNAUTHORISED, about=url)
    return UnavailableError(f"no WebSocket there: {error}", about=url)
