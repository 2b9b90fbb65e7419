"""All five protocols through journals and lake, in little and without Spark: every table is the truth. The campaign of the
same name does it at length, on Spark.
"""

from __future__ import annotations

from pathlib import Path

from syncline.lake.batch import InProcess, Lander
from syncline.lake.reprocess import reprocess
from syncline.lake.segments import Segment, list_segments
from syncline.lake.stages import built_in_stages
from tests.lake.oracle import World


def land(world: World) -> None:
    sealed = sorted(found for found in list_segments(world.lake.segments) if isinstance(found, Segment))
    assert Lander(world.lake, built_in_stages(), InProcess(), buckets=4).land(sealed).differing == 0


def test_every_table_is_the_truth_however_it_came(tmp_path: Path) -> None:
    world = World(tmp_path, 1)
    for last in (False, False, True):
        world.hear(300, last=last)
        land(world)
    world.assert_journals()
    world.assert_tables()
    reprocess(world.lake, built_in_stages(), InProcess())
    world.assert_tables()
