"""Scenario `land`: segments → the Delta table `records`, against Spark copying the same rows from Parquet to Parquet.

Both run on the same session, read the same segments and write compressed Parquet; the peer in the faster of two
compressions. Ours also checks every segment, judges again where it can, and commits exactly once.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb
from deltalake import DeltaTable

from syncline.bench.report import case, growth, report, timed
from syncline.bench.segments import write_plain
from syncline.lake.pipeline import Pipeline
from syncline.lake.roots import Lake
from syncline.lake.session import SessionOptions, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS: Final = 1_000_000


def run(scale: float = 1.0) -> dict[str, Any]:
    """Land and copy `scale` million records."""
    spark = start_session(SessionOptions(master="local[2]"))
    rows = max(int(ROWS * scale), 1_000)
    with tempfile.TemporaryDirectory() as folder:
        _measure(spark, Path(folder) / "warm-up", min(rows, 20_000))
        sizes = [max(rows // part, 500) for part in (16, 4)]
        smaller = [_measure(spark, Path(folder) / str(size), size)[0] for size in sizes]
        ours, peer, peer_name = _measure(spark, Path(folder) / "full", rows)
    grown = growth("segments to records", "rows", [*sizes, rows], [*smaller, ours])
    found = case("segments to records", rows / ours, rows / peer, peer_name, "rows/s", ratio=peer / ours, bar=1.0)
    return report("land", [found], growth=grown)


def _measure(spark: SparkSession, folder: Path, rows: int) -> tuple[float, float, str]:
    """Seconds of ours and of the peer for this many rows, each checked."""
    lake = Lake.below(folder)
    write_plain(lake.segments.path, rows)
    copies: dict[str, float] = {}
    for codec in ("zstd", "snappy"):
        copies[codec], _ = timed(partial(_copy, spark, lake, folder / codec, codec))
    seconds, _ = timed(lambda: Pipeline(spark, lake, stages={}).run_available())
    files = DeltaTable(lake.table("records").url).file_uris()
    for paths in (files, [str(path) for path in (folder / "zstd").rglob("*.parquet")]):
        found = duckdb.execute(f"SELECT count(*), sum(lsn) FROM read_parquet({paths})").fetchall()
        assert found == [(rows, rows * (rows + 1) // 2)], "every row must arrive once"
    fastest = min(copies, key=lambda name: copies[name])
    return seconds, copies[fastest], f"Spark Parquet copy ({fastest})"


def _copy(spark: SparkSession, lake: Lake, target: Path, codec: str) -> None:
    reader = spark.read.option("recursiveFileLookup", "true")
    reader.parquet(lake.segments.url).write.option("compression", codec).parquet(str(target))
