"""The whole pipeline on Spark: in local mode, on a standalone cluster, and where there is no Java."""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from syncline.lake.java import find_java, quiet_home
from syncline.lake.pipeline import Pipeline
from syncline.lake.roots import Lake
from syncline.lake.session import FAST_START
from syncline.testing.segments import FakeJournal
from syncline.testing.traffic import Traffic, seal
from tests.lake.conftest import command
from tests.lake.truth import assert_tables_equal

pytestmark = pytest.mark.spark


def two_nodes(folder: Path, seed: int, count: int = 500) -> tuple[Lake, Traffic]:
    """A lake to be, with what two nodes sealed of the same frames."""
    lake, traffic = Lake.below(folder / "data"), Traffic(seed)
    sent = traffic.publish(count)
    for name in ("a", "b"):
        seal(lake.segments.path, traffic.receive(FakeJournal(name), sent, disorder=40, repeats=0.1, garbage=0.05))
    return lake, traffic


def test_in_local_mode_the_tables_equal_the_truth_after_any_replay(spark: Any, tmp_path: Path) -> None:
    lake, traffic = two_nodes(tmp_path, 21)
    Pipeline(spark, lake, batch_segments=5).run_available()
    assert_tables_equal(lake, traffic.truth)
    offsets = lake.checkpoints.path / "lake" / "commits"
    for file in offsets.iterdir():  # Spark now believes that no batch was finished
        file.unlink()
    Pipeline(spark, lake).run_available()
    assert_tables_equal(lake, traffic.truth)
    shutil.rmtree(lake.checkpoints.path)
    seal(lake.segments.path, traffic.receive(FakeJournal("a", life=2), traffic.publish(100)))
    Pipeline(spark, lake).run_available()
    assert_tables_equal(lake, traffic.truth)


@pytest.mark.slow  # a Spark of its own
def test_on_a_standalone_cluster_with_two_workers_the_tables_equal_the_truth(tmp_path: Path) -> None:
    lake, traffic = two_nodes(tmp_path, 22)
    with cluster(tmp_path, workers=2) as master:
        conf = ("--conf", "spark.executor.memory=512m", "--conf", f"spark.executor.extraJavaOptions={FAST_START}")
        done = command(tmp_path, "lake", "run", "--json", "--master", master, *conf)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["segments"] == len(list(lake.segments.path.rglob("*.parquet")))
    assert_tables_equal(lake, traffic.truth)


@pytest.mark.slow  # a Spark of its own
def test_without_java_on_the_machine_the_bundled_one_is_used(tmp_path: Path) -> None:
    lake, traffic = two_nodes(tmp_path, 23, 100)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "cat", "chmod", "dirname", "env", "ls", "ps", "sh"):
        (programs / name).symlink_to(str(shutil.which(name)))
    done = command(tmp_path, "lake", "run", "--json", PATH=str(programs), JAVA_HOME="")
    assert done.returncode == 0, done.stderr
    assert_tables_equal(lake, traffic.truth)


def test_the_drivers_memory_does_not_grow_with_the_data(spark: Any, tmp_path: Path) -> None:
    """Ten times the data through the same driver: neither of its two halves keeps it."""
    used = []
    for index, count in enumerate((2_000, 20_000)):
        lake, traffic = Lake.below(tmp_path / str(index)), Traffic(24, objects=200)
        seal(lake.segments.path, traffic.receive(FakeJournal("a"), traffic.publish(count)), size=1_000)
        del traffic
        before = resident(), heap(spark)
        Pipeline(spark, lake, batch_segments=5).run_available()
        used.append((resident() - before[0], heap(spark) - before[1]))
    (python_small, heap_small), (python_large, heap_large) = used
    # what earlier tests left may be let go of during the first run, which then took less than nothing
    assert python_large - max(python_small, 0) < 20_000_000
    assert heap_large - max(heap_small, 0) < 20_000_000


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def heap(spark: Any) -> int:
    runtime = spark._jvm.java.lang.Runtime.getRuntime()
    spark._jvm.java.lang.System.gc()
    return int(runtime.totalMemory() - runtime.freeMemory())


@contextmanager
def cluster(folder: Path, *, workers: int) -> Iterator[str]:
    """A standalone Spark master with workers, from the pip package, on loopback; ended by their process ids."""
    with ExitStack() as stack:
        master = stack.enter_context(daemon(folder, "master", "master.Master", "--host", "127.0.0.1", "--port", "0"))
        url = wait_for(master, r"Starting Spark master at (spark://\S+)")
        arguments = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", url)
        logs = [
            stack.enter_context(daemon(folder, f"worker{number}", "worker.Worker", *arguments))
            for number in range(workers)
        ]
        for log in logs:
            wait_for(log, r"(Successfully registered with master)")
        yield url


@contextmanager
def daemon(folder: Path, name: str, program: str, *arguments: str) -> Iterator[Path]:
    import pyspark

    script = Path(pyspark.__file__).parent / "bin" / "spark-class"
    log = folder / f"{name}.log"
    kept = {
        key: value for key, value in os.environ.items() if key != "PYTHONPATH"
    }  # our code must come by being shipped
    with log.open("w") as file:
        process = subprocess.Popen(
            [script, f"org.apache.spark.deploy.{program}", "--webui-port", "0", *arguments],
            cwd=folder,
            env={
                **kept,
                "JAVA_HOME": str(quiet_home(find_java())),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_DAEMON_JAVA_OPTS": FAST_START,
                "SPARK_WORKER_DIR": str(folder / f"{name}.work"),
            },
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        yield log
    finally:
        process.terminate()
        process.wait(20)


def wait_for(log: Path, pattern: str, seconds: float = 40) -> str:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if match := re.search(pattern, log.read_text()):
            return match[1]
        time.sleep(0.1)
    raise AssertionError(log.read_text())
