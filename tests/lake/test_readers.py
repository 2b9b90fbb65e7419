"""The tables are open: Polars, which shares none of our code, opens them and gives the same answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from syncline.lake.batch import InProcess, Lander
from syncline.lake.maintain import optimize
from syncline.lake.query import Queries
from syncline.lake.roots import Lake
from syncline.lake.segments import Segment, list_segments
from syncline.lake.stages import all_tables, built_in_stages
from syncline.testing.segments import FakeJournal, write_segments
from syncline.testing.traffic import Traffic, seal
from tests.lake.stages.test_sds import arrived, omm

TABLES = list(all_tables(built_in_stages().values()).values())


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Several commits, rewritten state, a compaction, and space data."""
    lake, traffic, journal = Lake.below(tmp_path_factory.mktemp("readers") / "data"), Traffic(61), FakeJournal("a")
    for count in (120, 60, 20):
        seal(
            lake.segments.path, traffic.receive(journal, traffic.publish(count), disorder=20, repeats=0.1, garbage=0.1)
        )
        land(lake)
    optimize(lake, [table for table in TABLES if table.name == "records"])
    write_segments(lake.segments.path, FakeJournal("b").keep([arrived(omm(n, 100 + n % 7), "OMM") for n in range(40)]))
    land(lake)
    return lake


def land(lake: Lake) -> None:
    sealed = [found for found in list_segments(lake.segments) if isinstance(found, Segment)]
    Lander(lake, built_in_stages(), InProcess(), buckets=4).land(sealed)


def ours(lake: Lake, sql: str) -> list[tuple[Any, ...]]:
    with Queries(lake, TABLES) as queries:
        return [tuple(row.values()) for row in queries.ask(sql).rows.to_pylist()]


def scan(lake: Lake, table: str) -> pl.LazyFrame:
    return pl.scan_delta(str(Path(lake.table(table).url)))


@pytest.mark.parametrize("table", ["records", "rejected", "sdsp_frames", "sdsp_objects", "sds_omm", "sds_messages"])
def test_every_row_and_value_is_the_same(lake: Lake, table: str) -> None:
    theirs = scan(lake, table).collect()
    [known] = [each for each in TABLES if each.name == table]
    key = ["node", "epoch", "lsn"] if table in ("records", "rejected") else list(known.identity)
    expected = ours(lake, f'SELECT * FROM "{table}" ORDER BY {", ".join(key)}')
    assert theirs.columns == [column.name for column in known.columns]
    assert theirs.sort(key).to_arrow().to_pylist() == [dict(zip(theirs.columns, row, strict=True)) for row in expected]
    assert expected


@pytest.mark.parametrize(
    ("table", "where", "sql"),
    [
        ("records", pl.col("verdict") == "reject", "verdict = 'reject'"),
        ("records", (pl.col("lsn") > 50) & (pl.col("protocol") == "sdsp"), "lsn > 50 AND protocol = 'sdsp'"),
        ("records", pl.col("reason").is_null(), "reason IS NULL"),
        ("sdsp_frames", pl.col("serial") >= 3, "serial >= 3"),
        ("sdsp_frames", pl.col("bucket") == 1, "bucket = 1"),
        ("sds_omm", pl.col("subject") == "103", "subject = '103'"),
        ("sds_omm", pl.col("MEAN_MOTION") > 15, "MEAN_MOTION > 15"),
    ],
)
def test_filters_find_the_same_rows(lake: Lake, table: str, where: pl.Expr, sql: str) -> None:
    found = scan(lake, table).filter(where).select(pl.len()).collect().item()
    assert [(found,)] == ours(lake, f"SELECT count(*) FROM {table} WHERE {sql}")
    assert found > 0


def test_groups_and_joins_add_up_the_same(lake: Lake) -> None:
    grouped = scan(lake, "records").group_by("protocol", "verdict").len().sort("protocol", "verdict").collect().rows()
    assert grouped == ours(lake, "SELECT protocol, verdict, count(*) FROM records GROUP BY ALL ORDER BY ALL")
    joined = scan(lake, "sdsp_frames").join(scan(lake, "sdsp_objects"), on="uid").select(pl.len()).collect().item()
    assert [(joined,)] == ours(lake, "SELECT count(*) FROM sdsp_frames JOIN sdsp_objects USING (uid)")
