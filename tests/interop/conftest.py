"""Where the peers of other languages are, and what to do where they are not installed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def npm() -> Path:
    """The folder of the npm packages."""
    if shutil.which("node") is None or not (HERE / "node_modules").is_dir():
        pytest.skip("needs Node and the npm packages of tests/interop: run `make test`, or `npm ci` there")
    return HERE / "node_modules"
