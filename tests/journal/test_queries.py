from __future__ import annotations

import random
from typing import Any

import pytest

from syncline.core.errors import UsageError
from syncline.core.ports import RecordQuery
from syncline.core.record import SEQ_MAX, Record
from syncline.core.verdict import Outcome, Reason
from syncline.journal import Journal, queries
from syncline.journal.reading import reading
from tests.journal.conftest import NOW, arrival


def matches(record: Record, query: RecordQuery) -> bool:
    """What the query means, said plainly."""
    return (
        record.lsn > query.after
        and (query.before is None or record.lsn < query.before)
        and all(
            getattr(query, field) in (None, getattr(record, field))
            for field in ("protocol", "topic", "kind", "key", "publisher", "id", "verdict", "reason")
        )
        and (query.seq_from is None or (record.seq is not None and record.seq >= query.seq_from))
        and (query.seq_to is None or (record.seq is not None and record.seq <= query.seq_to))
        and (query.received_from is None or record.received_at >= query.received_from)
        and (query.received_to is None or record.received_at < query.received_to)
    )


@pytest.mark.parametrize("narrow", [{}, {"topic": "a"}, {"received_from": NOW}, {"topic": "a", "key": "k"}])
def test_an_answer_ends_at_its_bytes_and_goes_on_after_its_last_record(
    journal: Journal, indexed: str, narrow: dict[str, Any]
) -> None:
    for start in range(0, 60, 10):
        journal.append_sync([
            arrival(b"%d" % n, topic="a", key="k", raw=bytes(n * 10), received_at=NOW + n)
            for n in range(start, start + 10)
        ])  # fmt: skip
    everything = journal.read(RecordQuery(**narrow))
    assert len(everything) == 60
    pages, after = [], 0
    while True:
        query = RecordQuery(**narrow, after=after, raw_bytes=1_000)
        pages.append(journal.read(query))
        if not query.cuts_off(pages[-1]):
            break
        after = pages[-1][-1].lsn
    assert [record for page in pages for record in page] == everything
    sizes = [[len(record.raw or b"") for record in page] for page in pages]
    assert all(sum(page[:-1]) < 1_000 <= sum(page) for page in sizes[:-1])
    [last] = journal.read(RecordQuery(**narrow, descending=True, raw_bytes=1))
    assert last == everything[-1]


@pytest.mark.parametrize("chunk", [3_840, 200])
def test_every_combination_of_conditions_finds_what_it_says(
    journal: Journal, indexed: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncline.core.limits.JOURNAL_CHUNK_BYTES", chunk)
    chance = random.Random(3)
    seqs = [None, 0, 1, 2**63, SEQ_MAX]
    for start in range(0, 200, 10):
        journal.append_sync([
            arrival(
                b"%d" % (n % 50), topic=chance.choice("ab"), kind=chance.choice("xy"), key=chance.choice(["", "k"]),
                publisher=chance.choice(["", "p", "q"]), seq=chance.choice(seqs), received_at=NOW + n % 11,
                protocol=chance.choice(["one", "two"]), verdict=chance.choice([Outcome.ACCEPT, Outcome.REJECT]),
                reason=Reason.MALFORMED,
            )
            for n in range(start, start + 10)
        ])  # fmt: skip
    in_runs = journal._index.indexed
    assert (in_runs == 0, in_runs >= 110) == (indexed == "in memory", indexed == "in runs")
    everything = journal.read(RecordQuery())
    values: dict[str, list[Any]] = {
        "after": [0, 50], "before": [None, 150], "protocol": [None, "one"], "topic": [None, "a"], "kind": [None, "x"],
        "key": [None, "", "k"], "publisher": [None, "", "p"], "seq_from": [None, 1, 2**63],
        "seq_to": [None, 2**63, SEQ_MAX], "received_from": [None, NOW + 3], "received_to": [None, NOW + 9],
        "id": [None, b"7"], "verdict": [None, "accept"], "reason": [None, None, "malformed"],
    }  # fmt: skip
    found = 0
    for _ in range(300):
        chosen = {name: chance.choice([options[0], *options]) for name, options in values.items()}
        query = RecordQuery(**chosen)
        expected = [record for record in everything if matches(record, query)]
        assert journal.read(query) == expected
        limited = RecordQuery(**chosen, limit=3, descending=True)
        assert journal.read(limited) == expected[::-1][:3]
        with reading(journal.path) as elsewhere:
            rows = [row for page in elsewhere.pages(query, rows=7) for row in page]
        assert [row[0] for row in rows] == [record.lsn for record in expected]
        found += len(expected)
    assert found > 1_000


def test_records_of_a_protocol_are_counted_behind_an_lsn(journal: Journal) -> None:
    journal.append_sync([
        arrival(b"%d" % n, protocol="even" if n % 2 == 0 else "odd", received_at=NOW + n) for n in range(10)
    ])  # fmt: skip
    assert journal.count_after("even", 0, 100) == (5, 1, NOW)
    assert journal.count_after("odd", 4, 100) == (3, 6, NOW + 5)
    assert journal.count_after("odd", 0, 2) == (2, 2, NOW + 1)  # no further than asked
    assert journal.count_after("odd", 10, 100) == journal.count_after("none", 0, 100) == (0, None, None)


@pytest.mark.parametrize(
    "query",
    [
        RecordQuery(after=5),
        RecordQuery(topic="t"),
        RecordQuery(topic="t", kind="message", descending=True),
        RecordQuery(publisher="p", seq_from=1, seq_to=9),
        RecordQuery(topic="t", seq_from=1, seq_to=3),
        RecordQuery(key="k"),
        RecordQuery(id=b"5"),
        RecordQuery(id=b"5", protocol="echo"),
        RecordQuery(received_from=NOW, received_to=NOW + 1),
    ],
)
def test_each_way_to_ask_is_answered_by_an_index(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, query: RecordQuery
) -> None:
    for limit in ("RUN_RECORDS", "SLICE_RECORDS"):
        monkeypatch.setattr(f"syncline.core.limits.JOURNAL_{limit}", 1)
    for n in range(20):
        journal.append_sync([arrival(b"%d" % n, key="k", publisher="p", seq=n, topic="t")])
    assert journal._index.indexed > 6
    asked: list[tuple[str, Any]] = []

    def trace(cursor: object, statement: str, bindings: Any) -> bool:
        asked.append((statement, bindings))
        return True

    with journal._reader() as connection:
        connection.exec_trace = trace
    assert journal.read(query)
    with journal._reader() as connection:
        connection.exec_trace = None
        plans: list[Any] = [
            line
            for statement, bindings in asked
            for line in connection.execute(f"EXPLAIN QUERY PLAN {statement}", bindings)
        ]
    assert len(asked) > 0
    assert not [line[3] for line in plans if line[3].startswith(("SCAN records", "SCAN terms", "USE TEMP"))]


def test_a_few_sequence_numbers_of_a_topic_visit_few_records(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("RUN_RECORDS", "SLICE_RECORDS"):
        monkeypatch.setattr(f"syncline.core.limits.JOURNAL_{limit}", 1)
    for n in range(10):
        journal.append_sync([arrival(b"%d" % n, topic="t", seq=n)])
    while journal._index.indexed < 10:  # the last terms go with another commit
        journal.append_sync([arrival(b"u%d" % journal.newest(), topic="u")])
    looked: list[int] = []
    select = queries._select

    def look(connection: Any, query: RecordQuery, limit: int, terms: list[str], bindings: list[Any]) -> Any:
        looked.append(limit)
        return select(connection, query, limit, terms, bindings)

    monkeypatch.setattr(queries, "_select", look)
    assert [record.seq for record in journal.read(RecordQuery(topic="t", seq_from=4, seq_to=6))] == [4, 5, 6]
    assert 1 <= len(looked) <= 3  # once for every run that has some


@pytest.fixture(params=["in memory", "in runs", "half and half"])
def indexed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the terms of records are when queries come."""
    if request.param != "in memory":
        monkeypatch.setattr("syncline.core.limits.JOURNAL_RUN_RECORDS", 1 if request.param == "in runs" else 30)
        monkeypatch.setattr("syncline.core.limits.JOURNAL_SLICE_RECORDS", 1 if request.param == "in runs" else 10)
    return str(request.param)


def test_numbers_that_cannot_be_are_refused_or_find_nothing(journal: Journal) -> None:
    journal.append_sync([arrival()])
    assert journal.read(RecordQuery(after=2**80)) == []
    assert len(journal.read(RecordQuery(after=-(2**80), before=2**80))) == 1
    assert journal.read(RecordQuery(limit=0)) == []
    for bad in (RecordQuery(seq_from=-1), RecordQuery(seq_to=2**64), RecordQuery(limit=-1)):
        with pytest.raises(UsageError):
            journal.read(bad)


@pytest.mark.parametrize("waiting", [True, False])
@pytest.mark.parametrize(
    "query", [{}, {"topic": "news"}, {"publisher": "p"}, {"topic": "news", "seq_from": 0}, {"protocol": "echo"}]
)
def test_a_page_ends_with_its_bytes_and_reading_on_finds_the_rest(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, query: dict[str, Any], waiting: bool
) -> None:
    monkeypatch.setattr("syncline.core.limits.JOURNAL_PAGE_RAW", 1_000)
    if not waiting:
        monkeypatch.setattr("syncline.core.limits.JOURNAL_RUN_RECORDS", 1)
        monkeypatch.setattr("syncline.core.limits.JOURNAL_SLICE_RECORDS", 1)
    sizes = [1, 5_000, 400, 400, 400, 400, 0, 999, 1, 1]
    for n, size in enumerate(sizes):
        journal.append_sync([arrival(b"%d" % n, raw=bytes(size), publisher="p", seq=n)])
    after, pages = 0, []
    while after < journal.newest():
        found, after = journal.page(RecordQuery(after=after, limit=5, **query))
        pages.append([record.lsn for record in found])
    assert pages == [[1, 2], [3, 4, 5], [6, 7, 8], [9, 10]]
    exported = [batch.num_rows for batch in journal.batches(RecordQuery(**query), rows=5)]
    with reading(journal.path) as look:
        read = [len(rows) for rows in look.pages(RecordQuery(**query), rows=5)]
    assert exported == read == [2, 3, 3, 2]
    assert len(journal.read(RecordQuery(**query))) == 10  # a plain read has no such bound


def test_one_read_returns_a_bounded_number_of_records(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.core.limits.JOURNAL_READ_MAX", 5)
    journal.append_sync([arrival(b"%d" % n) for n in range(9)])
    assert len(journal.read(RecordQuery(limit=10**9))) == 5
    assert sum(batch.num_rows for batch in journal.batches(RecordQuery(limit=10**9))) == 9
