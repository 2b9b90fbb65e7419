from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from syncline.core.ports import RecordQuery
from syncline.core.verdict import Outcome, Reason
from syncline.journal import Journal
from syncline.journal.verify import verify
from tests.journal.conftest import HandClock, arrival

Open = Callable[..., Journal]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few names wait in memory, so that they are merged into the table all the time."""
    monkeypatch.setattr("syncline.core.limits.JOURNAL_TERMS_WAITING", 40)
    monkeypatch.setattr("syncline.core.limits.JOURNAL_TERMS_SLICE", 8)
    monkeypatch.setattr("syncline.core.limits.JOURNAL_UNFILED", 6)


def test_names_move_to_the_table_and_stay_taken(open_journal: Open) -> None:
    journal = open_journal()
    for n in range(300):
        assert journal.append_sync([arrival(b"%d" % n)])[0].accepted
    assert journal.statistics()["terms_waiting"] <= 100
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


@pytest.mark.parametrize("unfiled", [0, 5, 10_000])
def test_what_was_answered_is_found_at_once_while_others_write(
    open_journal: Open, monkeypatch: pytest.MonkeyPatch, unfiled: int
) -> None:
    """However many records have no terms yet, by whomever and whenever they are made."""
    monkeypatch.setattr("syncline.core.limits.JOURNAL_UNFILED", unfiled)
    monkeypatch.setattr("syncline.core.limits.JOURNAL_FILED_AT_ONCE", 3)
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
