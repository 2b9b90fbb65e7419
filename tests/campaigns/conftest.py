"""Campaigns print their figures as JSON and are reproducible by their seed (`SYNCLINE_SEED`, printed)."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
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
        sys.stdout.write(
            "\n" + json.dumps({"campaign": request.node.name, "seed": seed, "long": LONG, **values}) + "\n"
        )

    return show
