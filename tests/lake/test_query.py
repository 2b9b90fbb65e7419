"""SQL over the tables: it answers, it sees what was just committed, and it can do nothing but read them."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import duckdb
import pytest

from syncline.core import limits
from syncline.core.errors import SynclineError, UnavailableError, UsageError
from syncline.lake.batch import InProcess, Lander
from syncline.lake.query import Queries, QueryLimits
from syncline.lake.roots import Lake
from syncline.lake.segments import Segment, list_segments
from syncline.lake.stages import all_tables, built_in_stages
from syncline.testing.segments import FakeJournal
from syncline.testing.traffic import Traffic, seal

TABLES = list(all_tables(built_in_stages().values()).values())


def land(lake: Lake) -> None:
    sealed = [found for found in list_segments(lake.segments) if isinstance(found, Segment)]
    Lander(lake, built_in_stages(), InProcess()).land(sealed)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """One lake for all tests here: they only read."""
    return Lake.below(tmp_path_factory.mktemp("query") / "data")


@pytest.fixture(scope="module")
def traffic(lake: Lake) -> Traffic:
    traffic = Traffic(11)
    seal(lake.segments.path, traffic.receive(FakeJournal("a"), traffic.publish(200), garbage=0.1))
    land(lake)
    return traffic


def ask(lake: Lake, sql: str, *parameters: object, **bounds: float) -> list[tuple[object, ...]]:
    with Queries(lake, TABLES, QueryLimits(**bounds)) as queries:  # type: ignore[arg-type]
        return [tuple(row.values()) for row in queries.ask(sql, parameters).rows.to_pylist()]


def test_a_filter_a_join_and_a_count(lake: Lake, traffic: Traffic) -> None:
    assert ask(lake, "SELECT count(*) FROM records") == [(len(traffic.truth.records),)]
    assert ask(lake, "SELECT count(*) FROM rejected WHERE protocol = 'sdsp' AND date = DATE '2026-03-01'") == [
        (len(traffic.truth.rejected()),)
    ]
    joined = "SELECT count(*) FROM sdsp_frames JOIN records USING (node, epoch, lsn) WHERE raw = encode(frame)"
    assert ask(lake, joined) == [(200,)]


def test_parameters_are_values_not_text(lake: Lake, traffic: Traffic) -> None:
    uid = next(iter(traffic.truth.newest()))
    assert ask(lake, "SELECT serial FROM sdsp_objects WHERE uid = ?", uid) == [
        (traffic.truth.newest()[uid].frame.serial,)
    ]
    assert ask(lake, "SELECT serial FROM sdsp_objects WHERE uid = ?", "x' OR 'a' = 'a") == []


def test_any_object_at_any_serial(lake: Lake, traffic: Traffic) -> None:
    found = ask(lake, "SELECT uid, serial, sdsp_object(uid, serial) FROM sdsp_frames")
    assert len(found) == 200
    for uid, serial, value in found:
        assert json.loads(str(value)) == traffic.truth.published[str(uid), int(str(serial))].value
    assert ask(lake, "SELECT sdsp_object('nobody', 3), sdsp_object(NULL, 3)") == [(None, None)]


def test_tables_without_rows_have_their_columns_all_the_same(tmp_path: Path) -> None:
    lake = Lake.below(tmp_path)
    assert ask(lake, "SELECT * FROM records") == []
    columns = ask(lake, "SELECT column_name FROM information_schema.columns WHERE table_name = 'sdsp_objects'")
    assert ("uid",) in columns


def test_a_question_sees_what_was_committed_since_the_last_one(tmp_path: Path) -> None:
    lake, traffic, journal = Lake.below(tmp_path), Traffic(12), FakeJournal("a")
    counts = []
    with Queries(lake, TABLES) as queries:
        for _ in range(3):
            counts.append(queries.ask("SELECT count(*) AS n FROM sdsp_frames").rows["n"].to_pylist())
            seal(lake.segments.path, traffic.receive(journal, traffic.publish(50)))
            land(lake)
    assert counts == [[0], [50], [100]]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_blob('{data}/lake/.pipeline.lock')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_parquet('{data}/segments/**/*.parquet')",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM TABLES",
        "SELECT * FROM lake",
        "COPY records TO '{data}/out.csv'",
        "COPY (SELECT 1) TO '{data}/out.csv'",
        "ATTACH '{data}/x.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "RESET memory_limit",
        "PRAGMA database_list",
        "CREATE TABLE t (x INT)",
        "CREATE VIEW v AS SELECT 1",
        "DROP VIEW records",
        "INSERT INTO records SELECT * FROM records",
        "DELETE FROM records",
        "UPDATE records SET lsn = 0",
        "EXPORT DATABASE '{data}/out'",
        "CALL pragma_version()",
        "EXPLAIN ANALYZE DROP VIEW records",
        "EXPLAIN (ANALYZE) DROP VIEW records",
        "EXPLAIN ANALYZE CREATE TEMP VIEW sdsp_frames AS SELECT 1 AS uid",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{data}/out.csv'",
        "EXPLAIN ANALYZE /* /* */ SELECT 1 -- */ DROP VIEW records",
        "/* é */ EXPLAIN ANALYZE CALL pragma_version()",
        "EXPLAIN DROP VIEW records",
        "WITH gone AS (DELETE FROM records RETURNING *) SELECT * FROM gone",
        "SELECT 1; SELECT 2",
        "SELECT 1; DROP VIEW records",
        "",
        "nonsense",
        "SELECT " + "1 + " * 60_000 + "1",
    ],
)
def test_nothing_but_reading_the_tables_is_possible(lake: Lake, traffic: Traffic, sql: str) -> None:
    data = lake.tables.path.parent
    files = sorted(data.rglob("*"))
    with pytest.raises(SynclineError):
        ask(lake, sql.replace("{data}", str(data)))
    assert sorted(data.rglob("*")) == files
    assert ask(lake, "SELECT count(*) FROM sdsp_frames") == [(200,)]


@pytest.mark.parametrize(
    "head",
    [
        "EXPLAIN",
        "explain analyze",
        "EXPLAIN (FORMAT JSON)",
        "EXPLAIN (ANALYZE, FORMAT JSON)",
        "/* why, é? */ EXPLAIN ANALYZE -- here\n",
    ],
)
def test_explain_is_reading_too(lake: Lake, traffic: Traffic, head: str) -> None:
    told = str(ask(lake, f"{head} SELECT uid FROM sdsp_frames WHERE uid = 'x'"))
    assert "read_parquet" in told.lower().replace(" ", "_")


def test_nobodys_statement_changes_what_the_next_one_sees(lake: Lake, traffic: Traffic) -> None:
    with Queries(lake, TABLES) as queries:
        for sql in (
            "EXPLAIN ANALYZE CREATE OR REPLACE VIEW sdsp_frames AS SELECT 'forged' AS uid",
            "EXPLAIN ANALYZE CREATE TEMP VIEW sdsp_frames AS SELECT 'forged' AS uid",
            "EXPLAIN ANALYZE DROP VIEW sdsp_frames",
        ):
            with pytest.raises(UsageError, match="only SELECT"):
                queries.ask(sql)
            desk = queries._desk(sql)
            with pytest.raises(duckdb.Error, match="read-only"):  # even if the look at the statement were deceived
                desk.cursor.execute("DROP VIEW sdsp_frames")
            assert queries.ask("SELECT count(DISTINCT uid) > 1 AS n FROM sdsp_frames").rows["n"].to_pylist() == [True]


def test_a_query_that_takes_too_long_is_stopped(lake: Lake) -> None:
    begun = time.monotonic()
    with pytest.raises(UnavailableError, match=r"stopped after 0\.2 s"):
        ask(
            lake,
            "SELECT count(*) FROM range(100000000) a, range(100000) b WHERE a.range % 7 = b.range % 5",
            seconds=0.2,
        )
    assert time.monotonic() - begun < 10


def test_a_query_that_needs_too_much_memory_is_refused(lake: Lake) -> None:
    with pytest.raises(UnavailableError, match="memory"):
        ask(lake, "SELECT list(range) FROM range(50000000)", memory=20 * 1024 * 1024)


def test_an_answer_is_cut_at_its_bounds_and_says_so(lake: Lake) -> None:
    with Queries(lake, TABLES, QueryLimits(rows=10)) as queries:
        cut = queries.ask("SELECT * FROM range(11)")
        whole = queries.ask("SELECT * FROM range(10)")
    assert (cut.rows.num_rows, cut.truncated) == (10, True)
    assert (whole.rows.num_rows, whole.truncated) == (10, False)
    with Queries(lake, TABLES, QueryLimits(rows=1_000_000, bytes=1_000_000)) as queries:
        wide = queries.ask("SELECT repeat('x', 10000) FROM range(100000)")
    assert wide.truncated
    assert wide.rows.nbytes < 50_000_000


def test_faulty_sql_is_explained_in_one_line(lake: Lake) -> None:
    with pytest.raises(UsageError, match="sdsp_frame") as caught:
        ask(lake, "SELECT * FROM sdsp_frame")
    assert "\n" not in str(caught.value)


def test_threads_may_ask_at_once(lake: Lake, traffic: Traffic) -> None:
    answers: list[object] = []
    with Queries(lake, TABLES) as queries:
        asking = [
            threading.Thread(
                target=lambda: answers.append(queries.ask("SELECT count(*) AS n FROM sdsp_frames").rows.to_pylist())
            )
            for _ in range(8)
        ]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
    assert answers == [[{"n": 200}]] * 8


def test_the_locks_hold_on_the_cursors_that_answer(lake: Lake) -> None:
    found = ask(
        lake,
        "SELECT name, value FROM duckdb_settings() WHERE name IN ('python_enable_replacements', 'enable_external_access',"
        " 'autoload_known_extensions', 'lock_configuration', 'parquet_metadata_cache') ORDER BY name",
    )
    assert found == [
        ("autoload_known_extensions", "false"),
        ("enable_external_access", "false"),
        ("lock_configuration", "true"),
        ("parquet_metadata_cache", "true"),
        ("python_enable_replacements", "false"),
    ]


def test_a_repeated_question_is_answered_anew(lake: Lake, traffic: Traffic) -> None:
    with Queries(lake, TABLES) as queries:
        drawn = {queries.ask("SELECT random() AS n").rows["n"][0].as_py() for _ in range(5)}
        counted = [queries.ask("SELECT count(*) AS n FROM sdsp_frames").rows["n"][0].as_py() for _ in range(3)]
    assert len(drawn) == 5
    assert counted == [200] * 3


def test_a_question_that_was_cut_short_begins_at_its_first_row_again(lake: Lake) -> None:
    with Queries(lake, TABLES, QueryLimits(rows=3)) as queries:
        asked = [queries.ask("SELECT range AS n FROM range(100000)") for _ in range(3)]
    assert [answer.rows["n"].to_pylist() for answer in asked] == [[0, 1, 2]] * 3
    assert all(answer.truncated for answer in asked)


def test_only_so_many_bound_statements_are_remembered(lake: Lake) -> None:
    with Queries(lake, TABLES) as queries:
        for number in range(limits.QUERY_STATEMENTS + 5):
            queries.ask(f"SELECT {number} AS n")
        [desk] = queries._idle
        assert not desk.knows("SELECT 4 AS n")
        assert [desk.knows(f"SELECT {number} AS n") for number in (5, limits.QUERY_STATEMENTS + 4)] == [True, True]
