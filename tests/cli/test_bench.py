"""`syncline bench all` runs scenarios one after another in processes of their own, and writes the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from syncline import bench
from syncline.cli.main import app


def test_all_scenarios_are_run_and_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "SCENARIOS", ("ndn", "nothing-of-the-kind"))
    page = tmp_path / "benchmarks.md"
    done = CliRunner().invoke(app, ["bench", "all", "--scale", "0.001", "--json", "--write", str(page)])
    reports = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [report["scenario"] for report in reports] == ["ndn", "nothing-of-the-kind"]
    assert done.exit_code == 1  # what could not be run is not met, and does not stop the others
    assert "there is no scenario" in reports[1]["failed"]
    assert reports[0]["growth"]["sizes"][2] == 16 * reports[0]["growth"]["sizes"][0]
    assert "| ndn | signed Data written and read |" in page.read_text()
