"""The pipeline killed at every named point while all five protocols land: the next run ends in the tables of the truth.

Every place is tried with tasks run in this process; some of them, drawn by the seed, with a real driver killed -9.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from syncline.core.crash import crash_point
from syncline.lake import batch, pipeline
from syncline.lake.batch import InProcess, Lander
from syncline.lake.pipeline import Pipeline
from syncline.lake.segments import Segment, list_segments
from syncline.lake.stages import built_in_stages
from tests.campaigns.conftest import LONG, Figures
from tests.lake.conftest import command, spark
from tests.lake.oracle import World

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(3_600 if LONG else 600)]
__all__ = ["spark"]  # a fixture
POINTS = (*batch.CRASH_POINTS, *pipeline.CRASH_POINTS)
LEAST, MOST = 15, 21  # commits of a batch with all protocols; whether there are gaps to write, chance decides
PLACES = [
    "lake.begun:2",
    "lake.landed:2",
    *(f"lake.rebuilt:{number}" for number in range(7, 13)),  # one for each protocol and one for the journals
    *(f"lake.committed:{number}" for number in range(MOST + 1, 2 * LEAST + 1)),  # in the second batch
    "lake.batch_done:2",
]


class Killed(BaseException):
    """Ends a batch as a kill would: nothing after it happens."""


@pytest.fixture
def kill_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    def at(place: int) -> None:
        left = [place]

        def point(name: str) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Killed(name)

        monkeypatch.setattr(batch, "crash_point", point)

    yield at
    monkeypatch.setattr(batch, "crash_point", crash_point)


def land(world: World) -> None:
    sealed = sorted(found for found in list_segments(world.lake.segments) if isinstance(found, Segment))
    Lander(world.lake, built_in_stages(), InProcess(), buckets=2).land(sealed)


def test_every_crash_point_is_tried() -> None:
    assert {place.partition(":")[0] for place in PLACES} == set(POINTS)


def test_killed_at_every_place_in_turn_the_next_run_mends_it(
    tmp_path: Path, seed: int, kill_at: Any, figures: Figures
) -> None:
    """One lake, killed at the first place, then at the second, and so on: each kill finds what others left behind."""
    world, places = World(tmp_path, seed), 0
    while True:
        world.hear(100)  # a whole batch for every table, on top of what is half done
        kill_at(places + 1)
        try:
            land(world)
        except Killed:
            places += 1
            continue
        break
    world.hear(100, last=True)
    kill_at(10**9)
    land(world)
    assert places > LEAST
    world.assert_journals()
    world.assert_tables()
    figures(places=places)


def drawn(count: int, seed: int) -> list[str]:
    return PLACES if LONG else random.Random(seed).sample(PLACES, count)


def test_a_driver_killed_at_drawn_places_leaves_nothing_that_the_next_run_does_not_mend(
    spark: Any, tmp_path: Path, seed: int, figures: Figures
) -> None:
    places = drawn(5, seed)
    for number, place in enumerate(places):
        folder = tmp_path / str(number)
        folder.mkdir()
        world = World(folder, seed + number)
        world.hear(400)
        world.hear(400, last=True)
        killed = command(folder, "--set", "lake.batch_segments=10", "lake", "run", "--json", SYNCLINE_CRASH_AT=place)
        assert killed.returncode == -signal.SIGKILL, (place, killed.stderr[-2_000:])
        Pipeline(spark, world.lake, batch_segments=10).run_available()
        world.assert_journals()
        world.assert_tables()
    figures(places=places)
