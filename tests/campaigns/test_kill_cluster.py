"""On a standalone cluster with two workers: an executor killed -9 in the middle of a run, then the driver. The tables end as
the truth says.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from syncline.lake.session import FAST_START
from tests.campaigns.conftest import LONG, Figures
from tests.lake.conftest import PROGRAM, command, environment
from tests.lake.oracle import World
from tests.lake.test_spark import cluster

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(3_600 if LONG else 600)]
ROUNDS = 15 if LONG else 1
CONF = ("--conf", "spark.executor.memory=512m", "--conf", f"spark.executor.extraJavaOptions={FAST_START}")


def test_killed_executors_and_drivers_change_nothing_in_the_tables(tmp_path: Path, seed: int, figures: Figures) -> None:
    world, rng = World(tmp_path, seed), random.Random(seed)
    begun, batches = time.monotonic(), 0
    with cluster(tmp_path, workers=2) as master:
        run = ("--set", "lake.batch_segments=10", "lake", "run", "--json", "--master", master, *CONF)
        for _ in range(ROUNDS):
            for _ in range(3):
                world.hear(200)
            batches += run_with_executor_killed(tmp_path, run)
            world.hear(200)
            place = f"lake.committed:{rng.randrange(1, 14)}"
            assert command(tmp_path, *run, SYNCLINE_CRASH_AT=place).returncode == -signal.SIGKILL, place
        world.hear(200, last=True)
        done = command(tmp_path, *run)
        assert done.returncode == 0, done.stderr
    world.assert_journals()
    world.assert_tables()
    figures(executors_killed=ROUNDS, drivers_killed=ROUNDS, batches=batches, seconds=round(time.monotonic() - begun))


def run_with_executor_killed(folder: Path, arguments: tuple[str, ...]) -> int:
    """Run the pipeline; once its first batch is told of, kill one of its executors. Says how many batches came after."""
    with (folder / "driver.log").open("w") as log:
        process = subprocess.Popen(
            [*PROGRAM, *arguments], cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert process.stdout is not None
    first = process.stdout.readline()
    victims = executors(folder)
    assert victims, f"no executor of this cluster is running: {first}"
    os.kill(victims[0], signal.SIGKILL)
    rest = process.stdout.read().splitlines()
    process.stdout.close()
    assert process.wait() == 0, (folder / "driver.log").read_text()[-4_000:]
    told = [json.loads(line) for line in rest]
    assert told[-1]["event"] == "done"
    after = len([line for line in told if line["event"] == "batch"])
    assert after > 0, "the executor was killed after the last batch"
    return after


def executors(folder: Path) -> list[int]:
    """Executors that the workers of this folder started, by their process ids."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
                place = (process / "cwd").readlink()
            except OSError:
                continue
            if b"org.apache.spark.executor.CoarseGrainedExecutorBackend" in words and place.is_relative_to(folder):
                found.append(int(process.name))
    return sorted(found)
