from __future__ import annotations

from collections.abc import Callable

import pytest

from syncline.core.errors import OverloadedError
from syncline.core.limits import HOUR, SECOND
from syncline.core.ports import RecordQuery
from syncline.core.record import Arrival
from syncline.core.settings import JournalSettings
from syncline.core.verdict import Outcome, Reason
from syncline.journal import Journal
from tests.journal.conftest import HandClock, arrival

Open = Callable[..., Journal]
TWO = JournalSettings(refused_per_peer_hour=2)


def forged(n: int, peer: str = "peer") -> Arrival:
    return arrival(b"%d" % n, verdict=Outcome.REJECT, reason=Reason.INVALID_SIGNATURE, peer=peer)


def kept(journal: Journal, *arrivals: Arrival) -> list[bool]:
    return [receipt.record is not None for receipt in journal.append_sync(arrivals)]


def test_rejects_over_the_cap_of_a_peer_are_only_counted(open_journal: Open) -> None:
    journal = open_journal(settings=TWO)
    receipts = journal.append_sync([forged(n) for n in range(5)])
    assert [receipt.record and receipt.record.lsn for receipt in receipts] == [1, 2, None, None, None]
    assert receipts[4].arrival.reason is Reason.INVALID_SIGNATURE
    assert kept(journal, forged(9, peer="another")) == [True]
    assert journal.statistics()["refused_counted"] == 3
    assert [record.lsn for record in journal.read(RecordQuery())] == [1, 2, 3]


def test_accepted_messages_of_a_peer_over_its_cap_are_kept(open_journal: Open) -> None:
    journal = open_journal(settings=TWO)
    assert kept(journal, *(forged(n) for n in range(4)), arrival(b"good")) == [True, True, False, False, True]


def test_repeats_of_a_message_count_against_the_cap(open_journal: Open) -> None:
    journal = open_journal(settings=TWO)
    assert kept(journal, *(arrival(b"x") for _ in range(5))) == [True, True, True, False, False]


def test_a_new_hour_brings_a_new_share(open_journal: Open, clock: HandClock) -> None:
    journal = open_journal(settings=TWO)
    assert kept(journal, *(forged(n) for n in range(3))) == [True, True, False]
    clock.time += HOUR
    assert kept(journal, forged(3)) == [True]


def test_a_restart_neither_refills_the_share_nor_forgets_the_count(open_journal: Open) -> None:
    journal = open_journal(settings=TWO)
    kept(journal, *(forged(n) for n in range(3)))
    journal.close()
    journal = open_journal(settings=TWO)
    assert kept(journal, forged(4)) == [False]
    assert journal.statistics()["refused_counted"] == 2


def test_peers_beyond_the_cap_on_names_share_one_share(open_journal: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.core.limits.REFUSED_PEERS", 3)
    journal = open_journal(settings=TWO)
    assert all(kept(journal, *(forged(n, peer=f"p{n}") for n in range(3))))
    assert kept(journal, *(forged(n, peer=f"sybil{n}") for n in range(5))) == [True, True, False, False, False]


def test_a_filling_disk_stops_rejects_first_and_then_everything(open_journal: Open, clock: HandClock) -> None:
    free = [10_000]
    settings = JournalSettings(disk_free_rejects=1_000, disk_free_all=100)
    journal = open_journal(settings=settings, free_space=lambda folder: free[0])
    assert kept(journal, forged(1), arrival(b"1")) == [True, True]
    free[0] = 999
    clock.time += SECOND
    assert kept(journal, forged(2), arrival(b"2")) == [False, True]
    assert journal.statistics()["intake"] == 1
    free[0] = 99
    clock.time += SECOND
    with pytest.raises(OverloadedError, match="almost full") as error:
        journal.append_sync([arrival(b"3")])
    assert error.value.retry
    assert "free space" in error.value.hint
    assert journal.statistics()["intake"] == 2
    assert journal.statistics()["disk_free_bytes"] == 99
    free[0] = 10_000
    clock.time += SECOND
    assert kept(journal, forged(3), arrival(b"3")) == [True, True]
