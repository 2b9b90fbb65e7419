"""What `gossip` and `flood` share: one publisher and one subscriber, each a process of its own, ours and js-libp2p's.

The ratio is CPU per message, publisher and subscriber together, from the first publish to the last receipt; throughput is
printed beside. Both sides sign and verify every message; a run that loses one fails. Repeats take turns, so that noise
meets both. Run as a module, this is one of our workers.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from typing import IO, Any, Final, Literal

import anyio
import anyio.to_thread

from syncline.bench import report
from syncline.bench.peers import INTEROP
from syncline.bench.report import case
from syncline.core.errors import MissingError, SynclineError
from syncline.core.keys import NodeKey
from syncline.core.verdict import ACCEPT
from syncline.networks.libp2p.host import running_host

TOPIC: Final = "/bench/1"
ROUNDS: Final = 5
WARM_UP: Final = 2_000  # messages, so that the peer's compiler has seen the code
PEER: Final = "js-libp2p 3.3.11"
Router = Literal["gossip", "flood"]
Side = Literal["ours", "js"]


def compare(router: Router, name: str, size: int, count: int, bar: float) -> dict[str, Any]:
    """One case: so many messages of a size, ours against js-libp2p."""
    runs: dict[Side, list[dict[str, float]]] = {"ours": [], "js": []}
    for _ in range(ROUNDS):
        for side in ("ours", "js"):
            runs[side].append(measure(side, router, size, count))
    ours, peer = (statistics.median(run["cpu_us"] for run in runs[side]) for side in ("ours", "js"))
    found = case(name, ours, peer, PEER, "µs CPU per message", bar=bar, ratio=peer / ours)
    rates = {side: round(statistics.median(run["rate"] for run in runs[side])) for side in ("ours", "js")}
    return {**found, "messages": count, "rounds": ROUNDS, "messages_per_second": rates, "lost": 0}


def growth(router: Router, size: int, count: int) -> dict[str, Any]:
    """How our CPU time grows with the number of messages."""
    sizes = [count // 16, count // 4, count]
    seconds = [measure("ours", router, size, number)["cpu_us"] * number / 1e6 for number in sizes]
    return report.growth("CPU of both sides", "messages", sizes, seconds)


def measure(side: Side, router: Router, size: int, count: int) -> dict[str, float]:
    """One run of a publisher and a subscriber."""
    with _worker(side, "subscribe", router, size, count) as subscriber:
        address = _told(subscriber)["address"]
        with _worker(side, "publish", router, size, count, address) as publisher:
            _told(publisher)
            for number in (WARM_UP, count):
                begun = time.perf_counter()
                _tell("start", subscriber, publisher)
                if _told(subscriber)["received"] != number:
                    raise SynclineError("messages were lost")
                seconds = time.perf_counter() - begun
                _tell("stop", subscriber, publisher)
                answers = _told(subscriber), _told(publisher)
            if answers[0]["received"] != WARM_UP + count:
                raise SynclineError("messages came twice")
    return {"cpu_us": sum(answer["cpu"] for answer in answers) / count, "rate": count / seconds}


class _worker:  # noqa: N801
    """A process that is ended with the block."""

    def __init__(self, side: Side, role: str, router: Router, size: int, count: int, *more: str) -> None:
        arguments = [role, router, str(size), str(WARM_UP), str(count), *more]
        if side == "ours":
            self._command = [sys.executable, "-m", "syncline.bench.pubsub", *arguments]
        else:
            folder = INTEROP / "libp2p"
            if shutil.which("node") is None or not (INTEROP / "node_modules" / "libp2p").is_dir():
                raise MissingError(
                    "this benchmark needs Node and the npm packages of the interop peers",
                    hint="run it from a checkout, after `python tools/setup.py --tests`",
                )
            self._command = ["node", "--import", str(folder / "polyfill.mjs"), str(folder / "bench.mjs"), *arguments]

    def __enter__(self) -> subprocess.Popen[str]:
        environment = {**os.environ, "NODE_ENV": "production"}
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        return self._process

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.communicate()


def _tell(word: str, *processes: subprocess.Popen[str]) -> None:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(word + "\n")
        process.stdin.flush()


def _told(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SynclineError("a worker ended early")
    found: dict[str, Any] = json.loads(line)
    return found


# our workers


async def subscribe(router: Router, counts: list[int]) -> None:
    async with running_host(NodeKey.generate()) as host:
        pubsub = host.gossip if router == "gossip" else host.flood
        async with pubsub.subscribe(TOPIC) as subscription:
            _say({"address": host.addresses[0]})
            received = wanted = 0
            for count in counts:
                await _word("start")
                begun, wanted = _cpu(), wanted + count
                while received < wanted:
                    for delivery in await subscription.receive():
                        delivery.decide(ACCEPT)
                        received += 1
                _say({"received": count})
                await _word("stop")
                _say({"cpu": _cpu() - begun, "received": received})


async def publish(router: Router, size: int, counts: list[int], address: str) -> None:
    data = bytes(index * 7 % 251 for index in range(size))
    async with running_host(NodeKey.generate()) as host:
        await host.connect(address)
        pubsub = host.gossip if router == "gossip" else host.flood
        await pubsub.wait_for_neighbours(TOPIC)
        await anyio.sleep(1.5)  # a heartbeat, so that the mesh stands
        _say({"ready": True})
        for count in counts:
            await _word("start")
            begun = _cpu()
            for _ in range(count):
                await pubsub.publish(TOPIC, data)
            await _word("stop")
            _say({"cpu": _cpu() - begun, "received": 0})


def _cpu() -> float:
    """Microseconds of CPU this process has used."""
    return time.process_time() * 1e6


def _say(document: dict[str, Any]) -> None:
    out: IO[str] = sys.stdout
    out.write(json.dumps(document) + "\n")
    out.flush()


async def _word(expected: str) -> None:
    if (await anyio.to_thread.run_sync(sys.stdin.readline)).strip() != expected:
        sys.exit(1)


def main() -> None:
    role, name, size, warm_up, count, *rest = sys.argv[1:]
    counts = [int(warm_up), int(count)]
    router: Router = "gossip" if name == "gossip" else "flood"
    if role == "subscribe":
        anyio.run(subscribe, router, counts, backend="trio")
    else:
        anyio.run(publish, router, int(size), counts, rest[0], backend="trio")


if __name__ == "__main__":
    main()
