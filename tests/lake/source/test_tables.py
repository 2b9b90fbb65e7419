"""`spark.read.format("syncline")` gives what any Delta reader gives, and reads no more than it must."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql.pandas.types import to_arrow_schema

from syncline.core.errors import NotFoundError, UsageError
from syncline.lake.batch import InProcess, Lander
from syncline.lake.deltas import LakeTable
from syncline.lake.roots import Lake
from syncline.lake.segments import Segment, list_segments
from syncline.lake.source.tables import TableReader, table_schema
from syncline.lake.stages import built_in_stages
from syncline.lake.stages.sdsp import FRAMES
from syncline.lake.tables import Column
from syncline.testing.segments import FakeJournal
from syncline.testing.traffic import Traffic, seal


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Two batches: a table with several files, and two versions that have rows."""
    lake, traffic, journal = Lake.below(tmp_path_factory.mktemp("source") / "data"), Traffic(31), FakeJournal("a")
    for count in (150, 50):
        seal(lake.segments.path, traffic.receive(journal, traffic.publish(count), garbage=0.1))
        land(lake)
    return lake


def land(lake: Lake) -> None:
    sealed = [found for found in list_segments(lake.segments) if isinstance(found, Segment)]
    Lander(lake, built_in_stages(), InProcess(), buckets=4).land(sealed)


def options(lake: Lake, table: str, **more: str) -> dict[str, str]:
    return {"path": lake.tables.url, "table": table, **more}


def read(reader: TableReader) -> pa.Table:
    """What the tasks of one job read."""
    found = [batch for part in reader.partitions() for batch in reader.read(part)]
    return pa.Table.from_batches(found, to_arrow_schema(reader._schema, timezone="UTC"))


def truth(lake: Lake, table: str) -> pa.Table:
    return DeltaTable(lake.table(table).url).to_pyarrow_table()


@pytest.mark.spark
def test_a_table_is_found_and_read_without_registration(spark: Any, lake: Lake) -> None:
    frames = spark.read.format("syncline").option("table", "sdsp_frames").load(lake.tables.url)
    assert frames.rdd.getNumPartitions() == len(DeltaTable(lake.table("sdsp_frames").url).file_uris())
    expected = truth(lake, "sdsp_frames")
    assert frames.columns == expected.column_names
    order = [("uid", "ascending"), ("serial", "ascending")]
    found = frames.toArrow().sort_by(order)
    assert found.to_pylist() == expected.sort_by(order).to_pylist()
    assert len(found) == 200


@pytest.mark.spark
def test_columns_may_be_named_or_given_as_a_schema(spark: Any, lake: Lake) -> None:
    reader = spark.read.format("syncline").option("table", "records")
    named = reader.option("columns", "lsn, date,protocol").load(lake.tables.url)
    given = spark.read.format("syncline").schema("lsn long, verdict string").option("table", "records")
    expected = truth(lake, "records")
    assert named.columns == ["lsn", "date", "protocol"]
    assert sorted(map(tuple, named.collect())) == sorted(
        zip(*(expected[name].to_pylist() for name in named.columns), strict=True)
    )
    assert (
        given.load(lake.tables.url).where("verdict = 'reject'").count()
        == pc.sum(pc.equal(expected["verdict"], "reject")).as_py()
    )


@pytest.mark.spark
def test_frames_of_one_table_do_not_disturb_each_other(spark: Any, lake: Lake) -> None:
    frames = spark.read.format("syncline").option("table", "sdsp_frames").load(lake.tables.url)
    expected = truth(lake, "sdsp_frames")["bucket"].to_pylist()
    counts = [frames.where("bucket = 1").count(), frames.count(), frames.where("bucket = 2").count(), frames.count()]
    assert counts == [expected.count(1), 200, expected.count(2), 200]


def test_a_file_that_cannot_hold_a_row_is_not_opened(lake: Lake) -> None:
    asked = options(lake, "sdsp_frames")
    everything = TableReader(asked, table_schema(asked)).partitions()
    reader = TableReader({**asked, "where": "bucket = 1"}, table_schema(asked))
    parts = reader.partitions()
    assert 0 < len(parts) < len(everything)
    assert {part.values["bucket"] for part in parts} == {1}
    assert sorted(read(reader)["lsn"].to_pylist()) == sorted(
        row["lsn"] for row in truth(lake, "sdsp_frames").to_pylist() if row["bucket"] == 1
    )


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ("lsn > 5 AND lsn <= 8", 3),
        ("lsn = 6 and protocol = 'sdsp'", 1),
        ("protocol = 'it''s'", 0),
        ("received_at >= '2020-01-01T00:00:00Z' and date > '2020-01-01' and lsn<3", 2),
        ("seq <= 0", None),
    ],
)
def test_rows_are_chosen_by_comparisons(lake: Lake, where: str, count: int | None) -> None:
    asked = options(lake, "records", where=where)
    found = read(TableReader(asked, table_schema(asked)))
    expected = sum(row["seq"] == 0 for row in truth(lake, "records").to_pylist()) if count is None else count
    assert found.num_rows == expected


@pytest.mark.parametrize(
    "where", ["lsn", "lsn > 1 OR lsn < 3", "lsn = 1 AND", "lsn != 1", "lsn = 1; lsn = 2", "x = 1", "lsn = a"]
)
def test_what_is_no_comparison_is_refused(lake: Lake, where: str) -> None:
    asked = options(lake, "records", where=where)
    with pytest.raises(UsageError):
        TableReader(asked, table_schema(asked))


def test_an_older_version_can_be_read(lake: Lake) -> None:
    newest = DeltaTable(lake.table("sdsp_frames").url).version()
    asked = options(lake, "sdsp_frames", version=str(newest - 1))
    assert read(TableReader(asked, table_schema(asked))).num_rows == 150


def test_a_plan_reads_the_version_it_was_made_for(tmp_path: Path) -> None:
    lake, traffic, journal = Lake.below(tmp_path), Traffic(32), FakeJournal("a")
    readers = []
    for _ in range(2):
        seal(lake.segments.path, traffic.receive(journal, traffic.publish(20)))
        land(lake)
        asked = options(lake, "sdsp_frames")
        readers.append(TableReader(asked, table_schema(asked)))
    assert [read(reader).num_rows for reader in readers] == [20, 40]


def test_what_is_not_there_is_said(lake: Lake) -> None:
    with pytest.raises(NotFoundError, match="no such table"):
        table_schema(options(lake, "nothing"))
    with pytest.raises(UsageError, match="no column 'colour'"):
        table_schema(options(lake, "records", columns="lsn,colour"))


def test_other_readers_filters_on_any_column_find_their_rows(lake: Lake) -> None:
    dataset = DeltaTable(lake.table("records").url).to_pyarrow_dataset()
    everything = truth(lake, "records").to_pylist()
    for column, value in (("verdict", "reject"), ("direction", "in"), ("lsn", 7), ("protocol", "sdsp")):
        found = dataset.to_table(filter=pc.field(column) == value).num_rows
        assert found == sum(row[column] == value for row in everything) > 0


def test_a_condition_on_a_column_that_older_files_lack_is_not_passed_by_their_rows(tmp_path: Path) -> None:
    lake, traffic = Lake.below(tmp_path), Traffic(37)
    seal(lake.segments.path, traffic.receive(FakeJournal("a"), traffic.publish(30)))
    land(lake)
    wider = msgspec.structs.replace(
        FRAMES, columns=(*FRAMES.columns, Column("colour", pa.string(), "of a later version"))
    )
    LakeTable.open(lake.table(FRAMES.name), wider, buckets=4)
    for where, expected in (("colour = 'red'", 0), ("uid > ''", 30)):
        own = options(lake, FRAMES.name, where=where, columns="uid,colour")
        assert read(TableReader(own, table_schema(own))).num_rows == expected
