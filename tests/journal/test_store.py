from __future__ import annotations

import errno
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from syncline.core.errors import ClosedError, ConflictError, CorruptionError, UnavailableError, UsageError
from syncline.core.ports import RecordQuery, StateChange
from syncline.core.record import SEQ_MAX, Direction
from syncline.core.verdict import Outcome, Reason
from syncline.formats.records import to_arrow
from syncline.journal import Journal
from syncline.journal.backup import backup
from syncline.journal.database import connect
from syncline.journal.mark import read_mark
from syncline.journal.submissions import Job
from tests.journal.conftest import NOW, HandClock, arrival, execute

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["trio", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_what_was_appended_is_read_back_the_same(journal: Journal) -> None:
    full = arrival(
        b"\x00\xff", key="object", publisher="author", seq=SEQ_MAX, published_at=NOW - 1, expires_at=NOW + 1,
        direction=Direction.OUT, raw=b"",
    )  # fmt: skip
    receipts = await journal.append([full, arrival(b"2", raw=None)])
    assert [receipt.record.lsn for receipt in receipts if receipt.record] == [1, 2]
    assert journal.read(RecordQuery()) == [receipt.record for receipt in receipts]
    assert journal.read(RecordQuery())[0].seq == SEQ_MAX


async def test_concurrent_appends_are_numbered_without_holes(journal: Journal) -> None:
    async def append(n: int) -> None:
        await journal.append([arrival(b"%d/%d" % (n, m)) for m in range(3)])

    async with anyio.create_task_group() as tasks:
        for n in range(50):
            tasks.start_soon(append, n)
    assert [record.lsn for record in journal.read(RecordQuery())] == list(range(1, 151))
    assert journal.newest() == 150


async def test_a_failed_expectation_refuses_one_submission_and_no_other(journal: Journal) -> None:
    change = StateChange(space="s", key=b"k", value=b"1", expect=None)
    await journal.append([arrival(b"1")], [change])
    with pytest.raises(ConflictError):
        await journal.append([arrival(b"2")], [StateChange(space="s", key=b"other", value=b"x"), change])
    await journal.append([arrival(b"3")], [StateChange(space="s", key=b"k", value=b"2", expect=b"1")])
    assert [record.id for record in journal.read(RecordQuery())] == [b"1", b"3"]
    assert journal.scan_state("s") == [(b"k", b"2")]


async def test_state_expires_and_is_scanned_by_prefix(journal: Journal, clock: HandClock) -> None:
    await journal.append(
        [],
        [StateChange(space="s", key=key, value=key) for key in (b"a1", b"a2", b"b", b"\xff\xff", b"\xff")]
        + [StateChange(space="s", key=b"a3", value=b"!", expires_at=NOW + 10)],
    )
    assert [key for key, _ in journal.scan_state("s", b"a")] == [b"a1", b"a2", b"a3"]
    assert [key for key, _ in journal.scan_state("s", b"\xff")] == [b"\xff", b"\xff\xff"]
    clock.time = NOW + 10
    assert journal.get_state("s", b"a3") is None
    assert [key for key, _ in journal.scan_state("s", b"a")] == [b"a1", b"a2"]


async def test_a_live_id_is_accepted_once(journal: Journal, clock: HandClock) -> None:
    first, again = await journal.append([arrival(b"x", expires_at=NOW + 5), arrival(b"x")])
    (later,) = await journal.append([arrival(b"x")])
    assert first.accepted
    for receipt in (again, later):
        assert (receipt.arrival.verdict, receipt.arrival.reason) == (Outcome.IGNORE, Reason.DUPLICATE)
        assert receipt.record is not None
        assert receipt.record.raw is None
    clock.time = NOW + 5
    (renewed,) = await journal.append([arrival(b"x")])
    assert renewed.accepted


async def test_a_forged_copy_that_arrives_first_does_not_keep_the_honest_message_out(journal: Journal) -> None:
    forged = arrival(b"x", verdict=Outcome.REJECT, reason=Reason.INVALID_SIGNATURE)
    ignored = arrival(b"x", verdict=Outcome.IGNORE, reason=Reason.RATE_LIMITED, raw=None)
    receipts = await journal.append([forged, ignored, arrival(b"x")])
    assert [receipt.accepted for receipt in receipts] == [False, False, True]


async def test_a_waiter_wakes_at_the_next_record(journal: Journal) -> None:
    seen = []

    async def tail() -> None:
        seen.append(await journal.wait(0))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tail)
        await anyio.wait_all_tasks_blocked()
        assert seen == []
        await journal.append([arrival()])
    assert seen == [1]


async def test_numbering_goes_on_after_reopening(open_journal: Callable[..., Journal]) -> None:
    journal = open_journal()
    epoch = journal.epoch
    await journal.append([arrival(b"1")])
    journal.close()
    with pytest.raises(ClosedError):
        await journal.append([arrival(b"2")])
    journal = open_journal()
    (receipt,) = await journal.append([arrival(b"2")])
    assert receipt.record is not None
    assert (receipt.record.epoch, receipt.record.lsn) == (epoch, 2)


def test_threads_append_too(journal: Journal) -> None:
    (receipt,) = journal.append_sync([arrival()])
    assert receipt.record == journal.read(RecordQuery())[0]


def test_arrow_batches_hold_the_same_rows_as_records(journal: Journal) -> None:
    journal.append_sync([arrival(b"%d" % n, seq=None if n % 3 else SEQ_MAX - n, expires_at=NOW + n) for n in range(25)])
    batches = list(journal.batches(RecordQuery(), rows=10))
    assert [batch.num_rows for batch in batches] == [10, 10, 5]
    records = journal.read(RecordQuery())
    assert batches[2] == to_arrow(records[20:])


def test_another_nodes_journal_is_refused(open_journal: Callable[..., Journal]) -> None:
    open_journal().close()
    with pytest.raises(UsageError, match="belongs to node"):
        open_journal(node="other")


async def test_a_full_queue_makes_callers_wait_and_loses_nobody(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncline.core.limits.JOURNAL_QUEUE_MAX", 3)
    monkeypatch.setattr("syncline.core.limits.JOURNAL_COMMIT_RECORDS", 2)
    lsns: list[int] = []

    async def append(n: int) -> None:
        (receipt,) = await journal.append([arrival(b"%d" % n)])
        assert receipt.record is not None
        lsns.append(receipt.record.lsn)

    async with anyio.create_task_group() as tasks:
        for n in range(40):
            tasks.start_soon(append, n)
        assert len(journal._writer.queue) <= 3
    assert sorted(lsns) == list(range(1, 41))
    assert journal.statistics()["largest_group"] <= 2


async def test_appends_of_one_task_keep_their_order_among_those_of_others(journal: Journal) -> None:
    async def append(name: bytes) -> None:
        for n in range(20):
            await journal.append([arrival(b"%b %d" % (name, n), topic=name.decode(), seq=n)])

    async with anyio.create_task_group() as tasks:
        for name in (b"a", b"b", b"c"):
            tasks.start_soon(append, name)
    for topic in "abc":
        assert [record.seq for record in journal.read(RecordQuery(topic=topic))] == list(range(20))


async def test_a_cancelled_append_disturbs_nobody(journal: Journal) -> None:
    with anyio.move_on_after(0):
        await journal.append([arrival(b"cancelled")])
    (receipt,) = await journal.append([arrival(b"after")])
    assert receipt.accepted
    assert [record.lsn for record in journal.read(RecordQuery())] in ([1], [1, 2])


async def test_closing_commits_what_is_queued_and_wakes_who_waits(open_journal: Callable[..., Journal]) -> None:
    journal = open_journal()
    refused = []

    async def tail() -> None:
        try:
            await journal.wait(10)
        except ClosedError:
            refused.append(True)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tail)
        tasks.start_soon(journal.append, [arrival(b"queued")])
        await anyio.wait_all_tasks_blocked()
        await anyio.to_thread.run_sync(journal.close)
    assert refused == [True]
    assert open_journal().newest() == 1


async def test_state_alone_is_kept_without_a_record(open_journal: Callable[..., Journal]) -> None:
    journal = open_journal()
    assert await journal.append([], [StateChange(space="s", key=b"k", value=b"v")]) == []
    journal.close()
    assert open_journal().get_state("s", b"k") == b"v"


async def test_expectations_see_the_changes_before_them_in_the_same_append(journal: Journal) -> None:
    def change(value: bytes | None, expect: bytes | None) -> StateChange:
        return StateChange(space="s", key=b"k", value=value, expect=expect)

    await journal.append([], [change(b"1", None), change(b"2", b"1"), change(None, b"2"), change(b"3", None)])
    assert journal.get_state("s", b"k") == b"3"
    with pytest.raises(ConflictError):
        await journal.append([], [change(b"4", b"3"), change(b"5", b"3")])
    assert journal.get_state("s", b"k") == b"3"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"seq": -1}, "seq must lie between"),
        ({"seq": 2**64}, "seq must lie between"),
        ({"topic": "t" * 1025}, "at most 1024 characters"),
        ({"id": bytes(4161)}, "at most 4160 bytes"),
        ({"topic": "\ud800"}, "not Unicode"),
        ({"received_at": -1}, "times are microseconds"),
        ({"received_at": 2**60}, "before the year 10000"),
        ({"expires_at": 2**63}, "times are microseconds"),
        ({"protocol": "../up"}, "letters, digits"),
        ({"protocol": ""}, "letters, digits"),
        ({"verdict": Outcome.REJECT}, "needs a reason"),
    ],
)
async def test_what_the_journal_cannot_hold_is_refused_whole(
    journal: Journal, fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        await journal.append([arrival(b"good"), arrival(**fields)])
    assert journal.newest() == 0


async def test_an_ignored_message_is_a_row_without_raw_bytes(journal: Journal) -> None:
    (receipt,) = await journal.append([arrival(verdict=Outcome.IGNORE, reason=Reason.NOT_SUBSCRIBED, raw=b"dropped")])
    assert receipt.arrival.raw is None
    assert journal.read(RecordQuery())[0].raw is None


async def test_large_raw_bytes_are_kept_beside_the_database(journal: Journal) -> None:
    raw = bytes(range(256)) * 5_000
    (receipt,) = await journal.append([arrival(raw=raw)])
    (record,) = journal.read(RecordQuery())
    assert record == receipt.record
    assert (record.raw, record.raw_ref) == (None, sha256(raw).hexdigest())
    assert journal.raw(record) == raw
    assert record.raw_ref is not None
    path = journal.path.parent / "blobs" / record.raw_ref[:2] / record.raw_ref
    path.write_bytes(raw[:-1])
    with pytest.raises(CorruptionError, match="do not match their hash"):
        journal.raw(record)


async def test_a_flood_of_large_rejects_leaves_no_blobs(journal: Journal) -> None:
    (receipt,) = await journal.append([arrival(raw=bytes(2**20 + 1), verdict=Outcome.REJECT, reason=Reason.OVERSIZE)])
    assert receipt.record is not None
    assert (receipt.record.raw, receipt.record.raw_ref) == (None, None)
    assert not (journal.path.parent / "blobs").exists()


def test_a_second_writer_is_kept_out(open_journal: Callable[..., Journal]) -> None:
    open_journal()
    with pytest.raises(UnavailableError, match="another process has this journal open"):
        open_journal()


def test_many_threads_append_at_once(journal: Journal) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: journal.append_sync([arrival(b"%d" % n)])[0], range(200)))
    assert sorted(receipt.record.lsn for receipt in found if receipt.record) == list(range(1, 201))


def test_two_event_loops_share_one_journal(journal: Journal) -> None:
    async def some(name: bytes) -> None:
        for n in range(30):
            await journal.append([arrival(b"%b %d" % (name, n))])

    def loop(name: bytes) -> None:
        anyio.run(some, name, backend=name.decode())

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(loop, (b"trio", b"asyncio")))
    assert journal.newest() == 60


def test_an_epoch_is_sixteen_hex_digits_and_later_ones_sort_later(
    open_journal: Callable[..., Journal], tmp_path: Path, clock: HandClock
) -> None:
    first = open_journal(path=tmp_path / "1.db").epoch
    clock.forward(1)
    second = open_journal(path=tmp_path / "2.db").epoch
    assert re.fullmatch("[0-9a-f]{16}", first)
    assert first < second
    assert int(first[:12], 16) == NOW // 1_000


def test_a_file_that_is_no_journal_is_named_as_damage(open_journal: Callable[..., Journal], tmp_path: Path) -> None:
    (tmp_path / "journal.db").write_bytes(b"not a database" * 1_000)
    with pytest.raises(CorruptionError) as error:
        open_journal()
    assert error.value.exit_code == 4
    assert error.value.about == str(tmp_path / "journal.db")
    assert (tmp_path / "journal.db").read_bytes().startswith(b"not a database")


def test_damage_met_while_writing_stops_the_intake_and_is_shown(journal: Journal) -> None:
    journal.append_sync([arrival(b"1")], [StateChange(space="s", key=b"k", value=b"v")])
    execute(journal, "UPDATE state SET value = x'00'")
    for _ in range(2):
        with pytest.raises(CorruptionError, match="does not match its checksum"):
            journal.append_sync([], [StateChange(space="s", key=b"k", value=b"w", expect=b"v")])
    with pytest.raises(CorruptionError):
        journal.append_sync([arrival(b"2")])
    assert journal.statistics()["damaged"] == 1
    assert len(journal.read(RecordQuery())) == 1


@pytest.mark.parametrize(
    "query", [RecordQuery(topic="news"), RecordQuery(key="k0"), RecordQuery()], ids=["topic", "key", "lsn"]
)
def test_a_damaged_page_is_damage_by_whatever_way_it_is_read(
    open_journal: Callable[..., Journal], query: RecordQuery
) -> None:
    journal = open_journal()
    journal.append_sync([arrival(b"%d" % n, raw=bytes([n]) * 200, key=f"k{n % 2}") for n in range(200)])
    journal.close()
    journal = open_journal()
    data = bytearray(journal.path.read_bytes())
    data[data.index(bytes([48]) * 200)] ^= 1
    journal.path.write_bytes(data)
    with pytest.raises(CorruptionError, match="a page of the journal does not match its checksum"):
        journal.read(query)


async def test_whoever_waits_for_the_next_record_hears_of_damage(journal: Journal) -> None:
    journal.append_sync([arrival(b"1")], [StateChange(space="s", key=b"k", value=b"v")])
    heard: list[str] = []

    async def listen(wait: Callable[..., Any], *arguments: int) -> None:
        with pytest.raises(CorruptionError) as error:
            await wait(*arguments)
        heard.append(error.value.message)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen, journal.wait, 1)
            tasks.start_soon(listen, journal.damage)
            await anyio.wait_all_tasks_blocked()
            await anyio.to_thread.run_sync(execute, journal, "UPDATE state SET value = x'00'")
            assert heard == []  # nobody has met it yet
            with pytest.raises(CorruptionError):
                await journal.append([], [StateChange(space="s", key=b"k", value=b"w", expect=b"v")])
        await listen(journal.damage)
    assert len(heard) == 3
    assert len(set(heard)) == 1


def test_a_note_that_cannot_be_written_stops_nobody(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """The group is on disk by then, and whoever waits for it must hear so."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(journal._mark, "write", fail)
    assert journal.append_sync([arrival(b"a")])[0].lsn == 1
    monkeypatch.undo()
    assert journal.append_sync([arrival(b"b")])[0].lsn == 2
    assert journal.statistics()["failed_notes"] == 1


def test_an_answer_that_fails_before_the_first_record_leaves_the_next_append_its_turn(journal: Journal) -> None:
    """Whatever happens to one group, the thread that writes goes on, and counts from what is stored."""
    for state in ([], [StateChange(space="s", key=b"k", value=b"v")]):
        with pytest.raises(ZeroDivisionError):
            journal._writer.call(Job(lambda connection: 1 / 0))
        assert journal.append_sync([], state) == []
    assert journal.append_sync([arrival(b"a")])[0].lsn == 1
    assert read_mark(journal.path) == (journal.epoch, 1, journal._writer._quiet)


def test_a_journal_killed_while_it_was_made_gets_its_log_all_the_same(open_journal: Callable[..., Journal]) -> None:
    """Between the first commit and the change to a log lies an fsync, and there a kill may come."""
    journal = open_journal()
    journal.close()
    bare = connect(journal.path, write=True)
    bare.pragma("journal_mode", "delete")
    bare.close()
    again = open_journal()
    assert again._connection.pragma("journal_mode") == "wal"
    assert again.append_sync([arrival(b"a")])[0].lsn == 1


def test_a_backup_is_not_taken_for_the_journal_itself(open_journal: Callable[..., Journal], tmp_path: Path) -> None:
    journal = open_journal()
    journal.append_sync([arrival(b"a")])
    (tmp_path / "copy").mkdir()
    backup(journal.path, tmp_path / "copy" / "journal.db")
    with pytest.raises(UsageError, match="this is a backup") as error:
        open_journal(path=tmp_path / "copy" / "journal.db")
    assert "syncline journal recover" in error.value.hint


def test_every_commit_is_forced_to_disk(journal: Journal) -> None:
    assert journal._connection.pragma("synchronous") == 2  # FULL: before a commit is answered
    assert journal._connection.pragma("journal_mode") == "wal"


async def test_state_goes_with_its_records_and_the_last_value_under_a_key_counts(
    journal: Journal, open_journal: Callable[..., Journal]
) -> None:
    """The group that relays commit: nothing but accepted records and values. It takes its own way to the disk."""
    await journal.append([arrival(b"0")])  # the protocol is known from here on
    puts = [StateChange(space="s", key=b"k", value=b"%d" % n) for n in range(3)]
    await journal.append([arrival(b"1"), arrival(b"2")], [*puts, StateChange(space="s", key=b"l", value=b"")])
    await journal.append([arrival(b"3")], [StateChange(space="s", key=b"l", value=None)])
    journal.close()
    journal = open_journal()
    assert [record.id for record in journal.read(RecordQuery())] == [b"0", b"1", b"2", b"3"]
    assert journal.scan_state("s") == [(b"k", b"2")]


@pytest.mark.parametrize("records", [32_768, 1])
async def test_a_repeat_among_new_records_leaves_their_state_and_takes_no_number_twice(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, records: int
) -> None:
    """Found in memory when the first copy is among the newest records, in a run when it is older."""
    monkeypatch.setattr("syncline.core.limits.JOURNAL_RUN_RECORDS", records)
    monkeypatch.setattr("syncline.core.limits.JOURNAL_SLICE_RECORDS", 1)
    await journal.append([arrival(b"old")])
    for n in range(8):
        await journal.append([arrival(b"%d" % n)], [StateChange(space="s", key=b"%d" % n, value=b"filling")])
    name = journal._index.lexicon.name("echo", b"old")
    assert (journal._index._remembered(name) is None, bool(journal._index.filters.find([name]))) == 2 * (records == 1,)
    put = StateChange(space="s", key=b"k", value=b"kept")
    receipts = await journal.append([arrival(b"new"), arrival(b"old")], [put])
    assert [receipt.arrival.verdict for receipt in receipts] == [Outcome.ACCEPT, Outcome.IGNORE]
    assert [record.lsn for record in journal.read(RecordQuery())] == list(range(1, 12))
    assert journal.get_state("s", b"k") == b"kept"


async def test_no_statement_is_too_long_to_stay_prepared(journal: Journal) -> None:
    """One that is would be parsed again for every commit, at many times the cost of the commit."""
    await journal.append([arrival(b"first")])
    for size in (1, 8, 9, 100, 384, 385, 1_000):
        records = [arrival(b"%d of %d" % (n, size)) for n in range(size)]
        await journal.append(records, [StateChange(space="s", key=b"%d" % n, value=b"v") for n in range(size)])
    assert journal.newest() == 1 + 1 + 8 + 9 + 100 + 384 + 385 + 1_000
    assert len(journal.scan_state("s")) == 1_000
    assert journal._connection.cache_stats()["too_big"] == 0
