"""Killed −9 in the middle of their work, a feed misses nothing and doubles nothing, and a publisher publishes once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from syncline.core.ports import RecordQuery
from tests.lake.conftest import environment
from tests.lake.source import stream
from tests.lake.source.conftest import MakeNode, chirp
from tests.nodes import NodeThread

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(400),
]  # half a minute each, unless the machine is busy


def start(direction: str, node: NodeThread, folder: Path) -> subprocess.Popen[str]:
    root = Path(stream.__file__).parents[3]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.lake.source.stream", direction, node.url, str(folder)],
        env={**environment(), "PYTHONPATH": f"{root}:{root / 'src'}"},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def killed_when(process: subprocess.Popen[str], happened: Callable[[], bool]) -> None:
    """End the driver, and with it its Java, the moment something is seen."""

    deadline = time.monotonic() + 150
    while not happened():
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def finished(process: subprocess.Popen[str]) -> None:
    told, _ = process.communicate(timeout=200)
    assert (process.returncode, told.split()) == (0, ["started", "done"])


def written(folder: Path) -> list[int]:
    """The rows that Spark's own log of the sink says are there."""

    log = folder / "rows" / "_spark_metadata"
    lines = [
        line for file in sorted(log.iterdir()) if file.name[0] != "." for line in file.read_text().splitlines()[1:]
    ]
    paths = {json.loads(line)["path"].removeprefix("file://") for line in lines}
    return sorted(lsn for path in paths for lsn in pq.read_table(path, columns=["lsn"])["lsn"].to_pylist())


def test_a_killed_feed_goes_on_without_gap_or_double(make_node: MakeNode, tmp_path: Path) -> None:
    node = make_node()
    chirp(node, *(str(number) for number in range(60)))
    offsets = tmp_path / "checkpoint" / "offsets"
    killed_when(start("read", node, tmp_path), lambda: (offsets / "2").exists())
    assert not (tmp_path / "checkpoint" / "commits" / "8").exists()
    chirp(node, *(str(number) for number in range(60, 80)))
    finished(start("read", node, tmp_path))
    assert written(tmp_path) == list(range(1, 81))


def test_a_killed_publisher_publishes_each_row_once(make_node: MakeNode, tmp_path: Path) -> None:
    node = make_node()
    (tmp_path / "rows").mkdir()
    for part in range(3):
        lines = [json.dumps({"text": f"chirp {part}-{number}"}) for number in range(200)]
        (tmp_path / "rows" / f"{part}.json").write_text("\n".join(lines))
    killed_when(start("write", node, tmp_path), lambda: node.node.journal.newest() > 250)
    assert 250 < node.node.journal.newest() < 600
    finished(start("write", node, tmp_path))
    records = node.node.journal.read(RecordQuery(limit=1_000))
    texts = sorted(json.loads(record.raw or b"")["text"] for record in records)
    assert texts == sorted(f"chirp {part}-{number}" for part in range(3) for number in range(200))
