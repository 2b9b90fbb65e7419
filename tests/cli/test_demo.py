"""`syncline demo` as a newcomer runs it."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.conftest import PROGRAM, environment


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(240)
def test_a_fixed_amount_lands_in_a_table_of_every_protocol(tmp_path: Path) -> None:
    done = subprocess.run(
        [*PROGRAM, "demo", "--once", "--json", "--folder", str(tmp_path)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=220,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    tables, sent = told["tables"], told["sent"]
    assert tables["relay_messages"] == sent["relay messages"] == 40
    assert tables["headers"] == sent["shrex blocks"] == 6
    assert tables["shrex_notifications"] == 18  # each block announced by three
    assert tables["svs_publications"] == sent["svs readings"] + sent["svs reports"] == 28
    assert tables["svs_packets"] > tables["svs_publications"]  # reports go in segments
    assert tables["sdsp_objects"] == 2
    assert tables["sdsp_frames"] == sent["sdsp edits"] + sent["sdsp positions"] == 72
    assert tables["rejected"] > 10  # the misbehaving peer's
    assert tables["records"] == sum(told["records"].values())
    assert tables["sds_omm"] == sent["sds elements"] + sent["sds archive"] == 56
    assert (tables["sds_oem"], tables["sds_cdm"]) == (8, 8)
    assert tables.get("audit", 0) == 0  # lake and nodes judge alike
    assert "landing" in done.stderr


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_it_runs_until_it_is_told_to_stop_and_then_ends_in_order(tmp_path: Path, stop: signal.Signals) -> None:
    command = [*PROGRAM, "demo", "--json", "--no-spark", "--folder", str(tmp_path)]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert list(ready["nodes"]) == ["amber", "basalt", "chert"]
        with httpx.Client(base_url=ready["dashboard"]) as node:
            assert "Syncline" in node.get("/").text
            status = _until(node, lambda status: set(_spoken(status)) == {"sds", "sdsp", "relay", "svs", "shrex"})
            assert status["state"] == "ready"
            rejected = _until(node, lambda status: len(_rejects(status)) >= 3)
            assert {"sds/reject/invalid_signature"} <= _rejects(rejected)
        process.send_signal(stop)
        _, complaints = process.communicate(timeout=30)
        assert process.returncode == 0, complaints
        assert complaints.rstrip().endswith("stopped")
        assert "Traceback" not in complaints
    finally:
        process.kill()
        process.communicate()


def _until(node: httpx.Client, holds: Any, seconds: float = 30.0) -> dict[str, Any]:
    end = time.monotonic() + seconds
    while True:
        status: dict[str, Any] = node.get("/api/v1/status").json()
        if holds(status):
            return status
        assert time.monotonic() < end, status["statistics"]["verdicts"]
        time.sleep(0.2)


def _spoken(status: dict[str, Any]) -> list[str]:
    return [name.split("/")[0] for name in status["statistics"]["verdicts"]]


def _rejects(status: dict[str, Any]) -> set[str]:
    return {name for name in status["statistics"]["verdicts"] if "/reject/" in name}
