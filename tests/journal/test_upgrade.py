"""A journal that version 1 of the format made, opened today. The file was written by the program of that time: 90 records
of three topics, seven keys and five publishers, every tenth refused, every fourth free again after ten seconds; the terms
of ten records had not reached their table.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from syncline.core.errors import SynclineError
from syncline.core.ports import RecordQuery
from syncline.journal import Journal
from syncline.journal.database import connect, read_about
from syncline.journal.reading import reading
from syncline.journal.recover import recover
from syncline.journal.targets import LocalTarget
from syncline.journal.verify import verify
from tests.journal.conftest import HandClock, arrival

Open = Callable[..., Journal]
OLD = Path(__file__).parent / "data" / "version-1.db.gz"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "journal.db"
    path.write_bytes(gzip.decompress(OLD.read_bytes()))
    return path


def version(path: Path) -> int:
    connection = connect(path)
    try:
        return read_about(connection, path, oldest=1).version
    finally:
        connection.close()


@pytest.mark.parametrize("size", [7, 32_768])
def test_everything_is_there_and_found(
    path: Path, open_journal: Open, clock: HandClock, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr("syncline.core.limits.JOURNAL_RUN_RECORDS", size)
    journal = open_journal()
    assert (version(path), journal.newest(), journal.statistics()["runs"]) == (2, 90, -(-90 // size))
    assert [record.id for record in journal.read(RecordQuery())] == [b"%d" % n for n in range(90)]
    asked: list[tuple[RecordQuery, range]] = [
        (RecordQuery(topic="t1"), range(1, 90, 3)),
        (RecordQuery(key="k2"), range(2, 90, 7)),
        (RecordQuery(publisher="p4", seq_from=20, seq_to=50), range(24, 51, 5)),
        (RecordQuery(id=b"89"), range(89, 90)),
    ]
    for query, numbers in asked:
        assert [record.seq for record in journal.read(query)] == list(numbers)
    assert journal.get_state("s", b"serial") == b"89"
    assert verify(path).problems == []
    clock.time += 11_000_000
    for n in range(90):  # refused ones took no name, and every fourth is free by now
        (receipt,) = journal.append_sync([arrival(b"%d" % n, peer=str(n))])
        assert receipt.accepted == (n % 10 == 9 or n % 4 == 0)
    journal.close()
    assert verify(path).problems == []


def test_whoever_only_reads_is_told_what_to_do_and_changes_nothing(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(SynclineError, match="has version 1, this program knows version 2") as refused, reading(path):
        pass
    assert refused.value.hint == "start the node, which brings it up to date"
    assert path.read_bytes() == before


def test_a_journal_of_the_future_is_left_alone(path: Path, open_journal: Open) -> None:
    open_journal().close()
    connection = connect(path, write=True)
    connection.execute("UPDATE about SET version = 3")
    connection.close()
    with pytest.raises(SynclineError, match="has version 3, this program knows version 2") as refused:
        open_journal()
    assert refused.value.hint == "use the version of syncline that made it"


def test_killed_in_the_middle_it_is_as_it_was_and_done_the_next_time(path: Path, open_journal: Open) -> None:
    program = (
        "import sys; from pathlib import Path; from syncline.core.clock import SystemClock;"
        "from syncline.journal import Journal; Journal.open(Path(sys.argv[1]), node='node', clock=SystemClock())"
    )
    armed = {**os.environ, "SYNCLINE_CRASH_AT": "journal.before-upgrade"}
    killed = subprocess.run([sys.executable, "-c", program, str(path)], env=armed, check=False)
    assert (killed.returncode, version(path)) == (-9, 1)
    assert [record.seq for record in open_journal().read(RecordQuery(topic="t0"))] == list(range(0, 90, 3))
    assert verify(path).problems == []


def test_a_damaged_one_is_recovered_into_a_new_one(path: Path, tmp_path: Path, open_journal: Open) -> None:
    done = recover(path, node="node", clock=HandClock(), target=LocalTarget(tmp_path / "segments"))
    assert (done.records, done.states, done.missing) == (90, 1, [])
    journal = open_journal()
    assert [record.id for record in journal.read(RecordQuery(key="k6"))] == [b"%d" % n for n in range(6, 90, 7)]
