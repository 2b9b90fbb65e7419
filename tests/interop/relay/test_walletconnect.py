"""Unmodified clients of npm's @walletconnect/core against our relay: alone, and over a federation."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.relays import MakeRelay, topic_of
from tests.relays.processes import federation

pytestmark = pytest.mark.interop
HERE = Path(__file__).parent
NEWS = topic_of("news")


class Peers:
    """Clients in one Node process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._answers: dict[int, tuple[anyio.Event, list[Any]]] = {}
        self.events: list[dict[str, Any]] = []
        self._news = anyio.Event()

    async def read(self) -> None:
        assert self._process.stdout is not None
        lines = BufferedByteReceiveStream(self._process.stdout)
        while True:
            try:
                line = json.loads(await lines.receive_until(b"\n", 1_000_000))
            except anyio.IncompleteRead:
                return
            if "event" in line:
                self.events.append(line)
                self._news.set()
                self._news = anyio.Event()
            else:
                event, answer = self._answers[line["id"]]
                answer.append(line)
                event.set()

    async def __call__(self, run: str, client: str, **options: Any) -> Any:
        number = len(self._answers)
        event, answer = self._answers[number] = (anyio.Event(), [])
        assert self._process.stdin is not None
        line = json.dumps({"id": number, "run": run, "client": client, **options}) + "\n"
        await self._process.stdin.send(line.encode())
        with anyio.fail_after(30):
            await event.wait()
        if "error" in answer[0]:
            raise RuntimeError(answer[0]["error"])
        return answer[0]["result"]

    async def until(self, holds: Callable[[], bool], seconds: float = 30) -> None:
        with anyio.fail_after(seconds):
            while not holds():
                await self._news.wait()

    def messages(self, client: str) -> list[str]:
        return [each["message"] for each in self.events if each["event"] == "message" and each["client"] == client]

    def count(self, event: str, client: str) -> int:
        return sum(each["event"] == event and each["client"] == client for each in self.events)


@asynccontextmanager
async def running_peers() -> AsyncIterator[Peers]:
    process = await anyio.open_process(["node", str(HERE / "peer.mjs")], stderr=subprocess.DEVNULL)
    peers = Peers(process)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(peers.read)
            yield peers
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            process.kill()
            await process.aclose()


async def test_real_clients_publish_and_receive_live(npm: Path, relay: MakeRelay) -> None:
    async with relay() as server, running_peers() as peers:
        for name in ("alice", "bob"):
            did = await peers("open", name, url=server.url)
            assert did.startswith("did:key:z6Mk")
        await peers("subscribe", "bob", topic=NEWS)
        await peers("publish", "alice", topic=NEWS, message="ключ → 🔑", tag=1_108)
        await peers.until(lambda: peers.messages("bob") == ["ключ → 🔑"])
        await peers("publish", "alice", topic=NEWS, message="again")
        await peers.until(lambda: len(peers.messages("bob")) == 2)
        with anyio.fail_after(5):
            while server.service.hub.deliveries.acked < 2:
                await anyio.sleep(0.01)
    assert peers.messages("bob") == ["ключ → 🔑", "again"]
    assert peers.messages("alice") == []


async def test_a_real_client_gets_what_was_cached_before_it_came_and_while_it_was_away(
    npm: Path, relay: MakeRelay
) -> None:
    async with relay() as server, running_peers() as peers:
        await peers("open", "alice", url=server.url)
        await peers("open", "bob", url=server.url)
        await peers("subscribe", "alice", topic=topic_of("keeps the connection"))
        await peers("publish", "alice", topic=NEWS, message="before")
        await peers("subscribe", "bob", topic=NEWS)
        await peers.until(lambda: peers.messages("bob") == ["before"])
        await peers("leave", "bob")
        await peers.until(lambda: peers.count("relayer_disconnect", "bob") > 0)
        await peers("publish", "alice", topic=NEWS, message="while away")
        await peers("come", "bob")
        await peers.until(lambda: len(peers.messages("bob")) == 2)
        await anyio.sleep(0.2)
    assert peers.messages("bob") == ["before", "while away"]


async def test_a_real_client_that_unsubscribes_hears_no_more(npm: Path, relay: MakeRelay) -> None:
    async with relay() as server, running_peers() as peers:
        for name in ("alice", "bob"):
            await peers("open", name, url=server.url)
        other = topic_of("other")
        await peers("subscribe", "bob", topic=NEWS)
        await peers("subscribe", "bob", topic=other)
        await peers("unsubscribe", "bob", topic=NEWS)
        await peers("publish", "alice", topic=NEWS, message="nobody listens")
        await peers("publish", "alice", topic=other, message="somebody does")
        await peers.until(lambda: len(peers.messages("bob")) == 1)
        assert server.service.hub.directory.count == 1
    assert peers.messages("bob") == ["somebody does"]


async def test_real_clients_reconnect_and_resubscribe_after_the_relay_was_killed(npm: Path, tmp_path: Path) -> None:
    async with federation(tmp_path, [("a", "b")]) as servers, running_peers() as peers:
        server = servers["a"]
        for name in ("alice", "bob"):
            await peers("open", name, url=server.url)
            await peers("subscribe", name, topic=NEWS)
        await peers("publish", "alice", topic=NEWS, message="before")
        await peers.until(lambda: peers.messages("bob") == ["before"])
        await server.kill()
        await peers.until(lambda: peers.count("relayer_disconnect", "bob") > 0)
        await server.start()
        await peers.until(lambda: peers.count("relayer_connect", "bob") >= 2)
        await peers("publish", "alice", topic=NEWS, message="after")
        await peers.until(lambda: "after" in peers.messages("bob"))
        assert await peers("topics", "bob") == [NEWS]
    assert peers.messages("bob") == ["before", "after"]


async def test_a_real_client_fetches_and_hears_errors(npm: Path, relay: MakeRelay) -> None:
    async with relay() as server, running_peers() as peers:
        for name in ("alice", "bob"):
            await peers("open", name, url=server.url)
        await peers("publish", "alice", topic=NEWS, message="in the mailbox")
        found = await peers("request", "bob", method="irn_batchFetchMessages", params={"topics": [NEWS]})
        assert [each["message"] for each in found["messages"]] == ["in the mailbox"]
        params = {"topic": NEWS, "message": "x", "ttl": 604_800, "tag": 1, "prompt": False}
        with pytest.raises(RuntimeError, match="cached for 86400 s"):
            await peers("request", "alice", method="irn_publish", params=params)
        params = {**params, "message": "x" * 100_000, "ttl": 300}
        with pytest.raises(RuntimeError, match="a message may have 98304 bytes"):
            await peers("request", "alice", method="irn_publish", params=params)


LINE = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")]
RING = [*LINE, ("e", "a")]


async def test_real_clients_on_the_ends_of_a_line_of_five_servers_talk(npm: Path, tmp_path: Path) -> None:
    async with federation(tmp_path, LINE) as servers, running_peers() as peers:
        await peers("open", "alice", url=servers["a"].url)
        await peers("open", "bob", url=servers["e"].url)
        for name in ("alice", "bob"):
            await peers("subscribe", name, topic=NEWS)
        await peers("publish", "alice", topic=NEWS, message="ping")
        await peers.until(lambda: peers.messages("bob") == ["ping"])
        await peers("publish", "bob", topic=NEWS, message="pong")
        await peers.until(lambda: peers.messages("alice") == ["pong"])


async def test_real_clients_on_a_ring_still_talk_after_the_server_between_them_is_killed(
    npm: Path, tmp_path: Path
) -> None:
    async with federation(tmp_path, RING) as servers, running_peers() as peers:
        await peers("open", "alice", url=servers["a"].url)
        await peers("open", "bob", url=servers["c"].url)
        for name in ("alice", "bob"):
            await peers("subscribe", name, topic=NEWS)
        await peers("publish", "alice", topic=NEWS, message="by way of b")
        await peers.until(lambda: peers.messages("bob") == ["by way of b"])
        await servers["b"].kill()
        await peers("publish", "alice", topic=NEWS, message="by way of e and d")
        await peers.until(lambda: len(peers.messages("bob")) == 2)
        await peers("publish", "bob", topic=NEWS, message="and back")
        await peers.until(lambda: peers.messages("alice") == ["and back"])
    assert peers.messages("bob") == ["by way of b", "by way of e and d"]
