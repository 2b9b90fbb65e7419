"""The server's side of a WebSocket: whatever way the bytes are cut, the same messages come out."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

import anyio
import pytest
from anyio.abc import SocketStream
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import Protocol, Side, State
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from syncline.core.errors import ClosedError, UnreachableError
from syncline.networks.websocket import Message, Socket, WebSocket, accept

REQUEST = (
    b"GET /path?x=1 HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Feed:
    """A byte stream that hands out given chunks and remembers what was sent."""

    def __init__(self, chunks: list[bytes]) -> None:
        self.chunks = list(chunks)
        self.sent = b""

    async def receive(self, most: int = 0) -> bytes:
        if not self.chunks:
            raise anyio.EndOfStream
        return self.chunks.pop(0)

    async def send(self, data: bytes) -> None:
        self.sent += data

    async def send_eof(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


def masked(opcode: Opcode, payload: bytes, *, fin: bool = True) -> bytes:
    return Frame(opcode, payload, fin).serialize(mask=True)


async def read_all(chunks: list[bytes], limit: int = 1_000) -> tuple[list[Message], Socket, Feed]:
    feed = Feed(chunks)
    socket = Socket(feed, ServerProtocol(max_size=limit, state=State.OPEN), "")  # type: ignore[arg-type]
    found: list[Message] = []
    try:
        while True:
            found += await socket.read()
    except ClosedError:
        return found, socket, feed


messages = st.lists(st.tuples(st.booleans(), st.binary(max_size=300)), max_size=6)


@settings(max_examples=200)
@given(messages, st.data())
def test_messages_come_out_whole_however_they_are_cut(wanted: list[Message], data: st.DataObject) -> None:
    stream = b""
    for is_text, payload in wanted:
        opcode = Opcode.TEXT if is_text else Opcode.BINARY
        if data.draw(st.booleans()):
            middle = data.draw(st.integers(0, len(payload)))
            stream += masked(opcode, payload[:middle], fin=False)
            if data.draw(st.booleans()):
                stream += masked(Opcode.PING, b"?")
            stream += masked(Opcode.CONT, payload[middle:])
        else:
            stream += masked(opcode, payload)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True) if a < b]
    found, _, _ = anyio.run(read_all, chunks)
    assert found == wanted


async def test_every_cut_of_one_stream_gives_the_same() -> None:
    stream = masked(Opcode.TEXT, b"one") + masked(Opcode.PING, b"?") + masked(Opcode.BINARY, b"2" * 130)
    for cut in range(1, len(stream)):
        found, _, feed = await read_all([stream[:cut], stream[cut:]])
        assert found == [(True, b"one"), (False, b"2" * 130)]
        assert feed.sent.startswith(b"\x8a\x01?")


@pytest.mark.parametrize(
    ("stream", "code"),
    [
        (masked(Opcode.TEXT, b"x" * 1_001), 1009),
        (b"\x81\xff" + (2**62).to_bytes(8, "big"), 1009),
        (Frame(Opcode.TEXT, b"unmasked").serialize(mask=False), 1002),
        (b"\x83\x80\0\0\0\0", 1002),
        (b"\xc1\x80\0\0\0\0", 1002),
        (masked(Opcode.CONT, b"of nothing"), 1002),
        (masked(Opcode.TEXT, b"a", fin=False) + masked(Opcode.TEXT, b"b"), 1002),
        (masked(Opcode.TEXT, b"x" * 600, fin=False) + masked(Opcode.CONT, b"x" * 600), 1009),
    ],
    ids=[
        "too long",
        "giant length",
        "unmasked",
        "unknown opcode",
        "reserved bit",
        "continues nothing",
        "message in a message",
        "too long in parts",
    ],
)
async def test_what_breaks_the_protocol_ends_it_with_its_code(stream: bytes, code: int) -> None:
    found, socket, feed = await read_all([stream])
    assert found == []
    assert not socket.is_open
    assert feed.sent[:1] == b"\x88"
    assert int.from_bytes(feed.sent[2:4], "big") == code


async def test_a_close_is_answered_and_later_frames_are_not_read() -> None:
    goodbye = masked(Opcode.CLOSE, (1000).to_bytes(2, "big"))
    found, _, feed = await read_all([masked(Opcode.TEXT, b"last") + goodbye + masked(Opcode.TEXT, b"too late")])
    assert found == [(True, b"last")]
    assert feed.sent[:1] == b"\x88"


@settings(max_examples=100)
@given(st.lists(st.tuples(st.booleans(), st.binary(max_size=70_000)), max_size=4))
def test_what_a_server_puts_a_client_reads(wanted: list[Message]) -> None:
    async def run() -> list[Message]:
        feed = Feed([])
        socket = Socket(feed, ServerProtocol(state=State.OPEN), "")  # type: ignore[arg-type]
        socket.put_all(wanted)
        await socket.flush()
        client = Protocol(Side.CLIENT, state=State.OPEN)
        client.receive_data(feed.sent)
        return [
            (event.opcode is Opcode.TEXT, bytes(event.data))
            for event in client.events_received()
            if isinstance(event, Frame)
        ]

    assert anyio.run(run) == wanted


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[SocketStream, SocketStream]]:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        accepted: list[SocketStream] = []
        async with anyio.create_task_group() as tasks:
            done = anyio.Event()

            async def take(stream: SocketStream) -> None:
                accepted.append(stream)
                done.set()

            tasks.start_soon(listener.serve, take)
            client = await anyio.connect_tcp("127.0.0.1", port)
            await done.wait()
            tasks.cancel_scope.cancel()
        async with client, accepted[0]:
            yield client, accepted[0]


async def test_a_request_opens_a_socket_and_is_handed_over() -> None:
    async with pair() as (client, server):
        await client.send(REQUEST)
        socket, request = await accept(server, lambda asked: None, max_message=100, seconds=5)
        assert (request.path, socket.is_open) == ("/path?x=1", True)
        protocol = ClientProtocol(parse_uri("ws://here/"))
        assert protocol.state is State.CONNECTING
        assert (await client.receive()).startswith(b"HTTP/1.1 101")


async def test_what_comes_with_the_handshake_is_not_lost_however_it_is_cut() -> None:
    """A server may speak at once, and the machine may deliver its first words with the handshake, or half of them."""
    words = [Frame(Opcode.TEXT, b"first"), Frame(Opcode.BINARY, b"s" * 200), Frame(Opcode.TEXT, b"third")]
    stream = b"".join(frame.serialize(mask=False) for frame in words)
    for cut in range(len(stream) + 1):
        protocol = ClientProtocol(parse_uri("ws://here/"))
        feed = Answering(stream, cut)
        client = WebSocket(feed, protocol, "")  # type: ignore[arg-type]
        await client.shake_hands({})
        found: list[Message] = []
        while len(found) < 3:
            found += await client.read()
        assert found == [(True, b"first"), (False, b"s" * 200), (True, b"third")], cut


class Answering(Feed):
    """Answers a handshake, with the first `cut` bytes of what follows in the same chunk."""

    def __init__(self, stream: bytes, cut: int) -> None:
        super().__init__([])
        self._stream, self._cut = stream, cut

    async def send(self, data: bytes) -> None:
        server = ServerProtocol()
        server.receive_data(data)
        [request] = server.events_received()
        assert isinstance(request, Request)
        server.send_response(server.accept(request))
        answer = b"".join(server.data_to_send())
        self.chunks = [answer + self._stream[: self._cut], self._stream[self._cut :]]
        self.chunks = [each for each in self.chunks if each]


async def test_a_client_that_speaks_with_its_request_is_heard() -> None:
    async with pair() as (client, server):
        frame = masked(Opcode.TEXT, b"early")
        await client.send(REQUEST + frame[:5])
        socket, _ = await accept(server, lambda asked: None, max_message=100, seconds=5)
        await client.send(frame[5:])
        found: list[Message] = []
        while not found:
            found += await socket.read()
        assert found == [(True, b"early")]


async def test_a_request_may_be_answered_in_plain_http() -> None:
    async with pair() as (client, server):
        await client.send(REQUEST)
        with pytest.raises(ClosedError):
            await accept(server, lambda asked: (HTTPStatus.NOT_FOUND, "no\n"), max_message=100, seconds=5)
        assert (await client.receive()).startswith(b"HTTP/1.1 404")


@pytest.mark.parametrize("rubbish", [b"\r\n\r\n", b"hello\r\n\r\n", secrets.token_bytes(20_000)])
async def test_rubbish_opens_nothing(rubbish: bytes) -> None:
    async with pair() as (client, server):
        await client.send(rubbish)
        await client.send_eof()
        with pytest.raises((ClosedError, UnreachableError)):
            await accept(server, lambda asked: None, max_message=100, seconds=5)


async def test_a_silent_visitor_is_not_waited_for() -> None:
    async with pair() as (_, server):
        with pytest.raises(UnreachableError, match=r"no request in 0\.05 s"):
            await accept(server, lambda asked: None, max_message=100, seconds=0.05)
