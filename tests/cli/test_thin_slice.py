"""From a published frame to a row in a table, from the command line alone."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run, up


def rows(result: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.spark
def test_a_published_object_lands_in_the_tables_and_can_be_read_at_any_serial(run: Run, tmp_path: Path) -> None:
    run("init")
    versions = [{"name": "DEMO-1", "alt": 550.5 - n, "notes": "x" * 400} for n in range(4)]
    with up(tmp_path, "--set", "segments.seconds=0.5") as ready:
        node = ["--node", ready["url"]]
        for version in versions:
            (tmp_path / "sat.json").write_text(json.dumps(version))
            published = run("pub", "sdsp", "sat.json", "--uid", "sat-1", "--topic", "sats", "--json", *node)
            assert published.returncode == 0, published.stderr
        live = rows(run("sdsp", "cat", "sat-1", "--json", *node))
    landed = rows(run("lake", "run", "--json"))[-1]
    assert landed["added"] == {"records": 4, "rejected": 0, "sdsp_frames": 4, "sdsp_objects": 1}
    assert landed["lag"] == {"segments": 0, "records": 0}

    frames = rows(run("query", "SELECT serial, kind, alg FROM sdsp_frames ORDER BY serial", "--json"))
    assert [frame["serial"] for frame in frames] == [0, 1, 2, 3]
    assert [frame["kind"] for frame in frames] == ["full", "delta", "delta", "delta"]
    [current] = rows(run("query", "SELECT serial, status, value FROM sdsp_objects WHERE uid = 'sat-1'", "--json"))
    assert (current["serial"], current["status"]) == (3, "synced")
    assert json.loads(current["value"]) == versions[3] == live[0]["value"]
    for serial, version in enumerate(versions):
        [then] = rows(run("query", f"SELECT sdsp_object('sat-1', {serial}) AS value", "--json"))
        assert json.loads(then["value"]) == version

    again = rows(run("lake", "run", "--json"))[-1]
    assert (again["segments"], again["added"]) == (0, {})
