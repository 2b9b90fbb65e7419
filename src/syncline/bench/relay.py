"""`relay`: messages from publish to delivery through a relay, against the `websockets` library echoing the same JSON.

Fifty clients on loopback, each with a few messages on the way. Our side caches every message durably (one fsync per group)
and answers, delivers and takes the acknowledgement; the peer sends each text back. One load generator drives both.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from syncline.bench.report import case, growth, report

CLIENTS: Final = 50
WINDOW: Final = 32  # messages one client has on the way, where throughput is measured
MESSAGES: Final = 40_000
ROUNDS: Final = 3
BAR: Final = 0.4
TEXT: Final = "AGhlbGxv" * 16  # about what an encrypted ping of a wallet weighs
_CHUNK: Final = 262_144


def run(scale: float = 1.0) -> dict[str, Any]:
    """Measure both, interleaved; the ratio is that of the medians."""
    count = max(CLIENTS * WINDOW * 2, int(MESSAGES * scale))
    ours, theirs, late = [], [], []
    with _server("relay") as relay, _server("echo") as echo:
        for _ in range(ROUNDS):
            theirs.append(_measure(EchoLoad(echo["port"]), count)[0])
            rate, spans = _measure(RelayLoad(relay["port"], relay["url"]), count)
            ours.append(rate)
            late += spans
        grown = _growth(relay, count)
        _, light = _measure(RelayLoad(relay["port"], relay["url"], window=1), max(CLIENTS * 20, count // 10))
    rate, peer = statistics.median(ours), statistics.median(theirs)
    found = case(
        f"publish → deliver, {CLIENTS} clients, {len(TEXT)} B",
        rate,
        peer,
        "websockets echo (asyncio)",
        "messages/s",
        bar=BAR,
        ratio=rate / peer,
    )
    waits = {"window": WINDOW, **_waits("", late), **_waits("one_each_", light)}
    return report("relay", [{**found, **waits}], growth=grown)


def _waits(name: str, spans: list[float]) -> dict[str, float]:
    """Milliseconds from publish to delivery, at full load and with one message of each client on the way."""
    spans = sorted(spans)
    return {f"{name}p50_ms": spans[len(spans) // 2] * 1e3, f"{name}p99_ms": spans[len(spans) * 99 // 100] * 1e3}


def _growth(relay: dict[str, Any], count: int) -> dict[str, Any]:
    """Time at 1 ×, 4 × and 16 × the work."""
    sizes = [max(CLIENTS * WINDOW, count // 16) * factor for factor in (1, 4, 16)]
    seconds = [size / _measure(RelayLoad(relay["port"], relay["url"]), size)[0] for size in sizes]
    return growth("publish → deliver", "messages", sizes, seconds)


class Load:
    """Fifty sockets that keep a window of messages on the way. Frames are made and read by hand, to cost little."""

    def __init__(self, port: int, window: int = WINDOW) -> None:
        self.port = port
        self.window = window
        self.sockets = [self.open(index) for index in range(CLIENTS)]
        self.buffers = [bytearray() for _ in range(CLIENTS)]
        self.outgoing = [bytearray() for _ in range(CLIENTS)]
        self.sent_at: dict[int, float] = {}
        self.spans: list[float] = []
        self.next = 0

    def path(self, index: int) -> str:
        return "/"

    def open(self, index: int) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(
            f"GET {self.path(index)} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += connection.recv(4096)
        assert answer.startswith(b"HTTP/1.1 101"), answer
        return connection

    def topic(self, index: int) -> str:
        return f"{index:064x}"

    def send(self, index: int) -> None:
        """One more message of this client."""
        number, self.next = self.next, self.next + 1
        payload = (
            b'{"id":%d,"jsonrpc":"2.0","method":"irn_publish","params":{"topic":"%b","message":"%012d%b",'
            b'"ttl":300,"prompt":false,"tag":1108}}'
            % (number, self.topic(index).encode(), self.first + number, TEXT.encode())
        )
        self.outgoing[index] += _masked(payload)
        self.sent_at[number] = time.perf_counter()

    first = 0

    def received(self, index: int, payload: bytes) -> int | None:
        """The number of the message that has arrived with this payload, if one has; and whose turn it is."""
        raise NotImplementedError

    def run(self, count: int) -> float:
        """Send `count` messages and wait for all; returns messages a second."""
        ready = selectors.DefaultSelector()
        for index, connection in enumerate(self.sockets):
            connection.setblocking(False)
            ready.register(connection, selectors.EVENT_READ, index)
        start = time.perf_counter()
        for index in range(CLIENTS):
            for _ in range(self.window):
                self.send(index)
        done = 0
        while done < count:
            for index in range(CLIENTS):
                self.flush(index)
            for key, _ in ready.select(timeout=30):
                for payload in self.read(key.data):
                    number = self.received(key.data, payload)
                    if number is not None:
                        self.spans.append(time.perf_counter() - self.sent_at.pop(number))
                        done += 1
                        if self.next < count:
                            self.send(self.sender(key.data))
        rate = count / (time.perf_counter() - start)
        for connection in self.sockets:
            connection.setblocking(True)
            connection.sendall(b"\x88\x80\0\0\0\0")  # a close frame
            connection.close()
        ready.close()
        return rate

    def sender(self, receiver: int) -> int:
        return receiver

    def flush(self, index: int) -> None:
        waiting = self.outgoing[index]
        if waiting:
            try:
                del waiting[: self.sockets[index].send(waiting)]
            except BlockingIOError:
                pass

    def read(self, index: int) -> Iterator[bytes]:
        buffer = self.buffers[index]
        data = self.sockets[index].recv(_CHUNK)
        assert data, "the server has hung up"
        buffer += data
        position = 0
        while len(buffer) - position >= 2:
            length, head = buffer[position + 1], 2
            if length == 126:
                if len(buffer) - position < 4:
                    break
                length, head = int.from_bytes(buffer[position + 2 : position + 4], "big"), 4
            if len(buffer) - position < head + length:
                break
            if buffer[position] == 0x81:
                yield bytes(buffer[position + head : position + head + length])
            position += head + length
        del buffer[:position]


class EchoLoad(Load):
    """The peer sends every text back as it came."""

    def received(self, index: int, payload: bytes) -> int | None:
        return int(payload[6 : payload.index(b",", 6)])


class RelayLoad(Load):
    """Client n publishes to a topic that client n + 1 is subscribed to and acknowledges. Nothing may be lost or repeated."""

    def __init__(self, port: int, url: str, window: int = WINDOW) -> None:
        from syncline.core.keys import NodeKey

        self.url = url
        self.keys = [NodeKey(os.urandom(32)) for _ in range(CLIENTS)]
        self.first = time.time_ns() // 1_000_000 % 10**11 * 10  # other texts than in the run before
        super().__init__(port, window)
        for index in range(CLIENTS):
            request = {"id": 1, "jsonrpc": "2.0", "method": "irn_subscribe"}
            topic = self.topic((index - 1) % CLIENTS)
            self.sockets[index].sendall(_masked(json.dumps({**request, "params": {"topic": topic}}).encode()))
            answer = b""
            while b"result" not in answer:
                answer += self.sockets[index].recv(4096)

    def path(self, index: int) -> str:
        from syncline.protocols.relay.wire import tokens

        now = int(time.time())
        token = tokens.write(self.keys[index], audience=self.url, subject="bench", issued_at=now, seconds=3600)
        return f"/?auth={token}"

    def topic(self, index: int) -> str:
        return f"{self.first:032x}{index:032x}"

    def sender(self, receiver: int) -> int:
        return (receiver - 1) % CLIENTS

    def received(self, index: int, payload: bytes) -> int | None:
        if b'"method":"irn_subscription"' not in payload[:80]:
            assert b'"result":true' in payload, payload
            return None
        number = payload[6 : payload.index(b",", 6)]
        self.outgoing[index] += _masked(b'{"id":%b,"jsonrpc":"2.0","result":true}' % number)
        start = payload.index(b'"message":"') + 11
        return int(payload[start : start + 12]) - self.first  # sent_at.pop fails on a repeat


def _masked(payload: bytes) -> bytes:
    """A client's text frame under the mask of zeros, which leaves the payload as it is."""
    length = len(payload)
    head = bytes((0x81, 0x80 | length)) if length < 126 else bytes((0x81, 0xFE)) + length.to_bytes(2, "big")
    return head + b"\0\0\0\0" + payload


def _measure(load: Load, count: int) -> tuple[float, list[float]]:
    return load.run(count), load.spans


@contextmanager
def _server(kind: str) -> Iterator[dict[str, Any]]:
    """One of the servers below in a process of its own; yields the line it prints when it is ready."""
    with tempfile.TemporaryDirectory(prefix="syncline-bench-") as folder:
        process = subprocess.Popen([sys.executable, "-m", __name__, kind, folder], stdout=subprocess.PIPE)
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.terminate()
            process.wait()


def _serve_echo(folder: Path) -> None:
    import asyncio

    from websockets.asyncio.server import ServerConnection, serve

    async def echo(connection: ServerConnection) -> None:
        async for message in connection:
            await connection.send(message)

    async def main() -> None:
        async with serve(echo, "127.0.0.1", 0, compression=None) as server:
            _say({"port": next(iter(server.sockets)).getsockname()[1]})
            await server.serve_forever()

    asyncio.run(main())


def _serve_relay(folder: Path) -> None:
    import logging

    import anyio
    import structlog

    from syncline.core.keys import NodeKey
    from syncline.core.settings import load
    from syncline.node.node import running
    from syncline.node.tuning import tune
    from syncline.protocols.relay.plugin import Relay
    from syncline.protocols.relay.service import RelayService
    from syncline.protocols.relay.settings import RelaySettings

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    file = folder / "syncline.toml"
    file.write_text("")
    NodeKey.generate().save(folder / "node.key")
    flags = {
        "relay.port": 0,
        "relay.requests_per_second": 1e9,  # the rate limits are off, the quotas are not
        "relay.request_burst": 10**9,
        "relay.topic_messages": 10**6,
    }
    settings = load(file=file, environment={}, flags=flags, sections={"relay": RelaySettings})
    tune()

    async def main() -> None:
        async with running(settings, plugins={"relay": Relay()}) as node:
            service = node.service("relay")
            assert isinstance(service, RelayService)
            _say({"port": service.address[1], "url": service.url})
            await anyio.sleep_forever()

    anyio.run(main, backend="trio")


def _say(ready: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    servers: dict[str, Callable[[Path], None]] = {"echo": _serve_echo, "relay": _serve_relay}
    servers[sys.argv[1]](Path(sys.argv[2]))
