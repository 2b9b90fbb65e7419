"""The driver killed -9 at every named point, on Spark: the next run ends in the tables of an undisturbed one."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from syncline.lake import batch, pipeline
from syncline.lake.pipeline import Pipeline
from syncline.lake.roots import Lake
from syncline.testing.segments import FakeJournal
from syncline.testing.traffic import Traffic, seal
from tests.lake.conftest import command, spark
from tests.lake.truth import assert_tables_equal

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(300)]
__all__ = ["spark"]  # a fixture

# Each in the second batch, so that there is something to lose and something to repeat; four tables are committed a batch.
PLACES = [
    "lake.begun:2",
    "lake.landed:2",
    "lake.rebuilt:2",
    "lake.committed:5",
    "lake.committed:6",
    "lake.committed:7",
    "lake.committed:8",
    "lake.batch_done:2",
]


def test_every_crash_point_is_tried() -> None:
    assert {place.partition(":")[0] for place in PLACES} == {*batch.CRASH_POINTS, *pipeline.CRASH_POINTS}


@pytest.mark.parametrize("place", PLACES)
def test_a_killed_driver_leaves_nothing_that_the_next_run_does_not_mend(
    spark: Any,
    tmp_path: Path,
    place: str,
) -> None:
    lake, traffic = Lake.below(tmp_path / "data"), Traffic(PLACES.index(place))
    sent = traffic.publish(300)
    for name in ("a", "b"):
        seal(lake.segments.path, traffic.receive(FakeJournal(name), sent, disorder=30, repeats=0.1, garbage=0.05), 60)
    killed = command(tmp_path, "--set", "lake.batch_segments=4", "lake", "run", "--json", SYNCLINE_CRASH_AT=place)
    assert killed.returncode == -signal.SIGKILL
    assert killed.stdout.count('"event":"batch"') == (2 if place == "lake.batch_done:2" else 1)
    Pipeline(spark, lake, batch_segments=4).run_available()
    assert_tables_equal(lake, traffic.truth)
