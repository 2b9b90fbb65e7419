"""Campaigns print their figures as JSON and are reproducible by their seed (`SYNCLINE_SEED`, printed).

With `SYNCLINE_FIGURES=FILE` every figure and every outcome is also appended to that file, from which
`tools/reliability.py` writes docs/reliability.md.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

LONG = os.environ.get("SYNCLINE_LONG") == "1"
Figures = Callable[..., None]


@pytest.fixture(scope="session")
def seed() -> int:
    """The seed of this run; set SYNCLINE_SEED to repeat one."""
    chosen = int(os.environ.get("SYNCLINE_SEED") or time.time_ns() % 2**31)
    sys.stdout.write(f"\nseed {chosen}\n")
    return chosen


@pytest.fixture
def figures(request: pytest.FixtureRequest, seed: int) -> Figures:
    """Prints what a campaign measured, as one JSON line."""

    def show(**values: Any) -> None:
        told = {"campaign": campaign_of(request.node), "test": request.node.name, "seed": seed, "long": LONG, **values}
        sys.stdout.write("\n" + json.dumps(told) + "\n")
        write_down({"figures": told})

    return show


def campaign_of(node: pytest.Item) -> str:
    """`tests/campaigns/test_kill_node.py` is the campaign `kill_node`."""
    return node.path.stem.removeprefix("test_")


def write_down(document: dict[str, Any]) -> None:
    if name := os.environ.get("SYNCLINE_FIGURES"):
        file = Path(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as lines:
            lines.write(json.dumps(document) + "\n")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    """Failures go into the file too: the page shows them."""
    outcome = yield
    report = outcome.get_result()
    if report.when == "call" or report.failed:
        told = {"campaign": campaign_of(item), "test": item.name, "long": LONG, "outcome": report.outcome}
        write_down({"outcome": {**told, "seconds": round(report.duration, 1)}})
