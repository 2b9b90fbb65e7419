from __future__ import annotations

from collections.abc import Callable

import pytest

from syncline.core.limits import HOUR, SECOND
from syncline.core.ports import RecordQuery, StateChange
from syncline.core.settings import JournalSettings
from syncline.core.verdict import Outcome, Reason
from syncline.journal import Journal
from syncline.journal.verify import verify
from tests.journal.conftest import NOW, HandClock, arrival

Open = Callable[..., Journal]
ONE_HOUR = JournalSettings(retention_hours=1)


def ids(journal: Journal) -> list[bytes]:
    return [record.id for record in journal.read(RecordQuery())]


def sweep(journal: Journal) -> None:
    """Sweep until there is nothing more to remove. The journal itself may have removed some already."""
    while journal.sweep().more:
        pass


def test_what_is_sealed_and_old_is_removed_but_never_the_newest(open_journal: Open, clock: HandClock) -> None:
    journal = open_journal(settings=ONE_HOUR)
    journal.append_sync([arrival(b"%d" % n) for n in range(10)])
    journal.seal(6)
    sweep(journal)
    assert len(ids(journal)) == 10
    clock.time += HOUR + 1
    sweep(journal)
    assert ids(journal) == [b"6", b"7", b"8", b"9"]
    journal.seal(10)
    sweep(journal)
    assert ids(journal) == [b"9"]
    assert verify(journal.path).sound


def test_what_still_lives_stays(open_journal: Open, clock: HandClock) -> None:
    journal = open_journal(settings=ONE_HOUR)
    journal.append_sync([arrival(b"long", expires_at=NOW + 3 * HOUR), arrival(b"short", expires_at=NOW + 1), arrival()])
    journal.seal(3)
    clock.time += HOUR + 1
    sweep(journal)
    assert ids(journal) == [b"long", b"id"]
    clock.time += 2 * HOUR
    sweep(journal)
    assert ids(journal) == [b"id"]


def test_a_removed_id_may_come_again(open_journal: Open, clock: HandClock) -> None:
    journal = open_journal(settings=ONE_HOUR)
    journal.append_sync([arrival(b"x"), arrival(b"y")])
    journal.seal(2)
    clock.time += HOUR + 1
    assert not journal.append_sync([arrival(b"x", received_at=clock.time)])[0].accepted
    sweep(journal)
    assert journal.append_sync([arrival(b"x", received_at=clock.time)])[0].accepted
    assert verify(journal.path).sound


def test_refused_records_go_too(open_journal: Open, clock: HandClock) -> None:
    journal = open_journal(settings=ONE_HOUR)
    refused = [arrival(b"%d" % n, verdict=Outcome.REJECT, reason=Reason.MALFORMED) for n in range(4)]
    journal.append_sync(refused)
    journal.seal(4)
    clock.time += HOUR + 1
    sweep(journal)
    assert ids(journal) == [b"3"]


def test_one_sweep_does_bounded_work(open_journal: Open, clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.core.limits.JOURNAL_SWEEP_RECORDS", 4)
    journal = open_journal(settings=ONE_HOUR)
    state = [StateChange(space="s", key=b"%d" % n, value=b"", expires_at=NOW + 1) for n in range(10)]
    living = [arrival(b"live%d" % n, expires_at=NOW + 9 * HOUR, received_at=NOW - 100 + n) for n in range(9)]
    journal.append_sync([*living, *(arrival(b"%d" % n, received_at=NOW + n) for n in range(10))], state)
    journal.seal(19)
    clock.time += 2 * HOUR
    while (swept := journal.sweep()).more:
        assert swept.records <= 4
        assert swept.states <= 4
    assert len(ids(journal)) == 10  # nine that live, and the newest
    assert journal.scan_state("s") == []


def test_the_journal_sweeps_by_itself(open_journal: Open, clock: HandClock) -> None:
    journal = open_journal(settings=ONE_HOUR)
    journal.append_sync([arrival(b"1"), arrival(b"2")])
    journal.seal(2)
    clock.time += HOUR + SECOND
    for n in range(3):
        journal.append_sync([arrival(b"later%d" % n, received_at=clock.time)])
        clock.time += SECOND
    journal.append_sync([arrival(b"last", received_at=clock.time)])
    assert ids(journal)[0] == b"later0"


def test_expired_state_is_swept(open_journal: Open, clock: HandClock) -> None:
    journal = open_journal()
    journal.append_sync([], [StateChange(space="s", key=b"k", value=b"v", expires_at=NOW + 1)])
    assert verify(journal.path).states == 1
    clock.time = NOW + 1
    journal.sweep()
    assert verify(journal.path).states == 0
