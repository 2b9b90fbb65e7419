"""`syncline lake` and `syncline query` as a user meets them: each once in a process of its own, its other cases in ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from syncline.lake.batch import InProcess, Lander
from syncline.lake.roots import Lake
from syncline.lake.segments import Segment, list_segments
from syncline.lake.stages import built_in_stages
from syncline.testing.segments import FakeJournal
from syncline.testing.traffic import Traffic, seal
from tests.lake.conftest import command, command_here, rows
from tests.lake.truth import assert_tables_equal


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with landed tables."""
    folder = tmp_path_factory.mktemp("cli")
    lake, traffic = Lake.below(folder / "data"), Traffic(51)
    seal(lake.segments.path, traffic.receive(FakeJournal("a"), traffic.publish(100), garbage=0.2))
    sealed = [found for found in list_segments(lake.segments) if isinstance(found, Segment)]
    Lander(lake, built_in_stages(), InProcess()).land(sealed)
    return folder


@pytest.mark.spark
def test_lake_run_lands_tells_of_it_and_exits_with_4_if_a_segment_is_damaged(tmp_path: Path) -> None:
    lake, traffic = Lake.below(tmp_path / "data"), Traffic(52)
    seal(lake.segments.path, traffic.receive(FakeJournal("a"), traffic.publish(100)))
    damaged = lake.segments.path / "protocol=sdsp" / "date=2026-03-01" / f"x-{'0' * 16}-{1:020d}-{2:020d}.parquet"
    damaged.write_bytes(b"PAR1 not really PAR1")
    done = command(tmp_path, "lake", "run", "--json")
    assert done.returncode == 4, done.stderr
    *batches, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["event"], each["records"]) for each in batches] == [("batch", 100)]
    assert (last["event"], last["damaged_count"], last["lag"]) == ("done", 1, {"segments": 0, "records": 0})
    assert last["added"] == {
        "records": 100, "rejected": 0, "audit": 0, "sdsp_frames": 100, "sdsp_objects": 10, "segments": 2
    }  # fmt: skip
    assert "1 damaged files were found" in done.stderr
    assert "Traceback" not in done.stderr
    assert_tables_equal(lake, traffic.truth)


def test_tables_are_listed(folder: Path) -> None:
    found = json.loads(command(folder, "lake", "tables", "--json").stdout)
    assert {each["name"]: each["rows"] for each in found}["sdsp_frames"] == 100


@pytest.mark.parametrize("form", ["json", "csv", "parquet", "table"])
def test_a_query_prints_in_every_form(folder: Path, tmp_path: Path, form: str) -> None:
    out = tmp_path / "rows"
    target = ["--output", str(out)] if form == "parquet" else []
    sql = "SELECT count(*) AS frames, max(seq) AS top FROM records WHERE verdict = 'accept'"
    ask = command if form == "table" else command_here
    done = ask(folder, "query", sql, "--format", form, *target)
    assert (done.returncode, done.stderr) == (0, "")
    if form == "json":
        row = json.loads(done.stdout)
        assert (row["frames"], type(row["top"])) == (100, str)
    elif form == "csv":
        assert done.stdout.splitlines()[0] == "frames,top"
        assert done.stdout.splitlines()[1].startswith("100,")
    elif form == "parquet":
        assert pq.read_table(out)["frames"].to_pylist() == [100]
    else:
        assert done.stdout.split()[:3] == ["frames", "top", "100"]


def test_a_query_that_writes_is_refused_in_one_line_with_exit_code_2(folder: Path) -> None:
    done = command_here(folder, "query", "DELETE FROM records")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: only SELECT and EXPLAIN: tables are written by the pipeline alone\n"


def test_rows_beyond_the_bound_are_cut_with_a_word(folder: Path) -> None:
    done = command_here(folder, "query", "SELECT lsn FROM records", "--json", "--rows", "3")
    assert (len(done.stdout.splitlines()), done.returncode) == (3, 0)
    assert "only the first 3 rows" in done.stderr


def test_optimize_and_vacuum_say_what_they_did(folder: Path) -> None:
    done = json.loads(command(folder, "lake", "optimize", "records", "--json").stdout)
    assert [each["name"] for each in done] == ["records"]
    gone = json.loads(command(folder, "lake", "vacuum", "--dry-run", "--json").stdout)
    assert gone["files"]["records"] == 0
    assert command_here(folder, "lake", "optimize", "nothing").returncode == 2


@pytest.mark.spark
def test_the_same_question_on_spark(folder: Path, spark: Any) -> None:
    sql = "SELECT count(*) AS n FROM sdsp_frames WHERE kind = 'full'"
    done = command(folder, "query", sql, "--json", "--engine", "spark")
    assert done.returncode == 0, done.stderr
    assert done.stdout == command_here(folder, "query", sql, "--json").stdout
    refused = command_here(folder, "query", "CREATE TABLE t (x INT)", "--engine", "spark")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == "error: only SELECT: tables are written by the pipeline alone\n"


@pytest.mark.spark
def test_reprocess_makes_a_table_anew_with_its_states(folder: Path) -> None:
    done = command(folder, "lake", "reprocess", "--table", "sdsp_frames", "--json", SYNCLINE_LAKE_MASTER="local[1]")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    lake = Lake.below(folder / "data")
    assert made["sdsp_frames"] == rows(lake, "sdsp_frames").num_rows
    assert made["sdsp_objects"] == rows(lake, "sdsp_objects").num_rows
    wrong = command_here(folder, "lake", "reprocess", "--table", "nothing")
    assert (wrong.returncode, "there is no table" in wrong.stderr) == (2, True)
