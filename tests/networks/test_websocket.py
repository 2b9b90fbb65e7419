"""The WebSocket client against a real server (the `websockets` library's own, in a thread)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio
import pytest
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

from syncline.core.errors import ClosedError, RefusedError, UnavailableError, UnreachableError, UsageError
from syncline.networks import websocket

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["trio", "asyncio"], scope="module")]
Handler = Callable[[ServerConnection], None]


@contextmanager
def serving(handler: Handler, *, status: int = 0) -> Iterator[str]:
    def answer(connection: ServerConnection, request: Request) -> Response | None:
        return connection.respond(status, "no\n") if status else None

    with serve(handler, "127.0.0.1", 0, process_request=answer) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}/x"
        server.shutdown()
    thread.join()


def echo(connection: ServerConnection) -> None:
    for message in connection:
        connection.send(message)


async def test_messages_go_both_ways_as_they_are() -> None:
    with serving(echo) as url:
        async with websocket.connect(url) as connection:
            for message in ("hello 🛰", b"\0\xff", "", "x" * 300_000):
                await connection.send(message)
                assert await connection.receive() == message


async def test_fragments_make_one_message() -> None:
    def fragments(connection: ServerConnection) -> None:
        connection.send(["one ", "two ", "three"])
        connection.recv()

    with serving(fragments) as url:
        async with websocket.connect(url) as connection:
            assert await connection.receive() == "one two three"
            await connection.send("done")


async def test_a_ping_is_answered() -> None:
    answered = threading.Event()

    def ping(connection: ServerConnection) -> None:
        if connection.ping().wait(5):
            answered.set()
        connection.send("next")
        connection.recv()

    with serving(ping) as url:
        async with websocket.connect(url) as connection:
            assert await connection.receive() == "next"
            await connection.send("bye")
    assert answered.is_set()


async def test_the_end_says_why() -> None:
    def leave(connection: ServerConnection) -> None:
        connection.send("last words")
        connection.close(1001, "going away")

    with serving(leave) as url:
        async with websocket.connect(url) as connection:
            assert await connection.receive() == "last words"
            with pytest.raises(ClosedError, match=r"was closed \(1001: going away\)"):
                await connection.receive()
            with pytest.raises(ClosedError):
                await connection.send("too late")


async def test_a_message_larger_than_allowed_ends_the_connection() -> None:
    with serving(echo) as url:
        async with websocket.connect(url, max_message=1_000) as connection:
            await connection.send("x" * 1_001)
            with pytest.raises(ClosedError, match="1009"):
                await connection.receive()


@pytest.mark.parametrize(("status", "error"), [(401, RefusedError), (403, RefusedError), (404, UnavailableError)])
async def test_a_refused_handshake_says_so(status: int, error: type[Exception]) -> None:
    with serving(echo, status=status) as url:
        with pytest.raises(error, match=str(status)):
            async with websocket.connect(url):
                pass


async def test_nobody_there_is_unreachable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(UnreachableError):
            async with websocket.connect(f"ws://127.0.0.1:{taken.getsockname()[1]}"):
                pass
    with pytest.raises(UsageError):
        async with websocket.connect("http://127.0.0.1"):
            pass


async def test_headers_reach_the_server() -> None:
    def tell(connection: ServerConnection) -> None:
        assert connection.request is not None
        connection.send(connection.request.headers["Authorization"])
        connection.recv()

    with serving(tell) as url:
        async with websocket.connect(url, headers={"Authorization": "Bearer x"}) as connection:
            assert await connection.receive() == "Bearer x"
            await connection.send("bye")


async def test_a_silent_server_is_asked_and_then_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "PING_SECONDS", 0.05)
    monkeypatch.setattr(websocket, "SILENCE_SECONDS", 0.15)
    with serving(echo) as url:  # answers the ping by itself, so the wait goes on
        async with websocket.connect(url) as connection:
            with anyio.move_on_after(0.5) as patience:
                await connection.receive()
            assert patience.cancelled_caught
    stuck = threading.Event()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def mute() -> None:
            """Shakes hands, then says nothing more, not even to a ping."""
            from websockets.server import ServerProtocol

            taken, _ = listener.accept()
            protocol = ServerProtocol()
            protocol.receive_data(taken.recv(65536))
            [request] = protocol.events_received()
            assert isinstance(request, Request)
            protocol.send_response(protocol.accept(request))
            taken.sendall(b"".join(protocol.data_to_send()))
            stuck.wait(5)
            taken.close()

        thread = threading.Thread(target=mute)
        thread.start()
        async with websocket.connect(f"ws://127.0.0.1:{listener.getsockname()[1]}") as connection:
            with pytest.raises(UnreachableError, match=r"silent for 0\.15 s"):
                await connection.receive()
        stuck.set()
        thread.join()
