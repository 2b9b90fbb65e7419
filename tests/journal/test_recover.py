"""Recovery that is killed at every step: nothing is lost, nothing is opened half done, a second call finishes it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from syncline.core.crash import VARIABLE
from syncline.core.errors import CorruptionError
from syncline.core.ports import RecordQuery, StateChange
from syncline.core.settings import SegmentSettings
from syncline.journal import Drainer, Journal, LocalTarget
from syncline.journal.backup import backup
from syncline.journal.recover import Recovery, recover
from syncline.journal.verify import verify
from tests.journal.conftest import HandClock, arrival

Open = Callable[..., Journal]
RECOVER = """
import sys
from pathlib import Path
from syncline.journal import LocalTarget
from syncline.journal.recover import recover
from tests.journal.conftest import HandClock

folder = Path(sys.argv[1])
recover(folder / "journal.db", node="node", clock=HandClock(), target=LocalTarget(folder / "segments"))
"""


def killed(folder: Path) -> Path:
    """A journal as a killed process leaves it: of its six records four are only in its log; one row is damaged."""
    target, clock = LocalTarget(folder / "segments"), HandClock()
    journal = Journal.open(folder / "live" / "journal.db", node="node", clock=clock)
    journal.append_sync([arrival(b"sealed %d" % n) for n in range(2)])
    Drainer(journal, target, SegmentSettings()).drain()
    journal._connection.wal_checkpoint()
    journal.append_sync([arrival(b"%d" % n) for n in range(4)], [StateChange(space="s", key=b"k", value=b"v")])
    for file in journal.path.parent.glob("journal.db*"):
        (folder / file.name).write_bytes(file.read_bytes())
    journal.close()
    return folder / "journal.db"


@pytest.mark.parametrize(
    ("point", "opens"),
    [
        ("recover.before-rename", True),
        ("recover.mid-quarantine:1", False),
        ("recover.mid-quarantine:2", False),
        ("recover.mid-quarantine:4", False),
        ("recover.after-quarantine", False),
    ],
)
def test_a_recovery_that_was_killed_is_finished_by_the_next(
    tmp_path: Path, open_journal: Open, clock: HandClock, point: str, opens: bool
) -> None:
    path = killed(tmp_path)
    before = {end: path.with_name(path.name + end).read_bytes() for end in ("", "-wal", "-mark")}
    process = subprocess.run([sys.executable, "-c", RECOVER, str(tmp_path)], env={**os.environ, VARIABLE: point})
    assert process.returncode == -signal.SIGKILL
    if opens:
        open_journal(path=path).close()
    else:
        with pytest.raises(CorruptionError, match="was cut short") as error:
            open_journal(path=path)
        assert "journal recover" in error.value.hint
        assert [problem.what for problem in verify(path).problems] == ["a recovery of this journal was cut short"]
    clock.forward(60)
    found = recover(path, node="node", clock=clock, target=LocalTarget(tmp_path / "segments"))
    assert (found.records, found.states, found.missing) == (4, 1, [])
    again = open_journal(path=path)
    assert again.epoch == found.epoch != found.old_epoch
    assert [record.id for record in again.read(RecordQuery())] == [b"0", b"1", b"2", b"3"]
    assert again.get_state("s", b"k") == b"v"
    aside = {Path(name).name: Path(name).read_bytes() for name in found.quarantined}
    assert {name.rpartition("Z")[2] for name in aside} == {"", "-wal", "-shm", "-mark"}
    if not opens:  # opening it in between moved bytes from its log to the database
        assert {end: aside[f"journal.db.corrupt-20231114T221320Z{end}"] for end in before} == before


def test_what_was_recovered_stays_written_beside_what_was_put_aside(tmp_path: Path, clock: HandClock) -> None:
    path = killed(tmp_path)
    found = recover(path, node="node", clock=clock, target=LocalTarget(tmp_path / "segments"))
    [report] = tmp_path.glob("journal.db.corrupt-*Z.json")
    assert msgspec.json.decode(report.read_bytes(), type=Recovery) == found


def test_a_backup_comes_back_on_a_machine_that_has_nothing_yet(
    tmp_path: Path, open_journal: Open, clock: HandClock
) -> None:
    path = killed(tmp_path)
    backup(path, tmp_path / "copy.db")
    new = tmp_path / "new" / "data" / "journal.db"
    target = LocalTarget(tmp_path / "segments")
    found = recover(new, node="node", clock=clock, target=target, source=tmp_path / "copy.db")
    assert (found.quarantined, found.records, found.missing) == ([], 4, [])
    assert [record.id for record in open_journal(path=new).read(RecordQuery())] == [b"0", b"1", b"2", b"3"]
