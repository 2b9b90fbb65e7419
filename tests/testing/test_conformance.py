"""The conformance kit: what is good passes every check, and every check finds the fault it is made for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import anyio
import msgspec
import pytest

from syncline.core.errors import ConflictError, NotFoundError
from syncline.core.verdict import ACCEPT, Verdict
from syncline.node.node import running
from syncline.protocols.sdsp.plugins import Capabilities, Delivery, Location, Start
from syncline.protocols.sdsp.storage import open_obstore
from syncline.protocols.shrex.plugin import Shrex
from syncline.protocols.shrex.rules.judge import ShrexJudge
from syncline.protocols.shrex.service.sources import FileSource, HeaderSource, MemorySource, RpcSource
from syncline.protocols.shrex.session.session import Session
from syncline.protocols.shrex.wire.header import Header, encode
from syncline.testing.conformance import (
    HEADER_SOURCE_CHECKS,
    SHREX_PEER_CHECKS,
    STORAGE_CHECKS,
    TRANSPORT_CHECKS,
    Check,
    NotConforming,
    Served,
    Serving,
    ShrexPeer,
    examine,
)
from syncline.testing.headers import chain
from syncline.transports.memory import MemoryHub
from tests.protocols.shrex.nodes import settings_of, until

pytestmark = pytest.mark.anyio
CHAIN = chain(12)


async def failing(checks: Sequence[Check[Any]], opening: Callable[[], AbstractAsyncContextManager[Any]]) -> set[str]:
    return {result.check for result in await examine(checks, opening) if not result.passed}


def named(checks: Sequence[Check[Any]], name: str) -> list[Check[Any]]:
    found = [check for check in checks if check.name == name]
    assert len(found) == 1
    return found


# transports


class Hub(MemoryHub):
    """A transport with one fault."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self._fault = fault

    async def publish(self, topic: str, payload: bytes, *, dedupe_id: str, expect_serial: int | None) -> None:
        if self._fault == "takes everything":
            expect_serial = None
        if self._fault == "forgets what it took":
            dedupe_id = f"{dedupe_id} {id(payload)} {anyio.current_time()}"
            expect_serial = None
        if self._fault == "knows one topic":
            topic = "the only one"
        try:
            await super().publish(topic, payload, dedupe_id=dedupe_id, expect_serial=expect_serial)
        except ConflictError:
            if self._fault != "says nothing of conflicts":
                raise

    async def replay(self, topic: str, *, uid: str, first: int, last: int) -> Sequence[bytes]:
        if self._fault == "knows one topic":
            topic = "the only one"
        found = await super().replay(topic, uid=uid, first=first, last=last)
        return found[::-1] if self._fault == "answers backwards" else found

    @asynccontextmanager
    async def subscribe(self, topic: str, start: Start) -> AsyncIterator[AsyncIterator[Delivery]]:
        if self._fault == "begins at the beginning":
            start = Start(uid=start.uid, after=-1)
        async with super().subscribe(topic, start) as deliveries:
            yield Twice(deliveries) if self._fault == "says everything twice" else deliveries


class Twice:
    """Everything again."""

    def __init__(self, deliveries: AsyncIterator[Delivery]) -> None:
        self._deliveries = deliveries
        self._last: Delivery | None = None

    def __aiter__(self) -> Twice:
        return self

    async def __anext__(self) -> Delivery:
        again, self._last = self._last, None
        if again is None:
            again = self._last = await anext(self._deliveries)
        return again


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("takes everything", "a publish on a serial that is not the newest is a conflict"),
        ("says nothing of conflicts", "of two publishers at once one wins and the other hears of the conflict"),
        ("forgets what it took", "a repeated publish is taken once"),
        ("knows one topic", "topics are kept apart"),
        ("answers backwards", "history answers a range and the newest"),
        ("begins at the beginning", "a late joiner starts at the newest full frame"),
        ("says everything twice", "a closed subscription leaves nothing behind"),
    ],
)
async def test_a_faulty_transport_is_found_by_the_check_for_its_fault(fault: str, found: str) -> None:
    assert await failing(named(TRANSPORT_CHECKS, found), lambda: nullcontext(Hub(fault))) == {found}


async def test_a_transport_without_faults_passes() -> None:
    assert await failing(TRANSPORT_CHECKS, lambda: nullcontext(Hub(""))) == set()


async def test_what_a_transport_does_not_promise_is_not_asked_of_it() -> None:
    class Forgetful(MemoryHub):
        capabilities: Capabilities = msgspec.structs.replace(MemoryHub.capabilities, history=False, optimistic=False)

    results = await examine(TRANSPORT_CHECKS, lambda: nullcontext(Forgetful()))
    assert {(result.applies, result.passed) for result in results} == {(False, True)}


async def test_a_subject_that_does_nothing_fails_in_time_and_one_that_raises_says_how(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("syncline.testing.conformance.check.SECONDS", 0.05)

    async def waits(subject: None) -> None:
        await anyio.sleep_forever()

    async def raises(subject: None) -> None:
        raise KeyError("lost")

    with pytest.raises(NotConforming, match="nothing happened"):
        await Check(waits)(None)
    results = await examine([Check(waits), Check(raises)], nullcontext)
    assert [result.problem.partition(":")[0] for result in results] == ["NotConforming", "KeyError"]


# storages


class Shelf:
    """A storage in memory, with or without a fault."""

    def __init__(self, fault: str) -> None:
        self._fault = fault
        self._kept: dict[str, bytes] = {}

    async def store(self, content: bytes, *, media_type: str = "application/json") -> Location:
        await anyio.lowlevel.checkpoint()
        number = hash(content) if self._fault == "names by content" else len(self._kept)
        if self._fault == "gives a name twice":
            number //= 2
        self._kept[f"shelf:{number}"] = content[:1_000] if self._fault == "cuts" else content
        return Location(f"shelf:{number}", str(number))

    async def load(self, uri: str) -> bytes:
        if uri not in self._kept:
            if self._fault == "gives nothing for what is not there":
                return b""
            raise NotFoundError("not on the shelf")
        return self._kept[uri]

    async def delete(self, uri: str) -> None:
        if self._fault == "deletes once":
            del self._kept[uri]
        if self._fault != "keeps for ever" and uri in self._kept:
            self._kept[uri] = b""
            del self._kept[uri]

    def owns(self, uri: str) -> bool:
        return uri.startswith("shelf:") or self._fault == "owns everything"


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("cuts", "what was stored is loaded"),
        ("keeps for ever", "what was deleted is gone and may be deleted again"),
        ("deletes once", "what was deleted is gone and may be deleted again"),
        ("names by content", "the same bytes stored twice are two objects"),
        ("owns everything", "an address of another storage is not loaded"),
        ("gives nothing for what is not there", "an address of another storage is not loaded"),
        ("gives a name twice", "many may store at once"),
    ],
)
async def test_a_faulty_storage_is_found_by_the_check_for_its_fault(fault: str, found: str) -> None:
    assert await failing(named(STORAGE_CHECKS, found), lambda: nullcontext(Shelf(fault))) == {found}
    assert await failing(STORAGE_CHECKS, lambda: nullcontext(Shelf(""))) == set()


async def test_our_storages_pass(tmp_path: Path) -> None:
    for address in (tmp_path.as_uri(), "memory:"):
        assert await failing(STORAGE_CHECKS, lambda address=address: nullcontext(open_obstore(address))) == set()  # type: ignore[misc]


# header sources


@asynccontextmanager
async def from_memory(headers: Sequence[Header]) -> AsyncIterator[Served]:
    source = MemorySource(*headers)
    yield Served(source, source.add)


def from_file(folder: Path) -> Serving:
    @asynccontextmanager
    async def serving(headers: Sequence[Header]) -> AsyncIterator[Served]:
        file = folder / "headers.jsonl"
        file.write_bytes(b"".join(encode(header) + b"\n" for header in headers))

        def add(header: Header) -> None:
            with file.open("ab") as grown:
                grown.write(encode(header) + b"\n")

        yield Served(FileSource(file), add)

    return serving


class Rpc(BaseHTTPRequestHandler):
    """A node's JSON-RPC, as far as headers go."""

    kept: ClassVar[dict[int, Header]] = {}

    def do_POST(self) -> None:
        asked = msgspec.json.decode(self.rfile.read(int(self.headers["content-length"])))
        found = self.kept.get(asked["params"][0] if asked["params"] else max(self.kept, default=0))
        result = None if found is None else {"header": msgspec.json.decode(encode(found))}
        body = msgspec.json.encode({"jsonrpc": "2.0", "id": asked["id"], "result": result})
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        with suppress(ConnectionError):  # who asked may be gone
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class RpcServer(ThreadingHTTPServer):
    """Twenty ask at once. Of those beyond the usual five, some would wait for seconds and some would be cut off."""

    request_queue_size = 64


@asynccontextmanager
async def from_rpc(headers: Sequence[Header]) -> AsyncIterator[Served]:
    Rpc.kept = {header.height: header for header in headers}
    with RpcServer(("127.0.0.1", 0), Rpc) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        source = RpcSource(f"http://127.0.0.1:{server.server_port}")
        try:
            yield Served(source, lambda header: Rpc.kept.update({header.height: header}))
        finally:
            await source.close()
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("kind", ["memory", "file", "rpc"])
@pytest.mark.parametrize("check", HEADER_SOURCE_CHECKS, ids=repr)
async def test_our_header_sources_keep_their_promises(check: Check[Serving], kind: str, tmp_path: Path) -> None:
    await check({"memory": from_memory, "file": from_file(tmp_path), "rpc": from_rpc}[kind])


class Faulty(MemorySource):
    """A source with one fault."""

    def __init__(self, fault: str, *headers: Header) -> None:
        super().__init__(*headers)
        self._fault, self._begun, self._closed = fault, [*self.headers], False
        self._busy = False

    async def head(self) -> int:
        if self._fault == "does not look again":
            return max(self._begun, default=0)
        return await super().head() - (self._fault == "is one behind") + (self._fault == "counts from 1")

    async def by_height(self, height: int) -> Header | None:
        if self._fault == "gives the nearest":
            return self.headers[min(self.headers, key=lambda each: abs(each - height))] if self.headers else None
        if self._fault == "can be asked once at a time":
            if self._busy:
                raise RuntimeError("busy")
            self._busy = True
            await anyio.lowlevel.checkpoint()
            self._busy = False
        found = await super().by_height(height)
        if found is not None and self._fault == "knows microseconds":
            return msgspec.structs.replace(found, time=found.time.replace(".000000001", ""))
        if found is not None and self._fault == "has heights as floats":
            return msgspec.structs.replace(found, height=int(float(found.height)))
        return found

    async def close(self) -> None:
        if self._fault == "closes once" and self._closed:
            raise RuntimeError("closed")
        self._closed = True


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("counts from 1", "a source without headers has head 0"),
        ("is one behind", "the head is the newest height"),
        ("knows microseconds", "every header comes back as it was"),
        ("has heights as floats", "every header comes back as it was"),
        ("gives the nearest", "what it does not have is none"),
        ("does not look again", "what is added is found"),
        ("can be asked once at a time", "many may ask at once"),
        ("can be asked once at a time", "a cancelled question does no harm"),
        ("closes once", "closing twice is no error"),
    ],
)
async def test_a_faulty_header_source_is_found_by_the_check_for_its_fault(fault: str, found: str) -> None:
    @asynccontextmanager
    async def serving(headers: Sequence[Header]) -> AsyncIterator[Served]:
        source: HeaderSource = Faulty(fault, *headers)
        yield Served(source, source.add)  # type: ignore[attr-defined]

    assert await failing(named(HEADER_SOURCE_CHECKS, found), lambda: nullcontext(serving)) == {found}


# ShrEx peers


@asynccontextmanager
async def shrex_peer(folder: Path, **flags: Any) -> AsyncIterator[ShrexPeer]:
    flags = {"libp2p.listen": ["/ip4/127.0.0.1/tcp/0"], **flags}
    async with running(settings_of(folder, **flags), plugins={"shrex": Shrex(MemorySource(*CHAIN))}) as node:
        await until(lambda: node.services["shrex"].statistics()["synced"])
        host = await node.networks.libp2p()
        yield ShrexPeer(address=host.addresses[0], headers=CHAIN, relays=flags.get("shrex.relay", True))


@pytest.mark.parametrize("check", SHREX_PEER_CHECKS, ids=repr)
async def test_our_node_is_a_good_shrex_peer(check: Check[ShrexPeer], tmp_path: Path) -> None:
    async with shrex_peer(tmp_path / "a") as peer:
        assert check.applies(peer)
        await check(peer)


def believe(*_: object) -> Verdict:
    return ACCEPT


async def test_a_peer_that_believes_everything_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ShrexJudge, "_verify", believe)
    monkeypatch.setattr(Session, "verdict", believe)
    async with shrex_peer(tmp_path / "a") as peer:
        broken = await failing(SHREX_PEER_CHECKS, lambda: nullcontext(peer))
    assert broken == {
        "another hash than the headers is not forwarded",
        "a height to come is not forwarded before its header is known",
    }


async def test_a_peer_that_does_not_forward_is_found_unless_it_says_so(tmp_path: Path) -> None:
    async with shrex_peer(tmp_path / "a", **{"shrex.relay": False}) as peer:
        assert not peer.relays
        assert await failing(SHREX_PEER_CHECKS, lambda: nullcontext(peer)) == set()
        silent = msgspec.structs.replace(peer, relays=True)
        [check] = named(SHREX_PEER_CHECKS, "a true notification is forwarded as it was signed")
        with anyio.move_on_after(2) as waited:
            await check(silent)
        assert waited.cancelled_caught
