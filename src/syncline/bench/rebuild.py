"""Scenario `rebuild`: the state of every SDSP object from its landed frames, on Spark with two cores, against one thread
of plain Python with `json` and `jsonpatch`, which reads the same files.

Both end with the same objects; ours also verifies order and versions, and writes and commits a table.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jsonpatch
import pyarrow.parquet as pq
from deltalake import DeltaTable

from syncline.bench.report import case, growth, report, timed
from syncline.bench.segments import write_frames
from syncline.lake.pipeline import Pipeline
from syncline.lake.refold import refold
from syncline.lake.roots import Lake
from syncline.lake.runner import OnSpark
from syncline.lake.session import SessionOptions, start_session
from syncline.lake.stages.sdsp import STAGES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FRAMES: Final = 1_000_000
PER_OBJECT: Final = 100


def run(scale: float = 1.0) -> dict[str, Any]:
    """Rebuild from `scale` million frames, a hundred an object."""
    spark = start_session(SessionOptions(master="local[2]"))
    frames = max(int(FRAMES * scale), 2_000)
    with tempfile.TemporaryDirectory() as folder:
        _measure(spark, Path(folder) / "warm-up", 2_000)
        sizes = [max(frames // part, 1_000) for part in (16, 4)]
        smaller = [_measure(spark, Path(folder) / str(size), size)[0] for size in sizes]
        ours, peer = _measure(spark, Path(folder) / "full", frames)
    grown = growth("objects from frames", "frames", [*sizes, frames], [*smaller, ours])
    name = f"{frames:,} frames of {frames // PER_OBJECT:,} objects"
    found = case(name, frames / ours, frames / peer, "jsonpatch, one thread", "frames/s", ratio=peer / ours, bar=3.0)
    return report("rebuild", [found], growth=grown)


def _measure(spark: SparkSession, folder: Path, frames: int) -> tuple[float, float]:
    lake = Lake.below(folder)
    write_frames(lake.segments.path, frames, frames // PER_OBJECT)
    Pipeline(spark, lake).run_available()
    landed = _objects(lake)
    ours, _ = timed(lambda: refold(lake, STAGES, STAGES.states[0], OnSpark(spark)))
    peer, truth = timed(lambda: _plain(DeltaTable(lake.table("sdsp_frames").url).file_uris()))
    assert _objects(lake) == truth == landed, "all three must give the same objects"
    return ours, peer


def _plain(files: list[str]) -> dict[str, Any]:
    frames: dict[str, list[dict[str, Any]]] = {}
    for path in files:
        for raw in pq.read_table(path, columns=["frame"], partitioning=None)["frame"].to_pylist():
            frame = json.loads(raw)
            frames.setdefault(frame["uid"], []).append(frame)
    return {uid: _folded(found) for uid, found in frames.items()}


def _folded(frames: list[dict[str, Any]]) -> Any:
    value: Any = None
    for frame in sorted(frames, key=lambda frame: int(frame["serial"])):
        if "data" in frame:
            value = frame["data"]
        else:
            value = jsonpatch.JsonPatch(frame["delta"]).apply(value, in_place=True)
    return value


def _objects(lake: Lake) -> dict[str, Any]:
    rows = DeltaTable(lake.table("sdsp_objects").url).to_pyarrow_table(columns=["uid", "value"])
    return {
        uid: json.loads(value) for uid, value in zip(rows["uid"].to_pylist(), rows["value"].to_pylist(), strict=True)
    }
