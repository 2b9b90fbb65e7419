from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import apsw
import pytest

from syncline.core.errors import UnavailableError
from syncline.core.limits import HOUR
from syncline.core.ports import RecordQuery
from syncline.core.settings import JournalSettings
from syncline.core.verdict import Outcome, Reason
from syncline.journal import Journal
from syncline.journal.submissions import Job
from syncline.journal.verify import verify
from tests.journal.conftest import NOW, HandClock, arrival

Open = Callable[..., Journal]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few records have their terms in memory, so that these become runs all the time."""
    monkeypatch.setattr("syncline.core.limits.JOURNAL_RUN_RECORDS", 20)
    monkeypatch.setattr("syncline.core.limits.JOURNAL_SLICE_RECORDS", 3)


def test_names_move_to_runs_and_stay_taken(open_journal: Open) -> None:
    journal = open_journal()
    for n in range(300):
        assert journal.append_sync([arrival(b"%d" % n)])[0].accepted
    statistics = journal.statistics()
    assert statistics["unindexed"] <= 45
    assert statistics["runs"] >= 12
    assert verify(journal.path).sound
    for n in range(300):
        (receipt,) = journal.append_sync([arrival(b"%d" % n, peer=str(n))])
        assert receipt.arrival.reason is Reason.DUPLICATE


def test_names_in_memory_are_found_again_after_reopening(open_journal: Open) -> None:
    journal = open_journal()
    for n in range(150):
        journal.append_sync([arrival(b"%d" % n)])
    journal.close()
    journal = open_journal()
    for n in range(150):
        assert not journal.append_sync([arrival(b"%d" % n)])[0].accepted


def test_random_traffic_accepts_exactly_what_a_dictionary_would(open_journal: Open, clock: HandClock) -> None:
    chance = random.Random(7)
    journal = open_journal()
    living: dict[tuple[str, bytes], int] = {}
    for step in range(250):
        batch = [
            arrival(
                b"%d" % chance.randrange(120),
                protocol=chance.choice(["a", "b"]),
                expires_at=chance.choice([None, clock.time + chance.randrange(1, 60)]),
                peer=str(step),
                verdict=chance.choice([Outcome.ACCEPT] * 4 + [Outcome.REJECT]),
                reason=Reason.MALFORMED,
            )
            for _ in range(chance.randrange(1, 6))
        ]
        for given, receipt in zip(batch, journal.append_sync(batch), strict=True):
            expected = given.verdict
            if given.accepted:
                name = (given.protocol, given.id)
                if living.get(name, 0) > clock.time:
                    expected = Outcome.IGNORE
                else:
                    living[name] = given.expires_at or 2**62
            assert receipt.arrival.verdict is expected
        clock.time += chance.randrange(3)
        if step % 100 == 99:
            journal.close()
            journal = open_journal()
    assert verify(journal.path).sound


def test_runs_go_with_their_records_and_small_ones_become_one(open_journal: Open, clock: HandClock) -> None:
    """Most records are removed after an hour, some live on; whatever is left is found, and what is not is free."""
    journal = open_journal(settings=JournalSettings(retention_hours=1))
    for n in range(400):
        lives_on = n % 50 == 0 or 200 <= n < 300
        journal.append_sync([arrival(b"%d" % n, key="k", expires_at=NOW + 3 * HOUR if lives_on else None)])
    before = journal.statistics()["runs"]
    journal.seal(400)
    clock.time += HOUR + 1
    while journal.sweep().more:
        pass
    left = [n for n in range(400) if n % 50 == 0 or 200 <= n < 300] + [399]
    for _ in range(20):  # a sweep that removes something joins two
        journal.append_sync([arrival(b"more", received_at=clock.time - HOUR - 1, expires_at=clock.time + 1)])
        journal.seal(journal.newest())
        clock.time += 2
        while journal.sweep().more:
            pass
    assert before >= 18
    assert journal.statistics()["runs"] <= 9
    assert verify(journal.path).problems == []
    kept = [int(record.id) for record in journal.read(RecordQuery(key="k"))]
    assert kept == left[:-1] or kept == left
    for n in range(0, 400, 7):
        (receipt,) = journal.append_sync([arrival(b"%d" % n, peer=str(n))])
        assert receipt.accepted == (n not in kept)
    journal.close()
    journal = open_journal()
    for n in kept:
        assert not journal.append_sync([arrival(b"%d" % n, peer=str(n))])[0].accepted


def test_the_same_id_in_another_protocol_is_another_message(journal: Journal) -> None:
    receipts = journal.append_sync([arrival(b"x", protocol="a"), arrival(b"x", protocol="b")])
    assert [receipt.accepted for receipt in receipts] == [True, True]


def test_a_query_by_id_finds_every_row_of_it_wherever_its_name_is(open_journal: Open, clock: HandClock) -> None:
    journal = open_journal()
    for n in range(3):
        journal.append_sync([arrival(b"x", expires_at=clock.time + 10), arrival(b"x")])
        journal.append_sync([arrival(b"fill %d %d" % (n, m)) for m in range(60)])
        clock.time += 10
    journal.append_sync([arrival(b"x", protocol="other")])
    found = journal.read(RecordQuery(id=b"x"))
    assert [record.verdict.value for record in found] == ["accept", "ignore"] * 3 + ["accept"]
    assert [record.protocol for record in journal.read(RecordQuery(id=b"x", protocol="other"))] == ["other"]
    assert len(journal.read(RecordQuery(id=b"x", verdict="accept"))) == 4
    assert journal.read(RecordQuery(id=b"unknown")) == []


@pytest.mark.parametrize("records", [1, 20, 10_000])
def test_what_was_answered_is_found_at_once_while_others_write(
    open_journal: Open, monkeypatch: pytest.MonkeyPatch, records: int
) -> None:
    """Wherever its terms are at the moment, and on whichever way from memory to a run."""
    monkeypatch.setattr("syncline.core.limits.JOURNAL_RUN_RECORDS", records)
    monkeypatch.setattr("syncline.core.limits.JOURNAL_SLICE_RECORDS", 1)
    journal = open_journal()

    def write_and_look(writer: int) -> None:
        for n in range(60):
            key, ids = f"{writer}-{n}", [b"%d %d %d" % (writer, n, m) for m in range(5)]
            journal.append_sync([arrival(id_, key=key, seq=n, publisher=str(writer)) for id_ in ids])
            assert [record.id for record in journal.read(RecordQuery(key=key))] == ids
            assert len(journal.read(RecordQuery(publisher=str(writer)))) == 5 * (n + 1)
            assert [record.id for record in journal.read(RecordQuery(id=ids[2]))] == [ids[2]]

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(write_and_look, writer) for writer in range(4)]:
            done.result()
    assert verify(journal.path).sound


def test_after_a_failed_commit_the_next_one_looks_first_at_what_is_stored(
    open_journal: Open, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs are joined on disk, but the answer is a failure, and so is the first look at what came of it."""
    journal = open_journal()
    for n in range(150):
        journal.append_sync([arrival(b"%d" % n)])
    index, reload, looks = journal._index, journal._index.reload, list[int]()
    monkeypatch.setattr("syncline.core.limits.JOURNAL_RUN_RECORDS", 1_000)

    def failing(connection: apsw.Connection) -> None:
        looks.append(len(looks))
        if len(looks) < 3:
            raise apsw.IOError("the disk failed")
        reload(connection)

    monkeypatch.setattr(index, "reload", failing)

    def join(connection: apsw.Connection) -> None:
        while len(index._memory[0]):
            index.settle(index.merge(connection))
        index.forget(connection, [])
        connection.execute("COMMIT")  # so that the writer's own fails

    with pytest.raises(apsw.SQLError, match="no transaction"):
        journal._writer.call(Job(join))
    with pytest.raises(UnavailableError):
        journal.append_sync([arrival(b"new")])
    for n in (0, 25, 149):  # in the joined run, and in memory
        assert not journal.append_sync([arrival(b"%d" % n, peer=str(n))])[0].accepted
    assert looks == [0, 1, 2]
    assert journal.append_sync([arrival(b"new")])[0].accepted
    assert verify(journal.path).problems == []


def test_terms_that_became_a_run_though_their_commit_seemed_to_fail_are_in_one_run_only(open_journal: Open) -> None:
    journal = open_journal()
    index, n = journal._index, 0
    while not len(index._memory[0]):
        journal.append_sync([arrival(b"%d" % n)])
        n += 1
    before = index.count

    def become(connection: apsw.Connection) -> None:
        while (change := index.merge(connection)).indexed is None:
            index.settle(change)
        connection.execute("COMMIT")  # so that the writer's own fails

    with pytest.raises(apsw.SQLError, match="no transaction"):
        journal._writer.call(Job(become))
    assert (index.count, len(index._memory[0])) == (before + 1, 0)
    for known in range(n):
        assert not journal.append_sync([arrival(b"%d" % known, peer=str(known))])[0].accepted
    assert len({run.number for run in index._runs}) == index.count
    assert verify(journal.path).problems == []
