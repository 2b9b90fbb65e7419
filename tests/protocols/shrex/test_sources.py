"""Header sources: a growing file, a node's JSON-RPC, memory, and plug-ins by the scheme of their address."""

from __future__ import annotations

import gzip
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
from syncline.core.verdict import Reason
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


async def test_any_height_of_a_long_file_is_found_whatever_is_asked_in_between(tmp_path: Path) -> None:
    made = chain(300, first=1_000)
    file = tmp_path / "headers.jsonl"
    lines = [headers.encode(each) + (b"\n\n\n" if each.height % 7 == 0 else b"\n") for each in made]
    file.write_bytes(b"".join(lines))
    source = FileSource(file)
    assert await source.head() == 1_299
    assert [await source.by_height(each.height) for each in made] == made
    assert [await source.by_height(each.height) for each in reversed(made)] == made[::-1]
    assert [await source.by_height(height) for height in (1, 999, 1_300, 2**63)] == [None] * 4
    assert await source.by_height(1_000) == made[0]


async def test_a_file_with_gaps_gives_what_it_has(tmp_path: Path) -> None:
    made = chain(40)
    kept = [each for each in made if each.height % 3 == 1]
    file = tmp_path / "headers.jsonl"
    file.write_bytes(b"".join(headers.encode(each) + b"\n" for each in kept))
    source = FileSource(file)
    found = [await source.by_height(each.height) for each in made]
    assert [each for each in found if each is not None] == kept


async def test_a_file_that_is_replaced_or_cut_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "headers.jsonl"
    file.write_bytes(b"".join(headers.encode(each) + b"\n" for each in CHAIN))
    source = FileSource(file)
    assert [await source.by_height(height) for height in (1, 2, 3)] == CHAIN[:3]
    other = chain(4, seed="another", chain_id="a-chain-with-a-longer-name")
    file.write_bytes(b"".join(headers.encode(each) + b"\n" for each in other))
    assert await source.head() == 4
    assert await source.by_height(4) == other[3]
    assert await source.by_height(5) is None
    file.write_bytes(b"")
    assert (await source.head(), await source.by_height(1)) == (0, None)


async def test_a_line_that_is_too_long_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "headers.jsonl"
    file.write_bytes(headers.encode(CHAIN[0]) + b"\n" + b"x" * (3 * SHREX_HEADER_BYTES))
    source = FileSource(file)
    for answer in (source.head, lambda: source.by_height(2)):
        with pytest.raises(DecodeError) as refused:
            await answer()
        assert refused.value.reason is Reason.OVERSIZE
    assert await source.by_height(1) == CHAIN[0]


# JSON-RPC


class Rpc(BaseHTTPRequestHandler):
    """Answers like a node, or as told."""

    answers: ClassVar[dict[str, Any]] = {}
    asked: ClassVar[list[dict[str, Any]]] = []
    encoding: ClassVar[str] = "identity"

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
        self.send_header("content-encoding", self.encoding)
        self.end_headers()
        with suppress(ConnectionError):  # who asked may have heard enough
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def rpc() -> Iterator[str]:
    Rpc.answers, Rpc.asked, Rpc.encoding = {}, [], "identity"
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
        (b"[" * 100_000, DecodeError),
        (b'{"result": ' + b'{"header": ' * 50_000, DecodeError),
        ({"result": [1]}, DecodeError),
        ({"result": {"header": {**document(3), "height": 2**70}}}, DecodeError),
        ({"result": {"header": document(3), "commit": {"block_id": {"hash": "00" * 32}}}}, DecodeError),
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


async def test_an_answer_is_not_unpacked_before_it_is_measured(rpc: str) -> None:
    Rpc.answers = {"header.GetByHeight": gzip.compress(bytes(4 * SHREX_HEADER_BYTES))}
    Rpc.encoding = "gzip"
    source = RpcSource(rpc)
    with pytest.raises(DecodeError, match="not answer in JSON"):
        await source.by_height(3)
    await source.close()


async def test_a_password_in_the_address_is_told_to_nobody(rpc: str) -> None:
    Rpc.answers = {"header.LocalHead": {"status": 500}}
    source = RpcSource(rpc.replace("//", "//user:secret@") + "/path?token=secret")
    with pytest.raises(UnavailableError) as refused:
        await source.head()
    assert str(refused.value) == f"the header source answers 500 [{rpc}]"
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
    for address in ("", "headers.jsonl", "ftp://x", "http://", "http:x", "http://[::1", "https://127.0.0.1:65536/"):
        with pytest.raises(SettingsError):
            open_source(address, "", tmp_path)


async def test_memory_keeps_the_newest_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.protocols.shrex.service.sources.SHREX_HEADERS", 3)
    source = MemorySource(*CHAIN)
    assert sorted(source.headers) == [3, 4, 5]
    source.broken = True
    with pytest.raises(UnavailableError):
        await source.head()
