from __future__ import annotations

from collections.abc import Callable

import apsw
import pytest

from syncline.core.errors import CorruptionError
from syncline.core.ports import RecordQuery
from syncline.journal import Journal
from syncline.journal.reading import reading
from syncline.journal.runs import Run, write_chunks, write_run
from syncline.journal.submissions import Job
from syncline.journal.terms import FOREVER, NAME
from syncline.journal.verify import verify
from syncline.journal.verify_terms import TermsCheck
from tests.journal.conftest import arrival, execute

Open = Callable[..., Journal]


@pytest.fixture
def indexed(open_journal: Open, monkeypatch: pytest.MonkeyPatch) -> Journal:
    """A journal with two runs and more."""
    monkeypatch.setattr("syncline.core.limits.JOURNAL_RUN_RECORDS", 40)
    monkeypatch.setattr("syncline.core.limits.JOURNAL_SLICE_RECORDS", 1)
    journal = open_journal()
    for n in range(120):
        journal.append_sync([arrival(b"%d" % n, key="k", publisher=f"p{n % 3}", seq=n)])
    assert journal.statistics()["runs"] == 2
    assert verify(journal.path).problems == []
    return journal


def problems(journal: Journal) -> list[str]:
    return [found.what for found in verify(journal.path).problems]


def put_twins(journal: Journal) -> None:
    """Ten records, of which the first and the second are in runs, under one name."""
    journal.append_sync([arrival(b"%d" % n) for n in range(10)])

    def put(connection: apsw.Connection) -> None:
        for lsn in (1, 2):
            entry = NAME + bytes(16) + lsn.to_bytes(8, "big") + FOREVER.to_bytes(8, "big")
            write_chunks(connection, lsn, NAME, entry)
            write_run(connection, Run(lsn, lsn - 1, lsn, 1))

    journal._writer.call(Job(put))


def test_two_live_records_of_one_id_are_named(journal: Journal) -> None:
    put_twins(journal)
    assert problems(journal) == ["records 1 and 2 are accepted under the same id"]


@pytest.mark.parametrize("removed", [1, 2])
def test_a_name_that_was_free_when_it_came_again_is_no_problem(journal: Journal, removed: int) -> None:
    """A run keeps the entries of records that are removed."""
    put_twins(journal)
    execute(journal, f"DELETE FROM records WHERE lsn = {removed}")
    found: list[str] = []
    with reading(journal.path) as look:
        TermsCheck(look, found.append).check_names()
    assert found == []


def test_runs_that_overlap_or_count_wrongly_are_named(indexed: Journal) -> None:
    execute(indexed, "UPDATE runs SET last = last + 5 WHERE run = 1")
    found = problems(indexed)
    assert "the runs of terms overlap" in found
    assert "run 1 of terms counts 40 records, but 45 are there" in found


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        ("UPDATE terms SET entries = zeroblob(length(entries))", "terms of run 1 do not match their checksum"),
        ("UPDATE terms SET entries = substr(entries, 1, 50)", "terms of run 1 do not match their checksum"),
        ("UPDATE terms SET first = CAST(first || x'00' AS BLOB)", "terms of run 1 do not match their checksum"),
        ("DELETE FROM terms", "record 1 is not found by all of its terms"),
        ("UPDATE terms SET run = 3", "record 1 is not found by all of its terms"),
    ],
)
def test_a_damaged_run_is_named(indexed: Journal, damage: str, named: str) -> None:
    execute(indexed, f"{damage} WHERE run = 1 AND first >= x'6b' AND first < x'6c'")
    assert named in problems(indexed)


def test_a_damaged_run_gives_an_error_and_no_answer(indexed: Journal) -> None:
    execute(indexed, "UPDATE terms SET crc = crc + 1 WHERE run = 1")
    with pytest.raises(CorruptionError, match="do not match their checksum"):
        indexed.read(RecordQuery(key="k"))
    indexed.close()
    with pytest.raises(CorruptionError, match="do not match their checksum"):
        Journal.open(indexed.path, node="node", clock=indexed._clock)


def test_a_record_that_retention_took_meanwhile_is_not_missed(journal: Journal) -> None:
    journal.append_sync([arrival(b"%d" % n) for n in range(60)])
    found: list[str] = []
    with reading(journal.path) as look:
        [rows] = look.pages(RecordQuery(limit=1_000))
        look.about = look.about._replace(indexed=60)  # whose terms are in no run: as if removed with their rows
        execute(journal, "DELETE FROM records WHERE lsn < 60")
        TermsCheck(look, found.append).check_records(rows)
    assert found == ["record 60 is not found by all of its terms"]


def test_runs_that_were_joined_meanwhile_are_not_missed(indexed: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records are read before their terms go to another run, and checked after that."""
    index = indexed._index
    monkeypatch.setattr("syncline.core.limits.JOURNAL_RUN_RECORDS", 1_000)
    found: list[str] = []
    with reading(indexed.path) as look:
        rows = [row for page in look.pages(RecordQuery(limit=1_000)) for row in page]
        check = TermsCheck(look, found.append)
        check.check_records(rows[:10])
        indexed._writer.call(Job(lambda connection: index.forget(connection, []), index.settle))
        assert index.count == 1
        check.check_records(rows[10:])
        check.check_runs()
        check.check_names()
    assert found == []
