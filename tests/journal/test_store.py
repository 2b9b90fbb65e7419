from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest

from syncline.core.errors import ClosedError, ConflictError, UsageError
from syncline.core.ports import RecordQuery, StateChange
from syncline.core.record import SEQ_MAX, Direction
from syncline.core.verdict import Outcome, Reason
from syncline.formats.records import to_arrow
from syncline.journal import Journal
from tests.journal.conftest import NOW, HandClock, arrival

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
