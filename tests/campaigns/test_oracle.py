"""The generator's truth against journal, tables, SQL and export, each by itself; and live state against the lake's.

Messages of all five protocols reach two nodes repeated, out of order, forged, late or never. What the tables then hold must
be the truth exactly, and nothing may be found to audit.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from syncline.lake.pipeline import Pipeline
from tests.campaigns.conftest import LONG, Figures
from tests.lake.conftest import spark
from tests.lake.oracle import World

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(24 * 3_600 if LONG else 600)]
__all__ = ["spark"]  # a fixture
MESSAGES = int(os.environ.get("SYNCLINE_ORACLE") or (2_700_000 if LONG else 20_000))
RECORDS = 1.85 * MESSAGES  # of two nodes, most of which hear a message both, some twice
ROUNDS = 100 if LONG else 8


def test_the_truth_is_in_journal_tables_query_and_export(
    spark: Any, tmp_path: Path, seed: int, figures: Figures
) -> None:
    begun = time.monotonic()
    world = World(tmp_path, seed, objects=max(40, MESSAGES // 100))
    for number in range(1, ROUNDS + 1):
        world.hear(MESSAGES // ROUNDS, last=number == ROUNDS, segment=MESSAGES // 10)
        if number in (1, ROUNDS // 2):  # so that what belongs together lands in several batches
            Pipeline(spark, world.lake, batch_segments=10).run_available()
    summary = Pipeline(spark, world.lake).run_available()
    landed = time.monotonic()
    world.assert_journals()
    world.assert_tables()
    assert summary.differing == 0
    truth = world.oracle.truth
    total = sum(truth.arrivals.values())
    assert total >= RECORDS
    verdicts: Counter[str] = Counter()
    for (_, verdict), count in truth.arrivals.items():
        verdicts[verdict] += count
    figures(
        messages=MESSAGES,
        arrivals=total,
        verdicts=dict(verdicts),
        rows={name: len(found) for name, found in sorted(truth.rows.items())},
        missing=sum(world.oracle.missing().values()),
        seconds_to_land=round(landed - begun),
        seconds=round(time.monotonic() - begun),
    )
