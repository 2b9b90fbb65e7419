"""Fail every write, fsync, truncate, delete and rename once, in order; and cut the power at every one of them.

Holds if what was acknowledged is there afterwards, nothing is there twice, and what failed said so.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from syncline.core.clock import SystemClock
from syncline.core.errors import SynclineError, UnavailableError
from syncline.core.ports import RecordQuery, StateChange
from syncline.core.settings import SegmentSettings
from syncline.journal import Drainer, Journal, LocalTarget
from syncline.journal.mark import mark_path
from syncline.journal.verify import verify
from tests.campaigns.conftest import Figures
from tests.campaigns.disks import Faults, FaultyFiles, Image, PowerCut, faulty_database
from tests.journal.conftest import arrival

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(300)]

APPENDS = 9


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work the log into the database, and terms into runs, every few commits."""
    monkeypatch.setattr("syncline.core.limits.JOURNAL_LOG_BYTES", 24 * 4096)
    monkeypatch.setattr("syncline.core.limits.JOURNAL_LOG_COMMITS", 2)
    monkeypatch.setattr("syncline.core.limits.JOURNAL_RUN_RECORDS", 6)
    monkeypatch.setattr("syncline.core.limits.JOURNAL_SLICE_RECORDS", 1)


def work(journal: Journal, acked: dict[bytes, int]) -> int:
    """Append this and that, noting what was acknowledged; the number of appends that failed."""
    failed = 0
    for n in range(APPENDS):
        ids = [b"%d.%d" % (n, m) for m in range(3)]
        state = [StateChange(space="s", key=b"k", value=b"%d" % n)] if n % 3 == 0 else []
        try:
            receipts = journal.append_sync([arrival(id_, raw=id_ * 400) for id_ in ids], state)
        except UnavailableError:
            failed += 1
            continue
        acked |= {receipt.arrival.id: receipt.record.lsn for receipt in receipts if receipt.record and receipt.accepted}
    return failed


def check(path: Path, acked: dict[bytes, int]) -> None:
    """Every acknowledged record is there under its number; nothing is damaged or there twice."""
    journal = Journal.open(path, node="node", clock=SystemClock())
    try:
        found = {record.id: record.lsn for record in journal.read(RecordQuery())}
        assert len(found) == journal.newest()
        assert acked.items() <= found.items()
        assert verify(path).problems == []
        assert journal.append_sync([arrival(b"afterwards")])[0].accepted
    finally:
        journal.close()


def operations(folder: Path) -> int:
    """How many operations an undisturbed run needs."""
    faults = Faults()
    with faulty_database(faults) as vfs:
        journal = Journal.open(folder / "journal.db", node="node", clock=SystemClock(), vfs=vfs)
        assert work(journal, {}) == 0
        journal.close()
    return faults.count


def test_every_operation_on_the_database_fails_once(tmp_path: Path, figures: Figures) -> None:
    total = operations(tmp_path)
    failed = fired = 0
    for at in range(1, total + 1):
        path, acked = tmp_path / str(at) / "journal.db", dict[bytes, int]()
        faults = Faults(at)
        with faulty_database(faults) as vfs:
            try:
                journal = Journal.open(path, node="node", clock=SystemClock(), vfs=vfs)
            except SynclineError:
                failed += 1
            else:
                failed += work(journal, acked)
                journal.close()
        fired += faults.fired
        check(path, acked)
    figures(what="faults journal", operations=total, fired=fired, refused_appends=failed)
    assert fired == total
    assert failed > total // 2


@pytest.mark.parametrize("synchronous", ["full", "off"])
def test_the_power_is_cut_at_every_operation_on_the_database(
    tmp_path: Path, synchronous: str, monkeypatch: pytest.MonkeyPatch, seed: int, figures: Figures
) -> None:
    """With `off` the journal must lose records: that proves the cut is a cut."""
    total = operations(tmp_path)
    chance = random.Random(seed)
    lost = 0
    for at in range(1, total + 1):
        folder, acked, image = tmp_path / str(at), dict[bytes, int](), Image()
        with faulty_database(Faults(at, for_good=True), image) as vfs:
            try:
                journal = Journal.open(folder / "journal.db", node="node", clock=SystemClock(), vfs=vfs)
            except SynclineError:
                continue  # before there was a journal
            journal._connection.pragma("synchronous", synchronous)
            work(journal, acked)
            note = mark_path(folder / "journal.db").read_bytes()
            image.after_power_cut(folder / "cut", chance)
            journal.close()
        mark_path(folder / "cut" / "journal.db").write_bytes(note)
        try:
            check(folder / "cut" / "journal.db", acked)
        except (AssertionError, SynclineError):
            lost += 1
            if synchronous == "full":
                raise
    figures(what="power cut journal", synchronous=synchronous, cuts=total, lost=lost)
    assert (lost > 0) == (synchronous == "off")


def sealed(journal: Journal, target: LocalTarget) -> None:
    """Three drains, each of two protocols."""
    drainer = Drainer(journal, target, SegmentSettings())
    for n in range(3):
        journal.append_sync([arrival(b"%d%b" % (n, p), protocol=p.decode()) for p in (b"a", b"b")])
        drainer.drain()


def file_operations(folder: Path) -> int:
    files = FaultyFiles(Faults())
    journal = Journal.open(folder / "journal.db", node="node", clock=SystemClock())
    sealed(journal, LocalTarget(folder / "segments", files))
    journal.close()
    return files.faults.count


def test_every_operation_on_segments_fails_once(tmp_path: Path, figures: Figures) -> None:
    total = file_operations(tmp_path)
    for at in range(1, total + 1):
        folder = tmp_path / str(at)
        journal = Journal.open(folder / "journal.db", node="node", clock=SystemClock())
        faults = Faults(at)
        target = LocalTarget(folder / "segments", FaultyFiles(faults))
        with pytest.raises(UnavailableError, match="injected"):
            sealed(journal, target)
        visible = {name.path: target.read(name.path) for name in target.list()}
        journal.append_sync([arrival(b"afterwards", protocol="a")])
        Drainer(journal, target, SegmentSettings()).drain()
        assert {path: target.read(path) for path in visible} == visible, "a visible segment was touched"
        found = verify(journal.path, target=target)
        journal.close()
        assert found.problems == []
        assert found.sealed_records == found.records == journal.newest()
        assert faults.fired == 1
    figures(what="faults segments", operations=total)


@pytest.mark.parametrize("forgotten", ["", "sync", "sync_folder"])
def test_the_power_is_cut_at_every_operation_on_segments(
    tmp_path: Path, forgotten: str, monkeypatch: pytest.MonkeyPatch, seed: int, figures: Figures
) -> None:
    """Without one of the two fsyncs, segments must get lost or damaged: that proves the cut is a cut."""
    total = file_operations(tmp_path)
    if forgotten:
        monkeypatch.setattr(FaultyFiles, forgotten, lambda self, path: None)
    chance = random.Random(seed)
    lost = 0
    for at in range(1, total + 1):
        folder = tmp_path / str(at)
        journal = Journal.open(folder / "journal.db", node="node", clock=SystemClock())
        files = FaultyFiles(Faults(at, for_good=True), PowerCut)
        try:
            sealed(journal, LocalTarget(folder / "segments", files))
        except PowerCut:
            pass
        target = LocalTarget(folder / "cut")
        files.after_power_cut(folder / "segments", target.folder, chance)
        try:
            Drainer(journal, target, SegmentSettings()).drain()
            found = verify(journal.path, target=target)
            assert found.problems == []
            assert found.sealed_records == journal.newest()
        except (AssertionError, SynclineError):
            lost += 1
            if not forgotten:
                raise
        finally:
            journal.close()
    figures(what="power cut segments", forgotten=forgotten, cuts=total, lost=lost)
    assert (lost > 0) == bool(forgotten)
