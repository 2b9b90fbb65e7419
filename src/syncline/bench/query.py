"""Scenario `query`: a filtered page and a count over the table `records`, warm, through our locked and bounded engine,
against bare DuckDB and Polars on the same files. The bar is against the faster of the two.
"""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import duckdb
import polars
from deltalake import DeltaTable

from syncline.bench.report import best, case, growth, report, timed
from syncline.bench.segments import write_plain
from syncline.lake.batch import InProcess, Lander
from syncline.lake.query import Queries
from syncline.lake.roots import Lake
from syncline.lake.segments import Segment, list_segments
from syncline.lake.tables import RECORDS

ROWS: Final = 1_000_000
REPEATS: Final = 150
KEY: Final = "key-7"
PAGE: Final = 100
PAGE_SQL: Final = f"SELECT lsn, key, received_at, verdict FROM records WHERE key = '{KEY}' ORDER BY lsn LIMIT {PAGE}"
COUNT_SQL: Final = f"SELECT count(*) AS n FROM records WHERE key = '{KEY}' AND lsn > 1000"


def run(scale: float = 1.0) -> dict[str, Any]:
    """Ask about `scale` million rows, and about a sixteenth and a quarter of them."""
    rows = max(int(ROWS * scale), 10_000)
    sizes = [rows // 16, rows // 4]
    with tempfile.TemporaryDirectory() as folder:
        smaller = [_alone(_landed(Path(folder) / str(size), size)) for size in sizes]
        cases = _cases(_landed(Path(folder) / "full", rows))
    seconds = [*smaller, sum(each["ours"] for each in cases) / 1e3]
    return report("query", cases, growth=growth("page and count", "rows", [*sizes, rows], seconds))


def _landed(folder: Path, rows: int) -> Lake:
    lake = Lake.below(folder)
    write_plain(lake.segments.path, rows)
    sealed = [found for found in list_segments(lake.segments) if isinstance(found, Segment)]
    Lander(lake, {}, InProcess()).land(sealed)
    return lake


def _alone(lake: Lake) -> float:
    """Seconds of our page and count together."""
    with Queries(lake, [RECORDS]) as queries:
        return sum(best(REPEATS // 3, partial(_ask, queries, sql))[0] for sql in (PAGE_SQL, COUNT_SQL))


def _cases(lake: Lake) -> list[dict[str, Any]]:
    files = DeltaTable(lake.table("records").url).file_uris()
    with Queries(lake, [RECORDS]) as queries, duckdb.connect(":memory:") as bare:
        bare.execute("SET parquet_metadata_cache = true")
        bare.execute(f"CREATE VIEW records AS SELECT * FROM read_parquet({files}, hive_partitioning = true)")
        asked = {"filtered page": (PAGE_SQL, _page), "filtered count": (COUNT_SQL, _count)}
        return [
            _compare(name, partial(_ask, queries, sql), partial(_bare, bare, sql), partial(polars_way, files))
            for name, (sql, polars_way) in asked.items()
        ]


Rows = list[tuple[Any, ...]]


def _compare(name: str, ours: Callable[[], Rows], *peers: Callable[[], Rows]) -> dict[str, Any]:
    works = dict(zip(("ours", "DuckDB", "Polars"), (ours, *peers), strict=True))
    answers = {each: work() for each, work in works.items()}
    assert answers["ours"]
    assert answers["ours"] == answers["DuckDB"] == answers["Polars"], "all must answer the same"
    fastest: dict[str, float] = {}
    order, rng = list(works), random.Random(1)
    for _ in range(REPEATS):  # taking turns, so that a noisy moment, or a neighbour's idle threads, hit all alike
        rng.shuffle(order)
        for each in order:
            fastest[each] = min(timed(works[each])[0], fastest.get(each, math.inf))
    seconds = fastest.pop("ours")
    winner, peer = min(fastest.items(), key=lambda pair: pair[1])
    return case(name, seconds * 1e3, peer * 1e3, winner, "ms", ratio=seconds / peer, bar=1.3, at_most=True)


def _ask(queries: Queries, sql: str) -> Rows:
    return [tuple(row.values()) for row in queries.ask(sql).rows.to_pylist()]


def _bare(connection: duckdb.DuckDBPyConnection, sql: str) -> Rows:
    """The faster of DuckDB's two ways: rows at once, without Arrow in between."""
    found: Rows = connection.execute(sql).fetchall()
    return found


def _page(files: list[str]) -> Rows:
    frame = polars.scan_parquet(files).filter(polars.col("key") == KEY).select("lsn", "key", "received_at", "verdict")
    return [tuple(row.values()) for row in frame.sort("lsn").head(PAGE).collect().to_arrow().to_pylist()]


def _count(files: list[str]) -> Rows:
    wanted = (polars.col("key") == KEY) & (polars.col("lsn") > 1000)
    return [(polars.scan_parquet(files).filter(wanted).select(polars.len()).collect().item(),)]
