from __future__ import annotations

from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.core.ports import RecordQuery
from syncline.core.record import SEQ_MAX
from syncline.core.verdict import Outcome, Reason
from syncline.journal.database import SCHEMA
from syncline.journal.newest import KINDS, Fresh, Newest
from syncline.journal.rows import Row, row_of
from syncline.journal.runs import Run, entries, holds, lsns, newest_entry, remove_run, runs, write_chunks, write_run
from syncline.journal.terms import NAME, TERM_BYTES, WIDTHS, Lexicon, Where, expiry_of, lsn_of
from tests.journal.conftest import arrival

LEXICON = Lexicon(b"secret")
TEXTS = st.sampled_from(["", "a", "b", "long" * 20, "é"])


@st.composite
def stored(draw: st.DrawFn) -> list[Row]:
    """Rows as they are in the database, with gaps between their numbers."""
    lsn, rows = 0, []
    for n in range(draw(st.integers(1, 30))):
        lsn += draw(st.sampled_from([1, 1, 1, 300]))
        fields: dict[str, Any] = {name: draw(TEXTS) for name in ("topic", "key", "publisher")}
        made = arrival(
            draw(st.sampled_from([b"x", b"y", b"%d" % n])),
            protocol=draw(st.sampled_from("ab")),
            seq=draw(st.sampled_from([None, 0, 1, 2**63, SEQ_MAX])),
            expires_at=draw(st.sampled_from([None, 0, 5, 2**62])),
            verdict=draw(st.sampled_from([Outcome.ACCEPT, Outcome.ACCEPT, Outcome.REJECT])),
            reason=Reason.MALFORMED,
            **fields,
        )
        rows.append((lsn, *row_of(made)))
    return rows


def newest_of(rows: list[Row]) -> Newest:
    newest = Newest()
    for row in rows:
        fresh = Fresh()
        fresh.add(row[0], expiry_of(row[1:]), LEXICON.name_of(row[1:]), row[1:])
        newest.add(fresh, LEXICON)
    return newest


def in_database(rows: list[Row]) -> apsw.Connection:
    connection, newest = apsw.Connection(":memory:"), newest_of(rows)
    connection.execute(SCHEMA)
    for kind in KINDS:
        write_chunks(connection, 1, kind, newest.entries(kind))
    write_run(connection, Run(1, 0, rows[-1][0], len(rows)))
    return connection


def spans(**asked: Any) -> Where:
    where = LEXICON.spans(RecordQuery(**asked), ["a", "b"])
    assert where is not None
    return where


def test_names_that_share_half_of_their_hash_are_sorted_by_the_rest() -> None:
    newest, row = Newest(), row_of(arrival())
    names = [NAME + half + bytes([n]) * 8 for n in range(200, 0, -1) for half in (b"the same", b"differs?")]
    fresh = Fresh()
    for lsn, name in enumerate(names, 1):
        fresh.add(lsn, 5, name, row)
    newest.add(fresh, LEXICON)
    found, width = newest.entries(NAME), WIDTHS[NAME]
    assert [found[start : start + TERM_BYTES] for start in range(0, len(found), width)] == sorted(names)


@given(stored())
def test_the_entries_of_many_records_are_those_of_each_sorted(rows: list[Row]) -> None:
    expected = sorted(entry for row in rows for entry in LEXICON.entries(row))
    connection = in_database(rows)
    assert sorted(entry for kind in KINDS for entry in entries(connection, 1, kind)) == expected
    for kind in KINDS:
        found = list(entries(connection, 1, kind))
        assert found == sorted(found)
    assert all(holds(connection, 1, entry) for entry in expected)
    others = {entry[:-1] + bytes([entry[-1] ^ 1]) for entry in expected} - set(expected)
    assert not any(holds(connection, 1, entry) for entry in others)


@given(
    stored(),
    st.sampled_from([
        {"topic": "a"}, {"key": "b"}, {"publisher": "a"}, {"id": b"x"}, {"id": b"x", "verdict": "accept"},
        {"topic": "é", "seq_from": 1}, {"publisher": "b", "seq_to": 2**63}, {"topic": "a", "seq_from": 1, "seq_to": 1},
        {"topic": "b", "after": 3, "before": 9},
    ]),
    st.sampled_from([3_840, 70, 100]),
    st.booleans(),
)  # fmt: skip
def test_memory_and_run_find_the_same_records(
    rows: list[Row], asked: dict[str, Any], chunk: int, descending: bool
) -> None:
    """However small the chunks, and however few are read at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("syncline.core.limits.JOURNAL_CHUNK_BYTES", chunk)
        patch.setattr("syncline.journal.runs._PAGE", 2)
        connection, newest, where = in_database(rows), newest_of(rows), spans(**asked)
        for span in where.spans:
            found = [lsn for page in lsns(connection, 1, span, descending=descending) for lsn in page]
            expected = [
                lsn_of(entry)
                for entry in sorted(entry for row in rows for entry in LEXICON.entries(row))
                if span[0] <= entry <= span[1]
            ]
            assert found == (expected[::-1] if descending else expected)
            remembered = set(newest.between(span))
            assert remembered >= set(found)
            assert remembered == set(found) or "after" in asked or "seq_to" in asked  # records are looked at anyway


@given(stored())
def test_the_newest_entry_of_a_name_is_the_one_that_counts(rows: list[Row]) -> None:
    connection = in_database(rows)
    names = [entry for row in rows for entry in LEXICON.entries(row) if entry[:1] == NAME]
    for name in {entry[:TERM_BYTES] for entry in names}:
        assert newest_entry(connection, 1, name) == max(entry for entry in names if entry.startswith(name))
    assert newest_entry(connection, 1, NAME + b"\xff" * 16) is None


def test_runs_are_told_in_the_order_of_their_records() -> None:
    connection = in_database([(1, *row_of(arrival()))])
    for run in (Run(5, 10, 20, 3), Run(2, 20, 25, 4), Run(3, 1, 10, 5)):
        write_run(connection, run)
    assert [run.number for run in runs(connection)] == [1, 3, 5, 2]
    assert [run.number for run in runs(connection, 10)] == [5, 2]
    assert [run.number for run in runs(connection, 9, 21)] == [3, 5, 2]
    assert [run.number for run in runs(connection, 2**80)] == []
    remove_run(connection, 1)
    assert connection.execute("SELECT count(*) FROM terms").get == 0
    assert [run.number for run in runs(connection)] == [3, 5, 2]
