"""`svs`: publications from `publish` to the subscriber's callback, two processes over TCP, against NDNts in the same shape.

100 bytes, 64 on the way, a topic subscription; everything is signed and verified with DigestSha256. The publisher's process
holds the forwarder the subscriber connects to, on both sides. The subscriber writes a byte into a pipe from its callback;
that is how the publisher knows what has arrived.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from syncline.bench.peers import INTEROP
from syncline.bench.report import case, growth, report
from syncline.core.errors import MissingError

PUBLICATIONS: Final = 4_000
WINDOW: Final = 64
ROUNDS: Final = 3
BAR: Final = 5.0
GROUP: Final = "/bench-room"
PAYLOAD: Final = bytes([7]) * 100
SECONDS: Final = 120


def run(scale: float = 1.0) -> dict[str, Any]:
    """Measure both, interleaved; the ratio is that of the best rounds."""
    if not (INTEROP / "node_modules" / "@ndn" / "svs").is_dir():
        raise MissingError(
            "this benchmark needs Node and the npm packages of the interop peers",
            hint="run it from a checkout, after `python tools/setup.py --tests`",
        )
    count = max(WINDOW * 2, round(PUBLICATIONS * scale))
    rounds = [(_measure(ours(), count), _measure(ndnts(), count)) for _ in range(ROUNDS)]
    mine = max(first["rate"] for first, _ in rounds)
    theirs = max(second["rate"] for _, second in rounds)
    sizes = [count, 4 * count, 16 * count]
    seconds = [size / _measure(ours(), size)["rate"] for size in sizes]
    found = case(
        "publication → callback, 100 B, window 64",
        mine,
        theirs,
        "NDNts 0.0.20250307",
        "publications/s",
        bar=BAR,
        ratio=mine / theirs,
    )
    return report("svs", [found], growth=growth("publication → callback", "publications", sizes, seconds))


Command = Sequence[str | Path]


def ours() -> Command:
    return [sys.executable, "-m", "syncline.bench.svs"]


def ndnts() -> Command:
    return ["node", INTEROP / "svs" / "bench.mjs"]


def _measure(command: Command, count: int) -> dict[str, float]:
    """Publications per second of one run, every one of them checked to have arrived."""
    reading, writing = os.pipe()
    with _start([*command, "publisher", "0", str(count), str(reading)], reading) as publisher:
        port = _said(publisher)["port"]
        with _start([*command, "subscriber", str(port), str(count), str(writing)], writing) as subscriber:
            os.close(reading)
            os.close(writing)
            try:
                _said(subscriber)
                assert publisher.stdin is not None
                publisher.stdin.write("go\n")
                publisher.stdin.flush()
                done = _said(publisher)
                assert _said(subscriber)["distinct"] == done["acknowledged"] == count, "every publication, exactly once"
            finally:
                publisher.kill()
                subscriber.kill()
    return {"rate": count / done["seconds"], "cpu": done["cpu"]}


def _start(command: Command, fd: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[fd], text=True
    )


def _said(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the process ended early"
    found: dict[str, Any] = json.loads(line)
    return found


async def _publish(count: int, acknowledgements: int) -> None:
    import anyio
    import anyio.to_thread

    from syncline.core.clock import SystemClock
    from syncline.networks.ndn.doors import DoorOptions
    from syncline.networks.ndn.hub import HubOptions, running
    from syncline.protocols.svs.service import join

    async with running(HubOptions(doors=DoorOptions(tcp_port=0)), SystemClock()) as hub:
        async with join(GROUP, node="/publisher", forwarder=hub.attach()) as group:
            _say(port=int(hub.addresses["tcp"].rsplit(":", 1)[1]))
            await anyio.to_thread.run_sync(sys.stdin.readline)
            acknowledged, begun = 0, time.perf_counter()
            for index in range(count):
                while index - acknowledged >= WINDOW:
                    await anyio.wait_readable(acknowledgements)
                    acknowledged += len(os.read(acknowledgements, 65_536))
                await group.publish(f"/bench/{index}", PAYLOAD)
            while acknowledged < count:
                await anyio.wait_readable(acknowledgements)
                acknowledged += len(os.read(acknowledgements, 65_536))
            usage = resource.getrusage(resource.RUSAGE_SELF)
            _say(seconds=time.perf_counter() - begun, acknowledged=acknowledged, cpu=usage.ru_utime + usage.ru_stime)
            await anyio.sleep(SECONDS)


async def _subscribe(port: int, count: int, acknowledgements: int) -> None:
    import anyio

    from syncline.protocols.svs.service import join
    from syncline.protocols.svs.session import Publication

    seen: set[bytes] = set()

    def callback(publication: Publication) -> None:
        assert publication.payload == PAYLOAD
        seen.add(publication.name)
        os.write(acknowledgements, b"x")
        if len(seen) == count:
            _say(distinct=len(seen))

    async with join(GROUP, forwarder=f"tcp://127.0.0.1:{port}") as group:
        group.subscribe("/bench", callback)
        _say(ready=True)
        await anyio.sleep(SECONDS)


def _say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def main() -> None:
    import anyio
    import structlog

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))  # standard output is for the figures
    role, port, count, fd = sys.argv[1], *map(int, sys.argv[2:5])
    if role == "publisher":
        anyio.run(_publish, count, fd, backend="trio")
    else:
        anyio.run(_subscribe, port, count, fd, backend="trio")


if __name__ == "__main__":
    main()
