"""The pipeline on Spark: what is sealed is in the tables, once, however often and from wherever it is run."""

from __future__ import annotations

import os
import shutil
import threading
from typing import Any

import pytest

from syncline.core.errors import UnavailableError
from syncline.lake.batch import BatchResult
from syncline.lake.lock import only_pipeline
from syncline.lake.pipeline import Lag, Pipeline
from syncline.lake.roots import Lake
from syncline.lake.transforms import decoded, folded, one_per_message, read_segments, verified
from syncline.testing.segments import FakeJournal, in_pieces, write_segments
from syncline.testing.traffic import Traffic, seal
from tests.lake.conftest import arrivals, rows

pytestmark = pytest.mark.spark


def test_all_that_is_sealed_lands_in_batches_of_the_size_asked_for(spark: Any, lake: Lake) -> None:
    records = FakeJournal("a").keep(arrivals(100))
    for piece in in_pieces(records, 10):
        write_segments(lake.segments.path, piece)
    seen: list[BatchResult] = []
    summary = Pipeline(spark, lake, stages={}, batch_segments=4, on_batch=seen.append).run_available()
    assert [(result.batch, result.segments) for result in seen] == [(0, 4), (1, 4), (2, 2)]
    assert (summary.batches, summary.segments, summary.records, summary.damaged) == (3, 10, 100, [])
    assert sorted(rows(lake, "records")["lsn"].to_pylist()) == list(range(1, 101))


def test_a_later_run_lands_only_what_is_new_even_without_its_checkpoint(spark: Any, lake: Lake) -> None:
    journal = FakeJournal("a")
    for round_ in range(3):
        write_segments(lake.segments.path, journal.keep(arrivals(20, first=round_ * 20)))
        pipeline = Pipeline(spark, lake, stages={})
        assert pipeline.lag() == Lag(1, 20)
        assert pipeline.run_available().records == 20
        assert pipeline.lag() == Lag()
        if round_ == 1:
            shutil.rmtree(lake.checkpoints.path)
    assert sorted(rows(lake, "records")["lsn"].to_pylist()) == list(range(1, 61))


def test_files_the_stream_passes_over_are_found_all_the_same(spark: Any, lake: Lake) -> None:
    """Empty files are not handed out by Spark; files put back under a name it has seen are not either."""
    journal = FakeJournal("a")
    [good] = write_segments(lake.segments.path, journal.keep(arrivals(10)))
    [torn] = write_segments(lake.segments.path, journal.keep(arrivals(10, first=10)))
    content = torn.read_bytes()
    torn.write_bytes(b"")
    stranger = good.with_name("notes.parquet")
    stranger.write_bytes(content)
    summary = Pipeline(spark, lake, stages={}).run_available()
    assert summary.records == 10
    assert sorted((damage.path.rpartition("/")[2], damage.why[:20]) for damage in summary.damaged) == [
        (torn.name, "not a whole Parquet "),
        ("notes.parquet", "no segment is named "),
    ]
    torn.write_bytes(content)
    os.utime(torn, (0, 0))
    assert Pipeline(spark, lake, stages={}).run_available().records == 10
    assert sorted(rows(lake, "records")["lsn"].to_pylist()) == list(range(1, 21))


def test_a_running_pipeline_lands_segments_as_they_are_sealed(spark: Any, lake: Lake) -> None:
    journal = FakeJournal("a")
    landed = threading.Semaphore(0)
    pipeline = Pipeline(spark, lake, stages={}, on_batch=lambda _: landed.release())
    runner = threading.Thread(target=pipeline.run, args=(0.1,))
    runner.start()
    try:
        for round_ in range(2):
            write_segments(lake.segments.path, journal.keep(arrivals(10, first=round_ * 10)))
            assert landed.acquire(timeout=60)
    finally:
        pipeline.stop()
        runner.join(60)
    assert not runner.is_alive()
    assert pipeline.summary.records == rows(lake, "records").num_rows == 20


def test_a_second_pipeline_on_the_same_lake_is_told_to_wait(spark: Any, lake: Lake) -> None:
    with only_pipeline(lake), pytest.raises(UnavailableError, match="another pipeline is at work"):
        Pipeline(spark, lake, stages={}).run_available()


def test_the_stages_as_transforms_give_what_the_pipeline_gives(spark: Any, lake: Lake) -> None:
    traffic = Traffic(41)
    sent = traffic.publish(150)
    for name in ("a", "b"):
        seal(lake.segments.path, traffic.receive(FakeJournal(name), sent, disorder=20, garbage=0.1))
    Pipeline(spark, lake).run_available()
    records = read_segments(spark, lake)
    judged = records.transform(verified)
    assert judged.where("verdict = 'accept' AND lake_verdict <> 'accept'").count() == 0
    assert judged.where("lake_verdict = 'reject'").count() == len(traffic.truth.rejected())
    frames = records.transform(decoded("sdsp_frames"))
    assert frames.count() == 300
    objects = frames.transform(one_per_message("sdsp_frames")).transform(folded("sdsp_objects")).toArrow()
    assert (
        objects.sort_by("uid").to_pylist()
        == rows(lake, "sdsp_objects").drop_columns("bucket").sort_by("uid").to_pylist()
    )
