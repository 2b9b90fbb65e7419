"""The thin slice, from the command line alone: published on a node, sealed, landed, asked for."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import PROGRAM, up
from tests.lake.conftest import command, environment

pytestmark = pytest.mark.spark


def test_a_published_frame_is_a_row_of_frames_and_a_state_of_objects(tmp_path: Path) -> None:
    assert command(tmp_path, "init").returncode == 0
    with up(tmp_path, "--set", "segments.seconds=0.1") as node:
        for altitude in (550, 551, 552):
            publish(tmp_path, node["url"], {"name": "sat", "altitude": altitude, "notes": "x" * 400})
    done = command(tmp_path, "lake", "run", "--json")
    assert done.returncode == 0, done.stderr
    frames = ask(tmp_path, "SELECT uid, serial, ver, kind FROM sdsp_frames ORDER BY serial")
    assert frames == [
        {"uid": "sat-1", "serial": 0, "ver": 0, "kind": "full"},
        {"uid": "sat-1", "serial": 1, "ver": 1, "kind": "delta"},
        {"uid": "sat-1", "serial": 2, "ver": 2, "kind": "delta"},
    ]
    [state] = ask(tmp_path, "SELECT status, serial, value FROM sdsp_objects WHERE uid = 'sat-1'")
    assert (state["status"], state["serial"]) == ("synced", 2)
    assert json.loads(state["value"])["altitude"] == 552
    past = ask(tmp_path, "SELECT serial, sdsp_object(uid, serial) AS v FROM sdsp_frames ORDER BY serial")
    assert [json.loads(row["v"])["altitude"] for row in past] == [550, 551, 552]


def publish(folder: Path, url: str, value: dict[str, object]) -> None:
    done = subprocess.run(
        [*PROGRAM, "pub", "sdsp", "--uid", "sat-1", "--node", url, "--json"],
        cwd=folder,
        env=environment(),
        input=json.dumps(value),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def ask(folder: Path, sql: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in command(folder, "query", sql, "--json").stdout.splitlines()]
