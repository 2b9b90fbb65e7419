"""Damage a journal and its segments in every way a disk can, and see that it is always noticed.

Cuts, single flipped bits, zeroed pages, pages and segments in each other's place. Holds if reading or verifying says
so, and what is not damaged can still be read.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from syncline.core.clock import SystemClock
from syncline.core.errors import CorruptionError
from syncline.core.limits import JOURNAL_PAGE_BYTES as PAGE
from syncline.core.ports import RecordQuery, StateChange
from syncline.core.settings import SegmentSettings
from syncline.core.verdict import Outcome, Reason
from syncline.formats.segments import check_segment
from syncline.journal import Drainer, Journal, LocalTarget
from syncline.journal.mark import mark_path
from syncline.journal.salvage import salvage
from syncline.journal.verify import verify, verify_segments
from tests.campaigns.conftest import LONG, Figures
from tests.journal.conftest import arrival

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(3600 if LONG else 300)]

SCALE = 20 if LONG else 1
RECORDS = 90


@pytest.fixture
def chance(seed: int) -> random.Random:
    return random.Random(seed)


def fill(path: Path) -> Journal:
    """A journal with every kind of content: small and large rows, refused ones, runs of terms, state."""
    journal = Journal.open(path, node="node", clock=SystemClock())
    for start in range(0, RECORDS, 6):
        journal.append_sync(
            [
                arrival(b"%d" % n, raw=bytes([n]) * (6_000 if n % 30 == 7 else 150), key="k", publisher="p", seq=n)
                for n in range(start, start + 5)
            ]
            + [arrival(b"%d" % start, verdict=Outcome.REJECT, reason=Reason.MALFORMED)],
            [StateChange(space="s", key=b"%d" % start, value=bytes(40), expires_at=2**60)],
        )
    return journal


@pytest.fixture
def closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The bytes of a journal that was closed: one file, no log."""
    monkeypatch.setattr("syncline.core.limits.JOURNAL_RUN_RECORDS", 6)
    monkeypatch.setattr("syncline.core.limits.JOURNAL_SLICE_RECORDS", 1)
    path = tmp_path / "whole" / "journal.db"
    fill(path).close()
    assert verify(path).problems == []
    return path.read_bytes()


def damaged(folder: Path, data: bytes) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "journal.db").write_bytes(data)
    return folder / "journal.db"


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_every_flipped_bit_of_the_database_is_found_and_costs_one_page(
    closed: bytes, tmp_path: Path, chance: random.Random, figures: Figures
) -> None:
    flips = 2_000 * SCALE
    for n in range(flips):
        bit = chance.randrange(len(closed) * 8)
        path = damaged(tmp_path / "flip", flipped(closed, bit))
        assert verify(path).problems, f"bit {bit} was flipped unnoticed"
        if n % 20 == 0:
            intact = {row[0] for row in salvage(path)}
            assert len(intact) >= RECORDS - 16, f"bit {bit} cost more than the page it is on"
    figures(what="flips of the database", count=flips, bytes=len(closed))


def test_every_cut_of_the_database_is_found(
    closed: bytes, tmp_path: Path, chance: random.Random, figures: Figures
) -> None:
    cuts = 700 * SCALE
    places = [0, 1, 99, 100, *range(PAGE, len(closed), PAGE)] + [chance.randrange(len(closed)) for _ in range(cuts)]
    for cut in places[:cuts]:
        path = damaged(tmp_path / "cut", closed[:cut])
        assert verify(path).problems, f"the cut at {cut} went unnoticed"
    figures(what="cuts of the database", count=cuts)


def test_zeroed_and_exchanged_pages_are_found(closed: bytes, tmp_path: Path, figures: Figures) -> None:
    pages = len(closed) // PAGE
    for number in range(pages):
        zeroed = closed[: number * PAGE] + bytes(PAGE) + closed[(number + 1) * PAGE :]
        assert verify(damaged(tmp_path / "zero", zeroed)).problems, f"page {number + 1} was zeroed unnoticed"
    pairs = [(one, other) for one in range(pages) for other in range(one)]
    for one, other in pairs:
        parts = [closed[n * PAGE : (n + 1) * PAGE] for n in range(pages)]
        parts[one], parts[other] = parts[other], parts[one]
        path = damaged(tmp_path / "swap", b"".join(parts))
        assert verify(path).problems, f"pages {one + 1} and {other + 1} changed places unnoticed"
    figures(what="zeroed and exchanged pages", count=pages + len(pairs))


def test_damage_to_the_log_of_a_killed_process_is_found(
    tmp_path: Path, chance: random.Random, figures: Figures
) -> None:
    path = tmp_path / "whole" / "journal.db"
    journal = fill(path)
    files = [path, path.with_name("journal.db-wal"), mark_path(path)]
    content = {file.name: file.read_bytes() for file in files}
    newest = journal.newest()
    journal.close()
    log = content["journal.db-wal"]

    def reopened(changed: bytes) -> int:
        folder = tmp_path / "killed"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, data in {**content, "journal.db-wal": changed}.items():
            (folder / name).write_bytes(data)
        opened = Journal.open(folder / "journal.db", node="node", clock=SystemClock())
        try:
            return len(opened.read(RecordQuery()))
        finally:
            opened.close()

    assert reopened(log) == newest
    flips, cuts, harmless = 500 * SCALE, 300 * SCALE, 0
    for n in range(flips + cuts):
        place = chance.randrange(len(log))
        try:
            found = reopened(flipped(log, place * 8) if n < flips else log[:place])
        except CorruptionError:
            continue
        assert found == newest, f"damage at {place} of the log went unnoticed"
        harmless += 1
    figures(what="flips and cuts of the log", count=flips + cuts, harmless=harmless)
    assert harmless < (flips + cuts) // 10


@pytest.fixture
def segment(tmp_path: Path) -> tuple[bytes, str, LocalTarget]:
    journal = fill(tmp_path / "journal.db")
    target = LocalTarget(tmp_path / "segments")
    (info,) = Drainer(journal, target, SegmentSettings()).drain()
    journal.append_sync([arrival(b"more")])
    Drainer(journal, target, SegmentSettings()).drain()
    journal.close()
    return target.read(info.path), info.path, target


def test_every_flip_and_cut_of_a_segment_is_found(
    segment: tuple[bytes, str, LocalTarget], chance: random.Random, figures: Figures
) -> None:
    data, path, _ = segment
    flips = 2_500 * SCALE
    assert check_segment(data, path).rows == RECORDS
    for bit in [*range(len(data) * 8 - 128, len(data) * 8), *(chance.randrange(len(data) * 8) for _ in range(flips))]:
        with pytest.raises(CorruptionError):
            check_segment(flipped(data, bit), path)
    for cut in range(len(data)):
        with pytest.raises(CorruptionError):
            check_segment(data[:cut], path)
    for start in range(0, len(data), 512):
        if any(data[start : start + 512]):
            with pytest.raises(CorruptionError):
                check_segment(data[:start] + bytes(len(data[start : start + 512])) + data[start + 512 :], path)
    figures(what="flips of a segment", count=flips + 128, bytes=len(data))
    figures(what="cuts of a segment, at every byte", count=len(data), zeroed_pages=-(-len(data) // 512))


def test_a_segment_in_the_place_of_another_is_found_and_the_rest_still_reads(
    segment: tuple[bytes, str, LocalTarget], figures: Figures
) -> None:
    data, path, target = segment
    assert verify_segments(target, "node").problems == []
    other = next(name.path for name in target.list() if name.path != path)
    (target.folder / other).write_bytes(data)
    found = verify_segments(target, "node")
    assert [problem.where for problem in found.problems] == [other, other]
    assert found.segments == 1
    assert found.sealed_records == RECORDS
    figures(what="swapped segments", count=1)
