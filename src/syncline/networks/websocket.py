"""WebSockets on anyio, so that they work on trio and on asyncio: `websockets`' sans-I/O core, fed with chunks.

`connect` is the client whole messages go through; `accept` takes the server's side of a byte stream. Messages are bounded
in size. Who may connect, and reconnecting, are the caller's business.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

import anyio
from anyio.abc import ByteStream, SocketAttribute, SocketStream
from anyio.streams.tls import TLSStream
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus, InvalidURI
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import Protocol, Side, State
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from syncline.core.errors import ClosedError, RefusedError, UnavailableError, UnreachableError, UsageError
from syncline.core.limits import FETCH_SECONDS, WEBSOCKET_MESSAGE
from syncline.core.verdict import Reason

try:
    from websockets.speedups import apply_mask
except ImportError:  # a build without its C part
    from websockets.utils import apply_mask

CHUNK: Final = 65_536
HEAD_END: Final = b"\r\n\r\n"
PING_SECONDS: Final = 20.0  # of silence after which we ask whether somebody is there
SILENCE_SECONDS: Final = 45.0  # of silence after which nobody is
_OPEN: Final = State.OPEN  # looking up a member of an enum takes as long as taking a frame apart

Message = tuple[bool, bytes]  # whether it is text, and its bytes


class Socket:
    """One WebSocket, either side. One task may read and another write at the same time.

    Many messages are read, or put and then flushed, at once: a chunk costs little more than a message. Whole data frames
    are taken apart and put together here, at a third of the cost; everything else about the protocol is the core's.
    """

    def __init__(self, stream: ByteStream, protocol: Protocol, about: str) -> None:
        self._stream = stream
        self._protocol = protocol
        self._about = about
        self._is_server = protocol.side is Side.SERVER
        self._buffer = b""  # the beginning of a frame
        self._early = b""  # what came with the handshake and has not been looked at
        self._fragments: list[bytes] = []
        self._text = True
        self._writing = anyio.Lock()
        self._raw = _raw_socket(stream)

    @property
    def is_open(self) -> bool:
        return self._protocol.state is State.OPEN

    async def read(self) -> list[Message]:
        """The messages that came with the next chunk, maybe none. Raises ClosedError when the other side has ended."""
        if self._protocol.state is State.CLOSED or self._protocol.close_rcvd is not None:
            raise ClosedError(self._farewell(), about=self._about)
        chunk, self._early = self._early or await self._chunk(), b""
        messages: list[Message] = []
        if self._protocol.state is _OPEN and chunk:
            self._cut(self._buffer + chunk if self._buffer else chunk, messages)
        else:
            self._feed(self._buffer + chunk, messages, is_end=not chunk)
        if self._protocol.writes:  # the core answers control frames
            await self.flush()
        return messages

    async def read_head(self) -> None:
        """Let the core read the other side's part of the handshake, and no byte after it.

        What follows in the same chunk may be half a frame: `read` begins with it.
        """
        head = b""
        while (end := head.find(HEAD_END)) < 0 and len(head) <= CHUNK:
            chunk = await self._chunk()
            if not chunk:
                break
            head += chunk
        cut = end + len(HEAD_END) if end >= 0 else len(head)
        if head:
            self._protocol.receive_data(head[:cut])
        if end < 0:
            self._protocol.receive_eof()
        self._early = head[cut:]

    def _cut(self, data: bytes, messages: list[Message]) -> None:
        """Take whole frames off `data` and keep the rest. The core sees whole frames, or what it must refuse."""
        position, size, masked = 0, len(data), self._is_server
        limit = self._protocol.max_message_size or size
        while size - position >= 2:
            first, second = data[position], data[position + 1]
            length, start = second & 0x7F, position + 2
            if length >= 126:
                start += 2 if length == 126 else 8
                if size < start:
                    break
                length = int.from_bytes(data[position + 2 : start], "big")
            if length > limit or (second >= 0x80) != masked:
                self._feed(data[position:], messages)
                position = size
                break
            end = start + 4 + length if masked else start + length
            if end > size:
                break
            if (first == 0x81 or first == 0x82) and not self._fragments:
                payload = apply_mask(data[start + 4 : end], data[start : start + 4]) if masked else data[start:end]
                messages.append((first == 0x81, payload))
                position = end
                continue
            self._feed(data[position:end], messages)
            position = end
            if self._protocol.state is not _OPEN:
                self._feed(data[position:], messages)
                position = size
        self._buffer = data[position:]

    def _feed(self, data: bytes, messages: list[Message], *, is_end: bool = False) -> None:
        """Let the core read."""
        self._buffer = b""
        if data:
            self._protocol.receive_data(data)
        if is_end:
            self._protocol.receive_eof()
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._take(event, messages)

    def put(self, payload: bytes, *, is_text: bool) -> None:
        """Add a message to what the next flush sends."""
        self.put_all([(is_text, payload)])

    def put_all(self, messages: Iterable[Message]) -> None:
        """Add messages to what the next flush sends."""
        if self._protocol.state is not _OPEN:
            raise ClosedError("the WebSocket is closed", about=self._about)
        if not self._is_server:
            for is_text, payload in messages:
                self._protocol.send_text(payload) if is_text else self._protocol.send_binary(payload)
            return
        writes = self._protocol.writes
        for is_text, payload in messages:
            first, length = 0x81 if is_text else 0x82, len(payload)
            if length < 126:
                writes.append(bytes((first, length)))
            elif length < 65_536:
                writes.append(bytes((first, 126, length >> 8, length & 0xFF)))
            else:
                writes.append(bytes((first, 127)) + length.to_bytes(8, "big"))
            if payload:  # an empty piece would end the connection
                writes.append(payload)

    def ping(self) -> None:
        """Add a ping to what the next flush sends."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_ping(b"")

    async def flush(self) -> None:
        """Hand what was put to the machine."""
        async with self._writing:
            pieces = self._protocol.data_to_send()
            data, is_end = b"".join(pieces), b"" in pieces
            try:
                if data:
                    await self._stream.send(data)
                if is_end and not isinstance(self._stream, TLSStream):
                    await self._stream.send_eof()
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
                raise UnreachableError(f"the connection broke: {error}", about=self._about) from None

    def flush_now(self) -> bool:
        """Hand over at once what the machine takes at once; whether that was all. `flush` does the rest."""
        protocol = self._protocol
        if self._raw is None or self._writing.locked() or b"" in protocol.writes:
            return False
        data = b"".join(protocol.writes)
        try:
            taken = self._raw.send(data) if data else 0
        except (BlockingIOError, InterruptedError):
            taken = 0
        except OSError:  # `flush` says what it means
            return False
        protocol.writes = [data[taken:]] if taken < len(data) else []
        return taken == len(data)

    async def close(self, code: int = 1000, reason: str = "", *, linger: float = 0.0) -> None:
        """Say goodbye.

        With `linger`, what still comes in is thrown away for so long, or until the other side has ended too: closing on
        unread data would reset the connection, and the other side might never read the reason. No other task may read.
        """
        with anyio.CancelScope(shield=True), anyio.move_on_after(1 + linger):
            try:
                if self._protocol.state is State.OPEN:
                    self._protocol.send_close(code, reason)
                    await self.flush()
                with anyio.move_on_after(linger):
                    while linger and await self._chunk():
                        pass
            except (ClosedError, UnreachableError):
                pass
            await self._stream.aclose()

    async def _chunk(self) -> bytes:
        """What the network has, or nothing when it has ended."""
        try:
            if self._raw is None:
                return await self._stream.receive(CHUNK)
            while True:
                await anyio.wait_readable(self._raw)  # most often there is nothing yet: asking first would be in vain
                try:
                    return self._raw.recv(CHUNK)
                except (BlockingIOError, InterruptedError):
                    continue
        except anyio.EndOfStream:
            return b""
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
            raise UnreachableError(f"the connection broke: {error}", about=self._about) from None

    def _take(self, frame: Frame, messages: list[Message]) -> None:
        if frame.opcode is Opcode.TEXT or frame.opcode is Opcode.BINARY:
            self._text = frame.opcode is Opcode.TEXT
        elif frame.opcode is not Opcode.CONT:
            return
        if frame.fin and not self._fragments:
            messages.append((self._text, bytes(frame.data)))
            return
        self._fragments.append(bytes(frame.data))
        if frame.fin:
            messages.append((self._text, b"".join(self._fragments)))
            self._fragments.clear()

    def _farewell(self) -> str:
        goodbye = self._protocol.close_rcvd or self._protocol.close_sent
        if goodbye is None:
            return "the WebSocket broke off"
        return f"the WebSocket was closed ({goodbye.code}{': ' + goodbye.reason if goodbye.reason else ''})"

    @property
    def close_code(self) -> int | None:
        """The code the other side ended with, if it did."""
        return self._protocol.close_rcvd.code if self._protocol.close_rcvd is not None else None


class WebSocket(Socket):
    """A client's end: message by message, with pings, and giving up on a silent server."""

    def __init__(self, stream: ByteStream, protocol: ClientProtocol, url: str) -> None:
        super().__init__(stream, protocol, url)
        self._client = protocol
        self._messages: list[Message] = []

    async def receive(self) -> str | bytes:
        """The next message: text as str, binary as bytes. Raises ClosedError when the other side has ended."""
        while not self._messages:
            self._messages = await self.receive_all()
        is_text, payload = self._messages.pop(0)
        return payload.decode() if is_text else payload

    async def receive_all(self) -> list[Message]:
        """The messages that came with the next chunk, maybe none; asks once whether the other side is still there."""
        with anyio.move_on_after(PING_SECONDS):
            return await self.read()
        self.ping()
        await self.flush()
        with anyio.move_on_after(SILENCE_SECONDS - PING_SECONDS):
            return await self.read()
        raise UnreachableError(f"silent for {SILENCE_SECONDS:g} s", about=self._about)

    async def send(self, message: str | bytes) -> None:
        """Send one message; returns when it is handed to the machine."""
        is_text = isinstance(message, str)
        self.put(message.encode() if isinstance(message, str) else message, is_text=is_text)
        await self.flush()

    async def shake_hands(self, headers: Mapping[str, str]) -> None:
        request = self._client.connect()
        for name, value in headers.items():
            request.headers[name] = value
        self._client.send_request(request)
        await self.flush()
        await self.read_head()
        while self._protocol.state is State.CONNECTING and self._protocol.handshake_exc is None:
            await self.read()  # the body of an answer that is no handshake
        if self._protocol.handshake_exc is not None:
            raise _no_handshake(self._protocol.handshake_exc, self._about)


@asynccontextmanager
async def connect(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    max_message: int = WEBSOCKET_MESSAGE,
    tls: ssl.SSLContext | None = None,
    about: str = "",
) -> AsyncIterator[WebSocket]:
    """An open WebSocket for the length of the block. Errors call it `about`, if its URL holds a secret.

    Raises UnreachableError when nobody answers, RefusedError when a token is missing or wrong, UnavailableError when the
    server answers something else than a WebSocket.
    """
    try:
        where = parse_uri(url)
    except InvalidURI as error:
        raise UsageError(f"not a WebSocket address: {error.msg}", about=about or url) from None
    opened: WebSocket | None = None
    try:
        with anyio.fail_after(FETCH_SECONDS):
            stream: ByteStream = await anyio.connect_tcp(where.host, where.port)
            if where.secure:
                context = tls or ssl.create_default_context()
                stream = await TLSStream.wrap(
                    stream, hostname=where.host, ssl_context=context, standard_compatible=False
                )
            opened = WebSocket(stream, ClientProtocol(where, max_size=max_message), about or url)
            await opened.shake_hands(headers or {})
    except (OSError, TimeoutError) as error:
        raise UnreachableError(f"no answer: {error or type(error).__name__}", about=about or url) from None
    finally:
        if opened is not None and not opened.is_open:
            await opened.close()
    try:
        yield opened
    finally:
        await opened.close()


def _raw_socket(stream: ByteStream) -> socket.socket | None:
    """The socket under a plain stream on trio, which keeps no buffers of its own: reading and writing it directly spares
    a task switch and two system calls a chunk."""
    if not isinstance(stream, SocketStream) or not type(stream).__module__.endswith("_trio"):
        return None
    raw: socket.socket = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - not Django's
    return raw


Decide = Callable[[Request], tuple[HTTPStatus, str] | None]  # a plain HTTP answer, or None to go on


async def accept(stream: ByteStream, decide: Decide, *, max_message: int, seconds: float) -> tuple[Socket, Request]:
    """The server's end of a WebSocket on `stream`, and the request that opened it.

    `decide` may answer the request with a status and a text instead. Raises ClosedError when there is no WebSocket in the
    end, UnreachableError when the other side is too slow or gone.
    """
    protocol = ServerProtocol(max_size=max_message)
    opened = Socket(stream, protocol, "")
    request: Request | None = None
    try:
        with anyio.fail_after(seconds):
            await opened.read_head()
            request = next((each for each in protocol.events_received() if isinstance(each, Request)), None)
            if request is not None:
                answer = decide(request)
                protocol.send_response(protocol.reject(*answer) if answer else protocol.accept(request))
            await opened.flush()
    except TimeoutError:
        raise UnreachableError(f"no request in {seconds:g} s") from None
    if request is None or not opened.is_open:
        raise ClosedError("no WebSocket was opened")
    return opened, request


def _no_handshake(error: Exception, url: str) -> RefusedError | UnavailableError:
    if isinstance(error, InvalidStatus) and error.response.status_code in (401, 403):
        return RefusedError(f"answered {error.response.status_code}", reason=Reason.UNAUTHORISED, about=url)
    return UnavailableError(f"no WebSocket there: {error}", about=url)
