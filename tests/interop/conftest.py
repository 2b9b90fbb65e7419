"""Where the peers of other languages are, and what to do where they are not installed."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent

Node = Callable[..., Any]


@pytest.fixture(scope="session")
def npm() -> Path:
    """The folder of the npm packages."""
    if shutil.which("node") is None or not (HERE / "node_modules").is_dir():
        pytest.skip("needs Node and the npm packages of tests/interop: run `make test`, or `npm ci` there")
    return HERE / "node_modules"


@pytest.fixture(scope="session")
def node(npm: Path) -> Node:
    """`node("sdsp/peer.mjs", document)` gives the script one JSON document and returns the one it writes."""

    def run(script: str, document: Any, *, timeout: float = 60.0) -> Any:
        done = subprocess.run(
            ["node", HERE / script], input=json.dumps(document).encode(), capture_output=True, timeout=timeout
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return json.loads(done.stdout)

    return run
