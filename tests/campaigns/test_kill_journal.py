"""Kill −9 a process that writes and seals a journal, again and again, and look at what is left.

Holds if every acknowledged record is there, under its number and in its order, no id was accepted twice, records and
the state written with them never part, and the segments of the whole history have neither gap nor double.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from syncline.core.clock import SystemClock
from syncline.core.crash import VARIABLE
from syncline.core.ports import RecordQuery
from syncline.core.settings import SegmentSettings
from syncline.core.verdict import Outcome
from syncline.formats.segments import read_segment
from syncline.journal import Drainer, Journal, LocalTarget
from syncline.journal.reading import reading
from syncline.journal.rows import record_of
from syncline.journal.verify import verify
from tests.campaigns.conftest import LONG, Figures
from tests.campaigns.journal_writer import SPACE, WRITERS

pytestmark = pytest.mark.campaign

KILLS = 500 if LONG else 25
KILLS_OF_A_JOURNAL = 25
POINTS = [
    "journal.before-commit",
    "journal.after-commit",
    "segment.after-write",
    "segment.after-sync",
    "segment.mid-siblings",
    "segment.after-rename",
    "segment.before-cursor",
]
WRITER = Path(__file__).with_name("journal_writer.py")


class Notes:
    """What the killed processes said they began and what was acknowledged to them."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "notes"
        self._read = 0
        self.begun: dict[int, int] = {}
        self.acked: dict[tuple[int, int], int] = {}  # writer, number → lsn
        self.waiting: set[int] = set()  # writers whose last append was not answered when they were killed
        self.sealed = 0

    def says(self, word: bytes) -> bool:
        """Whether the present process has noted this."""
        if not self._path.exists():
            return False
        with self._path.open("rb") as file:
            file.seek(self._read)
            return word in file.read()

    def update(self) -> None:
        """Read what the process noted until it was killed."""
        with self._path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        end = data.rfind(b"\n") + 1  # a line cut off by the kill says nothing
        self._read += len(data)
        self.waiting = set()
        for line in data[:end].splitlines():
            kind, *numbers = line.split()
            values = [int(number) for number in numbers]
            if kind == b"begun":
                self.begun[values[0]] = values[1]
                self.waiting.add(values[0])
            elif kind == b"acked":
                self.acked[values[0], values[1]] = values[2]
                self.waiting.discard(values[0])
            elif kind == b"sealed":
                self.sealed = max(self.sealed, values[1])


def start(folder: Path, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(WRITER), str(folder)],
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
    )


def kill_after(process: subprocess.Popen[bytes], notes: Notes, word: bytes, seconds: float) -> None:
    """Kill the process so long after it first noted `word`."""
    deadline = time.monotonic() + 60
    while not notes.says(word):
        assert process.poll() is None, process.communicate()[1].decode()
        assert time.monotonic() < deadline
        time.sleep(0.002)
    time.sleep(seconds)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    notes.update()


def check(folder: Path, notes: Notes) -> dict[str, int]:
    """Everything that must hold, whenever the process died."""
    target = LocalTarget(folder / "segments")
    found = verify(folder / "journal.db", target=target)
    # What a crash left half-sealed is not a problem: the next drain completes it, and the last check sees it whole.
    assert found.problems == []
    with reading(folder / "journal.db") as journal:
        rows = [row for page in journal.pages(RecordQuery(limit=2**62)) for row in page]
        states = dict(journal.all("SELECT key, value FROM state WHERE space = ?", (SPACE,)))
        sealed = journal.about.sealed
    records = [record_of(row, "node", "") for row in rows]
    assert [record.lsn for record in records] == list(range(1, len(records) + 1))
    by_lsn = {record.lsn: record for record in records}
    for (writer, number), lsn in notes.acked.items():
        assert (by_lsn[lsn].topic, by_lsn[lsn].seq) == (f"writer {writer}", number), "an acknowledged record is lost"
    for writer in range(WRITERS):
        accepted = [r.seq for r in records if r.verdict is Outcome.ACCEPT and r.topic == f"writer {writer}"]
        assert accepted == list(range(len(accepted))), "order is lost, or an id was accepted twice"
        assert int(states.get(b"%d" % writer, b"0")) == len(accepted), "records and their state have parted"
        assert len(accepted) <= notes.begun.get(writer, 0)
    half_made = any(target.folder.glob("*/*/.*")) or any(name.hi > sealed for name in target.list())
    return {"records": len(records), "sealed": sealed, "segments": found.segments, "mid_seal": int(half_made)}


def check_history(folder: Path) -> int:
    """After a last undisturbed drain: the segments alone hold every record once."""
    target = LocalTarget(folder / "segments")
    lsns: list[int] = []
    for name in target.list():
        lsns += read_segment(target.read(name.path), name.path)[1]["lsn"].to_pylist()
    assert sorted(lsns) == list(range(1, len(lsns) + 1))
    return len(lsns)


def finish(folder: Path, notes: Notes) -> dict[str, int]:
    """Seal what is left, then check the whole."""
    journal = Journal.open(folder / "journal.db", node="node", clock=SystemClock())
    try:
        Drainer(journal, LocalTarget(folder / "segments"), SegmentSettings()).drain()
    finally:
        journal.close()
    figures = check(folder, notes)
    assert check_history(folder) == figures["records"] == figures["sealed"]
    assert figures.pop("mid_seal") == 0
    return figures


@pytest.mark.timeout(3600 if LONG else 300)
def test_kills_at_random_moments_lose_nothing_that_was_acknowledged(
    tmp_path: Path, seed: int, figures: Figures
) -> None:
    chance = random.Random(seed)
    seen: Counter[str] = Counter()
    for life in range(KILLS // KILLS_OF_A_JOURNAL):  # a journal that grew for ever would only slow the checks down
        folder = tmp_path / str(life)
        folder.mkdir()
        notes = Notes(folder)
        for _ in range(KILLS_OF_A_JOURNAL):
            sealed = notes.sealed
            kill_after(start(folder), notes, chance.choice([b"begun", b"sealed", b"sealed"]), chance.uniform(0, 0.15))
            seen["mid_write"] += len(notes.waiting) > 0
            seen["sealed_while_writing"] += notes.sealed > sealed
            seen["mid_seal"] += check(folder, notes)["mid_seal"]
        seen.update({"acknowledged": len(notes.acked), **finish(folder, notes)})
    figures(kills=KILLS, **seen)
    assert seen["mid_write"] >= KILLS * 0.9, "the kills did not come while writing"
    assert seen["sealed_while_writing"] >= KILLS * 0.4, "the drainer did not run meanwhile"
    assert seen["acknowledged"] > KILLS * 20


@pytest.mark.parametrize("turn", [1, 4])
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_at_a_named_point_loses_nothing_that_was_acknowledged(
    tmp_path: Path, point: str, turn: int, figures: Figures
) -> None:
    notes = Notes(tmp_path)
    process = start(tmp_path, **{VARIABLE: f"{point}:{turn}"})
    _, said = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, said.decode()
    notes.update()
    check(tmp_path, notes)
    figures(point=point, turn=turn, **finish(tmp_path, notes))
