"""Scenario `startup`: how long a person waits for `syncline --help`, and for a node to be ready.

There is no peer for it: the bars are seconds, and a bare interpreter's start is printed beside ours for comparison.
Growth is a node's start over a journal of 1 ×, 4 × and 16 × the records.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from syncline.bench.report import best, case, growth, report
from syncline.core.clock import SystemClock
from syncline.core.errors import SynclineError
from syncline.core.keys import NodeKey
from syncline.core.record import Arrival
from syncline.core.verdict import Outcome
from syncline.journal import Journal

HELP_BAR: Final = 0.3
READY_BAR: Final = 2.0
REPEATS: Final = 5
RECORDS: Final = 10_000
PATIENCE: Final = 60.0
PROGRAM: Final = (sys.executable, "-m", "syncline.cli.main")
SETTINGS: Final = """
[api]
port = 0
[libp2p]
listen = ["/ip4/127.0.0.1/tcp/0"]
[relay]
port = 0
[svs]
tcp_port = 0
udp_port = 0
websocket_port = 0
"""


def run(scale: float = 1.0) -> dict[str, Any]:
    """Measure both; `scale` multiplies the records of the journals that nodes start over."""
    bare, _ = best(REPEATS, lambda: _finish([sys.executable, "-c", ""]))
    asked, _ = best(REPEATS, lambda: _finish([*PROGRAM, "--help"]))
    sizes = [max(100, int(RECORDS * scale)) * factor for factor in (1, 4, 16)]
    with tempfile.TemporaryDirectory(prefix="syncline-bench-") as folder:
        empty = Path(folder) / "empty"
        _prepare(empty, 0)
        ready = min(_ready(empty) for _ in range(REPEATS))
        seconds = []
        for size in sizes:
            _prepare(Path(folder) / str(size), size)
            seconds.append(min(_ready(Path(folder) / str(size)) for _ in range(3)))
    cases = [
        case("syncline --help", asked, bare, "bare interpreter", "s", bar=HELP_BAR, ratio=asked, at_most=True),
        case("node ready", ready, bare, "bare interpreter", "s", bar=READY_BAR, ratio=ready, at_most=True),
    ]
    return report("startup", cases, growth=growth("node ready over a journal", "records", sizes, seconds))


def _finish(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _prepare(folder: Path, records: int) -> None:
    """A node's folder with a journal of so many records."""
    folder.mkdir(parents=True)
    (folder / "syncline.toml").write_text(SETTINGS)
    key = NodeKey.generate()
    key.save(folder / "node.key")
    journal = Journal.open(folder / "data" / "journal.db", node=key.peer_id, clock=SystemClock())
    try:
        for start in range(0, records, 1_000):
            journal.append_sync([_arrival(n) for n in range(start, min(start + 1_000, records))])
    finally:
        journal.close()


def _arrival(number: int) -> Arrival:
    return Arrival(
        protocol="sdsp", topic="bench", kind="frame", id=number.to_bytes(8, "big"), seq=number,
        received_at=SystemClock().now(), verdict=Outcome.ACCEPT, raw=os.urandom(300),
    )  # fmt: skip


def _ready(folder: Path) -> float:
    """Seconds from the start of `syncline up` to the line that says where it listens."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        [*PROGRAM, "up", "--json"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        readable, _, _ = select.select([process.stdout], [], [], PATIENCE)
        line = process.stdout.readline() if readable else ""
        seconds = time.perf_counter() - begun
        if not line.startswith("{"):
            raise SynclineError("the node did not start", hint="try `syncline init && syncline up`")
        return seconds
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
