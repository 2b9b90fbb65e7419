"""Exports hold every row, in a file that is whole or absent."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from syncline.core.errors import UsageError
from syncline.lake.batch import InProcess, Lander
from syncline.lake.export import export
from syncline.lake.query import Queries
from syncline.lake.roots import Lake
from syncline.lake.segments import Segment, list_segments
from syncline.lake.stages import all_tables, built_in_stages
from syncline.testing.segments import FakeJournal
from syncline.testing.traffic import Traffic, seal
from tests.lake.conftest import command, command_here

TABLES = list(all_tables(built_in_stages().values()).values())


@pytest.fixture
def queries(lake: Lake) -> Iterator[Queries]:
    traffic = Traffic(51)
    seal(lake.segments.path, traffic.receive(FakeJournal("a"), traffic.publish(150), garbage=0.1))
    sealed = [found for found in list_segments(lake.segments) if isinstance(found, Segment)]
    Lander(lake, built_in_stages(), InProcess()).land(sealed)
    with Queries(lake, TABLES) as queries:
        yield queries


def test_a_table_as_parquet_has_its_rows_and_types(queries: Queries, lake: Lake, tmp_path: Path) -> None:
    done = export(queries, "records", tmp_path / "out.parquet")
    found, expected = pq.read_table(tmp_path / "out.parquet"), DeltaTable(lake.table("records").url).to_pyarrow_table()
    assert (done.rows, done.bytes) == (expected.num_rows, (tmp_path / "out.parquet").stat().st_size)
    assert found.sort_by("lsn").select(["lsn", "raw", "seq", "received_at"]).to_pylist() == (
        expected.sort_by("lsn").select(["lsn", "raw", "seq", "received_at"]).to_pylist()
    )


def test_a_query_as_csv_has_bytes_as_hex_and_lists_as_json(queries: Queries, tmp_path: Path) -> None:
    sql = "SELECT serial, id, [serial, 7] AS pair, NULL::BLOB AS none FROM sdsp_frames ORDER BY uid, serial"
    assert export(queries, sql, tmp_path / "out.csv").rows == 150
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert len(rows) == 150
    assert all(json.loads(row["pair"]) == [int(row["serial"]), 7] for row in rows)
    assert all(bytes.fromhex(row["id"]) and row["none"] == "" for row in rows)


def test_more_rows_than_a_query_may_return_are_exported(queries: Queries, tmp_path: Path) -> None:
    assert export(queries, "SELECT range AS n FROM range(300000)", tmp_path / "out.parquet").rows == 300_000
    assert pq.read_metadata(tmp_path / "out.parquet").num_rows == 300_000


@pytest.mark.parametrize(
    ("what", "name", "message"),
    [
        ("records", "out.xlsx", "neither Parquet nor CSV"),
        ("nothing", "out.csv", "nothing"),
        ("DROP VIEW records", "out.csv", "only SELECT"),
        ("SELECT 1; SELECT 2", "out.csv", "one statement"),
        ("SELECT * FROM read_csv('/etc/passwd')", "out.csv", "."),
        ("SELECT error(CAST(range AS VARCHAR)) FROM range(3)", "out.csv", "."),
        ("records", "absent/out.csv", "cannot be written"),
    ],
)
def test_what_cannot_be_exported_leaves_no_file(
    queries: Queries, tmp_path: Path, what: str, name: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        export(queries, what, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_the_command_tells_what_it_wrote(queries: Queries, tmp_path: Path) -> None:
    done = command(tmp_path, "lake", "export", "sdsp_objects", "--output", "objects.csv", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told == {"path": "objects.csv", "rows": 10, "bytes": (tmp_path / "objects.csv").stat().st_size}
    assert command_here(tmp_path, "lake", "export", "sdsp_objects", "--output", "objects.doc").returncode == 2
