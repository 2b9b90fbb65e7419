"""The Spark driver killed -9 at random moments while it lands all five protocols: the tables end as the truth says."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from syncline.lake.warm import warm_up
from tests.campaigns.conftest import LONG, Figures
from tests.lake.conftest import environment, rows
from tests.lake.oracle import World

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(3_600 if LONG else 900)]
KILLS = 100 if LONG else 10
COMMAND = [sys.executable, "-m", "syncline.cli.main", "lake", "run", "--json"]
SMALL_BATCHES = ["--set", "lake.batch_segments=8"]  # so that kills come between them


def test_a_driver_killed_at_random_moments_ends_in_the_tables_of_an_undisturbed_run(
    tmp_path: Path, seed: int, figures: Figures
) -> None:
    warm_up()
    rng = random.Random(seed)
    world = World(tmp_path, seed)
    kills = batches = 0
    begun = time.monotonic()
    while kills < KILLS:
        for _ in range(3):
            world.hear(60)
        killed, done = run_and_kill(tmp_path, rng)
        kills += killed
        batches += done
    world.hear(60, last=True)
    assert subprocess.run(COMMAND, cwd=tmp_path, env=environment(), capture_output=True, timeout=1_800).returncode == 0
    world.assert_journals()
    world.assert_tables()
    figures(
        kills=kills,
        batches_before_kills=batches,
        records=rows(world.lake, "records").num_rows,
        rows={name: len(found) for name, found in sorted(world.oracle.truth.rows.items())},
        seconds=round(time.monotonic() - begun),
    )
    assert batches > 0, "some kills must have come in the middle of the work"


def run_and_kill(folder: Path, rng: random.Random) -> tuple[int, int]:
    """Run the pipeline and kill its driver at a random moment after its first sign of life, at times with its Java and its
    workers. Says whether it was killed (or had finished first), and how many batches it had told of.
    """
    process = subprocess.Popen(
        [*COMMAND[:3], *SMALL_BATCHES, *COMMAND[3:]],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdout is not None
    if rng.random() < 0.2:  # while Spark starts, or plans its first batch
        time.sleep(rng.uniform(2, 6))
        told = 0
    else:
        told = 1 if process.stdout.readline() else 0
        time.sleep(rng.expovariate(2))
    finished = process.poll() is not None
    if rng.random() < 0.5:
        os.killpg(process.pid, signal.SIGKILL) if not finished else None
    else:
        process.kill()
    rest = process.stdout.read().decode().count('"event":"batch"') if finished else 0
    process.stdout.close()
    process.wait()
    return int(not finished), told + rest
