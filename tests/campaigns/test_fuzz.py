"""Fuzz every decoder with coverage guidance: only typed errors, bounded memory."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaigns.conftest import LONG, Figures
from tests.campaigns.fuzz.targets import TARGETS

ROOT = Path(__file__).resolve().parents[2]
RUNS = (10_000_000 if LONG else 500_000) // len(TARGETS) + 1
MEMORY_MB = 200


@pytest.mark.timeout(7_200 if LONG else 600)
@pytest.mark.parametrize("target", TARGETS)
def test_a_decoder_meets_a_strangers_bytes_with_typed_errors_only(
    target: str, tmp_path: Path, seed: int, figures: Figures
) -> None:
    command = [sys.executable, "-m", "tests.campaigns.fuzz.run", target, str(RUNS), str(seed), str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, (result.stdout + result.stderr)[-4_000:]
    stats = dict(re.findall(r"stat::(\w+):\s+(\d+)", result.stderr))
    peak = int(stats["peak_rss_mb"])
    figures(target=target, inputs=int(stats["number_of_executed_units"]), peak_mb=peak)
    assert int(stats["number_of_executed_units"]) >= RUNS
    assert peak < MEMORY_MB
