"""A node with all five protocols in a process of its own: `python -m tests.campaigns.whole_node FOLDER`.

Prints one line of JSON when it is ready, then one a second: records by protocol and verdict, memory, and how long it took
from receiving a batch to its being on disk. Made to be loaded, attacked and killed.
SIGUSR1 has it write down what every task waits for.
"""

from __future__ import annotations

import json
import signal
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import structlog
import trio

from syncline.core.keys import NodeKey
from syncline.core.ports import Receipt, StateChange
from syncline.core.record import Incoming
from syncline.core.settings import load
from syncline.node import api, serve
from syncline.node.node import running
from syncline.node.plugins import protocol_plugins, protocol_sections
from syncline.node.receive import Receiver
from syncline.node.tuning import tune
from syncline.protocols.relay.service import RelayService
from syncline.protocols.shrex.plugin import Shrex
from syncline.protocols.shrex.service.sources import MemorySource
from syncline.protocols.svs.service.node import SvsService
from syncline.testing.headers import chain

structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
PROTOCOLS = ("relay", "sds", "sdsp", "shrex", "svs")
GROUP = "/campaign"
HEIGHTS = 200
FLAGS = {
    "api.port": 0, "libp2p.listen": ["/ip4/127.0.0.1/tcp/0"], "relay.port": 0, "relay.drain_seconds": 1.0,
    "svs.tcp_port": 0, "svs.udp_port": -1, "svs.websocket_port": -1, "svs.groups": [GROUP], "sds.schemas": ["OMM"],
    "sds.publish_rate": 0.0, "sds.sync_seconds": 0.0, "shrex.poll_seconds": 0.2,
    "shrex.trusted_height": 1, "shrex.trusted_hash": chain(1)[0].hash.hex(),
    "segments.seconds": 2.0,
}  # fmt: skip


class Timed(Receiver):
    """Notes how long every batch took to be on disk."""

    waits: list[float]

    async def receive(self, incoming: Sequence[Incoming], state: Sequence[StateChange] = ()) -> list[Receipt]:
        begun = time.perf_counter()
        receipts = await super().receive(incoming, state)
        self.waits.append(time.perf_counter() - begun)
        return receipts


def memory_kib() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4


async def main(folder: Path) -> None:
    if not (folder / "node.key").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "syncline.toml").write_text("")
        NodeKey.generate().save(folder / "node.key")
    sections = protocol_sections()
    settings = load(file=folder / "syncline.toml", environment={}, flags=FLAGS, sections=sections)
    plugins = {**protocol_plugins(list(PROTOCOLS)), "shrex": Shrex(MemorySource(*chain(HEIGHTS)))}
    listener = serve.bind(settings.api)
    url = serve.url_of(listener)
    Timed.waits = []
    async with running(settings, plugins=plugins) as node, anyio.create_task_group() as tasks:
        node.receiver.__class__ = Timed
        tasks.start_soon(explain)
        await tasks.start(serve.serve, api.build(node), listener)
        relay, svs = node.service("relay"), node.service("svs")
        assert isinstance(relay, RelayService)
        assert isinstance(svs, SvsService)
        assert svs.hub is not None
        say(
            api=url, relay=relay.url, ndn=svs.hub.addresses["tcp"],
            libp2p=list(node.networks.addresses()), node=node.key.peer_id,
        )  # fmt: skip
        while True:
            await anyio.sleep(1.0)
            waits, Timed.waits = sorted(Timed.waits), []
            counts = {"/".join(key): count for key, count in node.receiver.verdicts.items()}
            cuts = statistics.quantiles(waits, n=100) if len(waits) > 1 else [0.0] * 99
            libp2p = {
                name: value for name, value in node.networks.statistics().items() if "cut" in name or "ban" in name
            }
            say(
                verdicts=counts, memory_kib=memory_kib(), batches=len(waits), p50_ms=round(cuts[49] * 1e3, 2),
                p99_ms=round(cuts[98] * 1e3, 2), libp2p=libp2p, newest=node.journal.newest(),
            )  # fmt: skip


async def explain() -> None:
    """On SIGUSR1, what every task waits for, and the clocks: one that jumped leaves sleepers asleep."""
    with anyio.open_signal_receiver(signal.SIGUSR1) as signals:
        async for _ in signals:
            root = trio.lowlevel.current_root_task()
            assert root is not None
            lines = [f"tasks at {trio.current_time():.3f} (perf_counter {time.perf_counter():.3f})", *_tasks(root, 0)]
            sys.stderr.write("\n".join(lines) + "\n")
            sys.stderr.flush()


def _tasks(task: trio.lowlevel.Task, depth: int) -> Iterator[str]:
    frames = [
        f"{Path(frame.f_code.co_filename).name}:{line} {frame.f_code.co_name}"
        for frame, line in task.iter_await_frames()
    ]
    yield f"{'  ' * depth}{task.name}: {' > '.join(frames[-6:])}"
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from _tasks(child, depth + 1)


def say(**document: Any) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    tune()
    anyio.run(main, Path(sys.argv[1]), backend="trio")
