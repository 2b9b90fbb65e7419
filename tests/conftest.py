"""Fixtures for every floor."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest

hypothesis.settings.register_profile("syncline", deadline=None)  # a busy machine is not a failure
hypothesis.settings.load_profile("syncline")

VECTORS = Path(__file__).parent / "vectors"


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The node runs on trio; tests of library code that users call ask for both backends themselves."""
    return "trio"


@pytest.fixture(scope="session")
def vectors() -> Callable[[str], list[dict[str, Any]]]:
    """The vectors of one protocol, made by independent implementations."""

    def load(protocol: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads((VECTORS / f"{protocol}.json").read_text())["vectors"]
        return found

    return load


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """With CI=true a skip is a failure: nothing may hide."""
    outcome = yield
    _fail_if_skipped(outcome.get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Any:
    """The same for a whole file."""
    outcome = yield
    _fail_if_skipped(outcome.get_result())


def _fail_if_skipped(report: Any) -> None:
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI") == "true":
        report.outcome = "failed"
        report.longrepr = f"skipped with CI=true: {report.longrepr}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For two workers: the tests of one file stay together, and so do all of the lake, which share one Spark."""
    for item in items:
        file = item.path.relative_to(Path(__file__).parent)
        item.add_marker(pytest.mark.xdist_group("lake" if file.parts[0] == "lake" else str(file)))
