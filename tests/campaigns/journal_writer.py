"""A process that writes a journal as hard as it can, made to be killed. Started by test_kill_journal.py.

Each of its writers appends numbered records together with the state that says how far it came, and notes in a file
what it began and what was acknowledged. A drainer seals all the while.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from functools import partial
from pathlib import Path

import anyio

from syncline.core import limits
from syncline.core.clock import SystemClock
from syncline.core.ports import StateChange
from syncline.core.record import Arrival
from syncline.core.settings import JournalSettings, SegmentSettings
from syncline.core.verdict import Outcome, Reason
from syncline.journal import Drainer, Journal, LocalTarget

WRITERS = 12
SPACE = "campaign"
clock = SystemClock()


def arrival(writer: int, number: int, **fields: object) -> Arrival:
    defaults: dict[str, object] = {
        "protocol": "even" if writer % 2 == 0 else "odd",
        "topic": f"writer {writer}",
        "kind": "message",
        "id": b"%d/%d" % (writer, number),
        "received_at": clock.now(),
        "verdict": Outcome.ACCEPT,
        "seq": number,
        "peer": f"peer {writer}",
        "raw": (b"%d/%d " % (writer, number)) * (1 + number * 7919 % 300),
    }
    return Arrival(**{**defaults, **fields})  # type: ignore[arg-type]


async def write(journal: Journal, notes: int, writer: int) -> None:
    key = b"%d" % writer
    number = int(journal.get_state(SPACE, key) or b"0")
    while True:
        count = 1 + number % 3
        batch = [arrival(writer, number + n) for n in range(count)]
        extra = []
        if number % 5 == 0 and number:
            extra.append(arrival(writer, number - 1, raw=b"a repeat"))
        if number % 7 == 0:
            extra.append(arrival(writer, number, verdict=Outcome.REJECT, reason=Reason.INVALID_SIGNATURE))
        expect = b"%d" % number if number else None
        state = [StateChange(space=SPACE, key=key, value=b"%d" % (number + count), expect=expect)]
        os.write(notes, b"begun %d %d\n" % (writer, number + count))
        receipts = await journal.append([*extra, *batch], state)
        lines = [
            b"acked %d %d %d\n" % (writer, receipt.arrival.seq or 0, receipt.record.lsn)
            for receipt in receipts[len(extra) :]
            if receipt.record is not None and receipt.accepted
        ]
        os.write(notes, b"".join(lines))
        number += count


def drain(drainer: Drainer, notes: int) -> None:
    while True:
        for segment in drainer.drain():
            os.write(notes, b"sealed %d %d\n" % (segment.lo, segment.hi))
        time.sleep(0.002)


async def main(folder: Path, notes: int) -> None:
    settings = JournalSettings(refused_per_peer_hour=100, disk_free_all=0, disk_free_rejects=0)
    journal = Journal.open(folder / "journal.db", node="node", clock=clock, settings=settings)
    drainer = Drainer(journal, LocalTarget(folder / "segments"), SegmentSettings())
    threading.Thread(target=drain, args=(drainer, notes), daemon=True).start()
    async with anyio.create_task_group() as tasks:
        for writer in range(WRITERS):
            tasks.start_soon(write, journal, notes, writer)


if __name__ == "__main__":
    sys.setswitchinterval(0.0005)
    limits.JOURNAL_RUN_RECORDS = 300  # type: ignore[misc]  # so that it is killed while terms become runs, too
    limits.JOURNAL_SLICE_RECORDS = 40  # type: ignore[misc]
    path = Path(sys.argv[1])
    file = os.open(path / "notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    anyio.run(partial(main, path, file), backend="trio")
