"""`lake run --follow` lands what is sealed while it runs, tells Prometheus, and ends cleanly when it is told to."""

from __future__ import annotations

import json
import pickle
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from syncline.lake.batch import InProcess, Lander
from syncline.lake.roots import Lake
from syncline.lake.segments import Segment, list_segments
from syncline.lake.stages import built_in_stages
from syncline.testing.segments import FakeJournal
from syncline.testing.traffic import Traffic, seal
from tests.lake.conftest import PROGRAM, environment
from tests.lake.truth import assert_tables_equal
from tests.ports import free_port

T = TypeVar("T")
R = TypeVar("R")


def metrics(port: int) -> dict[str, float]:
    """Every number without its labels but for tables; nothing while nobody answers."""
    try:
        text = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    except httpx.TransportError:
        return {}
    return {
        "/".join((sample.name, *sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def wait_for(process: subprocess.Popen[str], port: int, records: int) -> dict[str, float]:
    deadline = time.monotonic() + 150
    while metrics(port).get("syncline_lake_records_total", 0) < records:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return metrics(port)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(400)  # half a minute, unless the machine is busy
def test_a_following_pipeline_tells_its_numbers_and_stops_after_the_batch_at_hand(tmp_path: Path) -> None:
    lake, traffic, journal, port = Lake.below(tmp_path / "data"), Traffic(71), FakeJournal("a"), free_port()
    first = traffic.receive(journal, traffic.publish(60), garbage=0.1)
    seal(lake.segments.path, first)
    process = subprocess.Popen(
        [*PROGRAM, "--set", "lake.seconds=0.3", "lake", "run", "--follow", "--metrics-port", str(port), "--json"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(process, port, len(first))
        second = traffic.receive(journal, traffic.publish(60))
        seal(lake.segments.path, second)
        found = wait_for(process, port, len(first) + len(second))
        process.send_signal(signal.SIGTERM)
        told, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    assert found["syncline_lake_records_total"] == len(traffic.truth.records)
    assert found["syncline_lake_rows_total/sdsp_frames"] == 120
    assert (found["syncline_lake_damaged_segments_total"], found["syncline_lake_lag_segments"]) == (0, 0)
    lines = [json.loads(line) for line in told.splitlines()]
    assert {line["event"] for line in lines[:-1]} == {"batch"}
    assert (lines[-1]["event"], lines[-1]["records"]) == ("done", len(traffic.truth.records))
    assert lines[-1]["lag"] == {"segments": 0, "records": 0}
    assert_tables_equal(lake, traffic.truth)


class Weighing(InProcess):
    """Counts what passes between the driver and its tasks, as Spark would pickle it."""

    def __init__(self) -> None:
        self.bytes = 0

    def run(self, function: Callable[[T], R], tasks: Sequence[T], title: str) -> list[R]:
        answers = super().run(function, tasks, title)
        self.bytes += len(pickle.dumps((list(tasks), answers)))
        return answers


def test_the_driver_handles_as_much_for_ten_times_the_data(tmp_path: Path) -> None:
    """Names, sizes and statistics of files only: the same number of segments and buckets weighs the same."""
    weights, rows = [], []
    for size in (40, 400):
        lake, traffic, runner = Lake.below(tmp_path / str(size)), Traffic(72), Weighing()
        seal(lake.segments.path, traffic.receive(FakeJournal("a"), traffic.publish(size * 5)), size)
        sealed = [found for found in list_segments(lake.segments) if isinstance(found, Segment)]
        result = Lander(lake, built_in_stages(), runner, buckets=4).land(sealed)
        assert len(sealed) == 5
        rows.append(result.records)
        weights.append(runner.bytes)
    assert rows == [200, 2_000]
    assert weights[1] < 1.1 * weights[0]
