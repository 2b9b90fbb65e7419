"""Starts whole nodes, and honest peers that use all five protocols at once and know what they sent and what was
acknowledged to them.
"""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from syncline.core.clock import SystemClock
from syncline.core.errors import SynclineError
from syncline.core.keys import NodeKey
from syncline.networks.libp2p.host import running_host
from syncline.protocols.relay.client import RelayClient
from syncline.protocols.sds.catalogue import standard
from syncline.protocols.sds.rules import signed_publish, topic_of
from syncline.protocols.sds.wire import encode, record_id
from syncline.protocols.shrex.wire import notification as shrex
from syncline.protocols.svs.service import join
from syncline.testing.headers import chain
from tests.campaigns.whole_node import GROUP, HEIGHTS

ROOT = Path(__file__).resolve().parents[2]
OMM = topic_of("mainnet", "OMM")


class WholeNode:
    """A node in a process. `reports` are the lines it prints every second."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reports: list[dict[str, Any]] = []
        self.ready: dict[str, Any] = {}
        self.silences = 0
        self._process: Process | None = None

    async def start(self) -> None:
        command = [sys.executable, "-m", "tests.campaigns.whole_node", str(self.folder)]
        with (self.folder.parent / f"{self.folder.name}.log").open("ab") as log:
            self._process = await anyio.open_process(command, cwd=ROOT, stderr=log)
        assert self._process.stdout is not None
        self._lines = BufferedByteReceiveStream(self._process.stdout)
        with anyio.fail_after(60):
            self.ready = await self._line()

    async def _line(self) -> dict[str, Any]:
        while True:
            line = await self._lines.receive_until(b"\n", 1_000_000)
            if line.startswith(b"{"):
                found: dict[str, Any] = json.loads(line)
                return found

    async def listen(self) -> None:
        """Take its reports in until it dies."""
        try:
            while True:
                self.reports.append(await self._line())
        except (anyio.IncompleteRead, anyio.EndOfStream, anyio.ClosedResourceError):
            return

    async def watch(self, seconds: float = 20.0) -> None:
        """Whenever it has said nothing for so long, have it write down in its log what it waits for."""
        while True:
            known = len(self.reports)
            await anyio.sleep(seconds)
            if len(self.reports) == known and self._process is not None:
                self.silences += 1
                self._process.send_signal(signal.SIGUSR1)

    async def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            await self._process.wait()
            self._process = None

    @property
    def journal(self) -> Path:
        return self.folder / "data" / "journal.db"


@asynccontextmanager
async def whole_node(folder: Path) -> AsyncIterator[WholeNode]:
    node = WholeNode(folder)
    await node.start()
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(node.listen)
            tasks.start_soon(node.watch)
            yield node
            await node.kill()
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await node.kill()


class Crowd:
    """Honest peers. `sent` counts by protocol; `acknowledged` holds what the node said it has on disk; `waits` are the
    seconds from sending to that answer."""

    def __init__(
        self, ready: dict[str, Any], *, tag: str = "", pause: float = 0.0, settle: float = 2.5, ttl: int = 3_600
    ) -> None:
        self.ready, self.tag, self.pause, self.settle = ready, tag, pause, settle
        self.ttl = ttl  # seconds for which the relay keeps what nobody fetches
        self.sent: Counter[str] = Counter()
        self.acknowledged: dict[str, list[bytes]] = {"relay": [], "sdsp": []}
        self.sds_ids: list[bytes] = []
        self.waits: dict[str, list[float]] = {"relay": [], "sdsp": []}
        self.errors: Counter[str] = Counter()
        self.stopping = False
        self.done = False  # nobody needs us any more; until then what we published can be fetched

    async def run(self) -> None:
        """Until `stopping`, or the node is gone."""
        async with anyio.create_task_group() as tasks:
            for work in (self.relay, self.sds_and_shrex, self.sdsp, self.svs):
                tasks.start_soon(self._careful, work)

    async def _careful(self, work: Callable[[], Any]) -> None:
        try:
            await work()
        except (SynclineError, httpx.HTTPError, OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            self.errors[type(error).__name__] += 1

    async def relay(self) -> None:
        async with RelayClient(self.ready["relay"]) as client:
            while not self.stopping:
                page = self.sent["relay"] // 5_000  # nobody reads, and a topic keeps 10,000
                topic = hashlib.sha256(f"campaign{self.tag}{page}".encode()).hexdigest()
                text = f"{self.tag} message {self.sent['relay']}"
                self.sent["relay"] += 1
                begun = time.perf_counter()
                await client.publish(topic, text, ttl=self.ttl, timeout=20.0)
                self.waits["relay"].append(time.perf_counter() - begun)
                digest = hashlib.sha256(text.encode()).digest()
                self.acknowledged["relay"].append(bytes.fromhex(topic) + digest)
                await anyio.sleep(self.pause)

    async def sds_and_shrex(self) -> None:
        """One libp2p host for both, as real peers have."""
        key, clock = NodeKey.generate(), SystemClock()
        writer, headers = standard("OMM").writer, chain(HEIGHTS)
        async with running_host(key) as host:
            await host.connect(self.ready["libp2p"][0])
            with anyio.fail_after(30):
                await host.gossip.wait_for_neighbours(OMM)
                await host.flood.wait_for_neighbours(shrex.TOPIC)
            await anyio.sleep(self.settle)  # a heartbeat, and the headers
            while not self.stopping:
                number = self.sent["sds"]
                payload = writer.encode({"NORAD_CAT_ID": number, "OBJECT_NAME": f"{self.tag} {number}"})
                message = signed_publish(
                    key, schema="OMM", payload=payload, message_id=f"{self.tag}-{number}", now=clock.now()
                )
                await host.gossip.publish(OMM, encode(message))
                self.sds_ids.append(record_id(message))
                self.sent["sds"] += 1
                if number % 4 == 0:
                    header = headers[self.sent["shrex"] % len(headers)]
                    note = shrex.Notification(header.height, header.data_hash)
                    await host.flood.publish(shrex.TOPIC, shrex.encode(note))
                    self.sent["shrex"] += 1
                await anyio.sleep(self.pause or 0.001)

    async def sdsp(self) -> None:
        async with httpx.AsyncClient(base_url=self.ready["api"], timeout=20.0) as client:
            uid = f"object-{self.tag}"
            while not self.stopping:
                number = self.sent["sdsp"]
                begun = time.perf_counter()
                body = {"uid": uid, "data": {"n": number, "log": [number % 7] * 20}}
                self.sent["sdsp"] += 1
                answer = await client.post("/api/v1/publish/sdsp", json=body)
                answer.raise_for_status()
                self.waits["sdsp"].append(time.perf_counter() - begun)
                serial = int(answer.json()["serial"])
                self.acknowledged["sdsp"].append(uid.encode() + b"\0" + serial.to_bytes(8, "big"))
                await anyio.sleep(self.pause)

    async def svs(self) -> None:
        async with join(GROUP, node=f"/peer/{self.tag or 'x'}", forwarder=self.ready["ndn"]) as group:
            while not self.stopping:
                await group.publish(f"/news/{self.sent['svs']}", b"x" * 200)
                self.sent["svs"] += 1
                await anyio.sleep(max(self.pause, 0.002))
            while not self.done:
                await anyio.sleep(0.1)


async def until(condition: Callable[[], bool], seconds: float) -> bool:
    with anyio.move_on_after(seconds):
        while not condition():
            await anyio.sleep(0.05)
        return True
    return False


def kept(node: WholeNode, protocol: str, verdict: str = "accept") -> int:
    """How many records of a protocol the node says it has, by its newest report."""
    counts = node.reports[-1]["verdicts"] if node.reports else {}
    return sum(count for name, count in counts.items() if name.startswith(f"{protocol}/{verdict}/"))
