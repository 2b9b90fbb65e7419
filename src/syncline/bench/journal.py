"""Scenario `journal`: durable appends of 500-byte messages by 100 tasks at once, in a burst and for longer.

In a burst, most terms by which records are found again are still in memory at the end. In the long case most of them
have become runs meanwhile, as in a node under load without end.

The peer is the least a durable log can do: the same records, encoded, with length and checksum, appended to a file by
one thread that forces every group to disk before it answers. It has no index, refuses no duplicate, keeps no state.
"""

from __future__ import annotations

import gc
import os
import statistics
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from zlib import crc32

import anyio
import msgspec

from syncline.bench.report import case, growth, report
from syncline.core.clock import SystemClock
from syncline.core.ports import RecordQuery
from syncline.core.record import Arrival
from syncline.core.verdict import Outcome
from syncline.journal import Journal
from syncline.journal.submissions import Gate, open_gates, running_loop
from syncline.node.tuning import tune

BURST: Final = 40_000
LONG: Final = 160_000
ROUNDS: Final = 5
GROWTH: Final = 40_000
TASKS: Final = 100
BAR: Final = 0.5

Append = Callable[[Arrival], Awaitable[Any]]


def run(scale: float = 1.0) -> dict[str, Any]:
    """Measure; `scale` multiplies the number of records."""
    with _as_in_the_node():
        burst, long = (_compare(max(1_000, int(records * scale))) for records in (BURST, LONG))
        sizes = [max(1_000, int(GROWTH * scale)) * factor for factor in (1, 4, 16)]
        grown = [_measure(_journal, size) for size in sizes]
    return report(
        "journal",
        [
            burst.case("durable append, 500 B, concurrency 100"),
            long.case("the same, four times as many records"),
        ],
        records=[burst.records, long.records],
        rounds=ROUNDS,
        latency_ms={name: [_median(side.ours, name) for side in (burst, long)] for name in ("p50", "p99")},
        peer_latency_ms={name: [_median(side.peer, name) for side in (burst, long)] for name in ("p50", "p99")},
        growth=growth("durable append", "records", sizes, [run["seconds"] for run in grown]),
    )


class _Compared(NamedTuple):
    """What several rounds of both sides gave."""

    records: int
    ours: list[dict[str, float]]
    peer: list[dict[str, float]]

    def case(self, name: str) -> dict[str, Any]:
        ours, peer = (statistics.median(run["rate"] for run in runs) for runs in (self.ours, self.peer))
        against = "raw length+crc log, same group fsync"
        return case(name, ours, peer, against, "records/s", bar=BAR, ratio=ours / peer)


def _compare(records: int) -> _Compared:
    compared = _Compared(records, [], [])
    for _ in range(ROUNDS):  # in turns, so that noise meets both
        compared.ours.append(_measure(_journal, records))
        compared.peer.append(_measure(_log, records))
    return compared


def _median(runs: list[dict[str, float]], name: str) -> float:
    return round(statistics.median(run[name] for run in runs), 2)


class RawLog:
    """Length, checksum, bytes; forced to disk by groups."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        self._encode = msgspec.msgpack.Encoder().encode
        self._filled = threading.Condition()
        self._pending: list[bytes] = []
        self._gate: Gate | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    async def append(self, arrival: Arrival) -> None:
        """Answer once the record is on disk."""
        data = self._encode(arrival)
        with self._filled:
            if self._gate is None:
                self._gate = Gate(running_loop())
                self._filled.notify()
            gate = self._gate
            self._pending.append(struct.pack("<II", len(data), crc32(data)) + data)
        await gate.event.wait()

    def close(self) -> None:
        with self._filled:
            self._closed = True
            self._filled.notify()
        self._thread.join()
        os.close(self._file)

    def _run(self) -> None:
        while True:
            with self._filled:
                while self._gate is None and not self._closed:
                    self._filled.wait()
                if self._gate is None:
                    return
                group, self._pending = self._pending, []
                gate, self._gate = self._gate, None
            os.write(self._file, b"".join(group))
            os.fdatasync(self._file)
            open_gates([gate])


def read_log(path: Path) -> Iterator[Arrival]:
    """The records of a raw log, checked."""
    data, at = path.read_bytes(), 0
    decoder = msgspec.msgpack.Decoder(Arrival)
    while at < len(data):
        length, checksum = struct.unpack_from("<II", data, at)
        body = data[at + 8 : at + 8 + length]
        assert len(body) == length
        assert crc32(body) == checksum
        yield decoder.decode(body)
        at += 8 + length


def _measure(side: Callable[[Path, list[Arrival]], dict[str, float]], count: int) -> dict[str, float]:
    arrivals = _arrivals(count)
    gc.collect()
    gc.freeze()  # the messages are the harness's, not the log's
    try:
        with tempfile.TemporaryDirectory(prefix="syncline-bench-") as folder:
            return side(Path(folder), arrivals)
    finally:
        gc.unfreeze()


def _journal(folder: Path, arrivals: list[Arrival]) -> dict[str, float]:
    journal = Journal.open(folder / "journal.db", node="bench", clock=SystemClock())
    try:
        figures = anyio.run(partial(_drive, lambda arrival: journal.append([arrival]), arrivals), backend="trio")
        kept = list(journal.batches(RecordQuery(limit=len(arrivals) + 1)))
    finally:
        journal.close()
    _check(arrivals, ((i, r) for b in kept for i, r in zip(*(b[n].to_pylist() for n in ("id", "raw")), strict=True)))
    return figures


def _log(folder: Path, arrivals: list[Arrival]) -> dict[str, float]:
    log = RawLog(folder / "log")
    try:
        figures = anyio.run(partial(_drive, log.append, arrivals), backend="trio")
    finally:
        log.close()
    _check(arrivals, ((arrival.id, arrival.raw) for arrival in read_log(folder / "log")))
    return figures


async def _drive(append: Append, arrivals: list[Arrival]) -> dict[str, float]:
    """Let the tasks append, each one record after the other, and time them."""
    waiting, latencies = iter(arrivals), list[float]()

    async def work() -> None:
        for arrival in waiting:
            begun = time.perf_counter()
            await append(arrival)
            latencies.append(time.perf_counter() - begun)

    begun = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(TASKS):
            tasks.start_soon(work)
    seconds = time.perf_counter() - begun
    cuts = statistics.quantiles(latencies, n=100)
    return {"seconds": seconds, "rate": len(arrivals) / seconds, "p50": cuts[49] * 1e3, "p99": cuts[98] * 1e3}


def _check(arrivals: list[Arrival], kept: Iterator[tuple[bytes, bytes | None]]) -> None:
    """Every record is there once, with its bytes."""
    found = list(kept)
    if sorted(found) != sorted((arrival.id, arrival.raw) for arrival in arrivals):
        raise AssertionError(f"{len(found)} records came back of {len(arrivals)}")


def _arrivals(count: int) -> list[Arrival]:
    """Messages as a busy node gets them: many publishers and objects, every id its own."""
    now, raw = SystemClock().now(), os.urandom(500)
    publishers = [f"12D3KooW{os.urandom(22).hex()}" for _ in range(200)]
    return [
        Arrival(
            protocol="sds", topic="/spacedatanetwork/sds/OMM", kind="publish", id=os.urandom(32), received_at=now + n,
            verdict=Outcome.ACCEPT, key=str(n * 7919 % 30_000), publisher=publishers[n % 200], seq=n,
            peer=publishers[n * 31 % 200], published_at=now, raw=raw,
        )
        for n in range(count)
    ]  # fmt: skip


@contextmanager
def _as_in_the_node() -> Iterator[None]:
    """Both sides run in an interpreter tuned as a node tunes its own."""
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    tune()
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*threshold)
