"""Header sources: a growing file, a node's JSON-RPC, memory, and plug-ins by the scheme of their address."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from syncline.core.errors import DecodeError, SettingsError, UnavailableError, UnreachableError
from syncline.core.limits import SHREX_HEADER_BYTES
from syncline.protocols.shrex.service.sources import (
    FileSource,
    HeaderSource,
    MemorySource,
    RpcSource,
    open_source,
)
from syncline.protocols.shrex.wire import header as headers
from syncline.testing.headers import chain

pytestmark = pytest.mark.anyio
CHAIN = chain(5)


def document(height: int) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(headers.encode(CHAIN[height - 1]))
    return found


# files


async def test_a_file_is_read_as_it_grows_and_an_unfinished_line_waits(tmp_path: Path) -> None:
    file = tmp_path / "headers.jsonl"
    file.write_bytes(headers.encode(CHAIN[0]) + b"\n\n" + headers.encode(CHAIN[1]) + b"\n")
    source = FileSource(file)
    assert await source.head() == 2
    assert await source.by_height(1) == CHAIN[0]
    assert await source.by_height(3) is None
    third = headers.encode(CHAIN[2]) + b"\n"
    with file.open("ab") as grown:
        grown.write(third[:50])
    assert await source.head() == 2
    with file.open("ab") as grown:
        grown.write(third[50:])
    assert await source.head() == 3
    assert await source.by_height(3) == CHAIN[2]


async def test_a_missing_file_is_unavailable_and_a_bad_line_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError):
        await FileSource(tmp_path / "absent").head()
    file = tmp_path / "headers.jsonl"
    file.write_bytes(headers.encode(CHAIN[0]) + b"\nnot a header\n")
    source = FileSource(file)
    with pytest.raises(DecodeError):
        await source.head()
    assert await source.by_height(1) == CHAIN[0]


# JSON-RPC


class Rpc(BaseHTTPRequestHandler):
    """Answers like a node, or as told."""

    answers: ClassVar[dict[str, Any]] = {}
    asked: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        request = msgspec.json.decode(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append({**request, "authorization": self.headers.get("authorization")})
        answer = self.answers.get(request["method"])
        if answer is None:
            height = request["params"][0] if request["params"] else 5
            result = {"header": document(height), "dah": {"row_roots": []}} if height <= 5 else None
            answer = {"jsonrpc": "2.0", "id": request["id"], "result": result}
        status = answer.pop("status", 200) if isinstance(answer, dict) else 200
        body = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        with suppress(ConnectionError):  # who asked may have heard enough
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def rpc() -> Iterator[str]:
    Rpc.answers, Rpc.asked = {}, []
    server = HTTPServer(("127.0.0.1", 0), Rpc)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


async def test_a_node_is_asked_for_its_head_and_for_headers(rpc: str) -> None:
    source = RpcSource(rpc, "secret")
    assert await source.head() == 5
    assert await source.by_height(3) == CHAIN[2]
    assert await source.by_height(6) is None
    assert [(each["method"], each["params"]) for each in Rpc.asked] == [
        ("header.LocalHead", []),
        ("header.GetByHeight", [3]),
        ("header.GetByHeight", [6]),
    ]
    assert {each["authorization"] for each in Rpc.asked} == {"Bearer secret"}
    await source.close()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"error": {"code": -1, "message": "syncing"}}, UnavailableError),
        ({"status": 500}, UnavailableError),
        ({"status": 302}, UnavailableError),
        (b"<html>", DecodeError),
        (b"[1]", DecodeError),
        ({"result": {"header": {}}}, DecodeError),
        ({"result": {"header": document(4)}}, DecodeError),
        (b'"' + b"x" * (SHREX_HEADER_BYTES + 1) + b'"', DecodeError),
    ],
)
async def test_a_node_that_fails_or_answers_nonsense_is_our_trouble(
    rpc: str, answer: Any, error: type[Exception]
) -> None:
    Rpc.answers = {"header.GetByHeight": answer}
    source = RpcSource(rpc)
    with pytest.raises(error):
        await source.by_height(3)
    await source.close()


async def test_a_node_that_is_not_there_is_unreachable() -> None:
    source = RpcSource("http://127.0.0.1:9")
    with pytest.raises(UnreachableError):
        await source.head()
    await source.close()


# by address


async def test_a_source_is_found_by_the_scheme_of_its_address(tmp_path: Path) -> None:
    (tmp_path / "h.jsonl").write_bytes(headers.encode(CHAIN[0]) + b"\n")
    source: HeaderSource = open_source("file:h.jsonl", "", tmp_path)
    assert await source.head() == 1
    await source.close()
    assert isinstance(open_source("memory:", "", tmp_path), MemorySource)
    remote = open_source("https://127.0.0.1:1/", "", tmp_path)
    assert isinstance(remote, RpcSource)
    await remote.close()
    for address in ("", "headers.jsonl", "ftp://x"):
        with pytest.raises(SettingsError):
            open_source(address, "", tmp_path)


async def test_memory_keeps_the_newest_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.protocols.shrex.service.sources.SHREX_HEADERS", 3)
    source = MemorySource(*CHAIN)
    assert sorted(source.headers) == [3, 4, 5]
    source.broken = True
    with pytest.raises(UnavailableError):
        await source.head()
