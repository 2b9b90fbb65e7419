"""Peers of other languages for benchmarks: where a checkout keeps them, and how a script of theirs is run."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from syncline.core.errors import MissingError

INTEROP = Path(__file__).resolve().parents[3] / "tests" / "interop"


def node_script(name: str, *arguments: str | Path) -> Any:
    """The JSON document a script of tests/interop prints."""
    if shutil.which("node") is None or not (INTEROP / "node_modules").is_dir():
        raise MissingError(
            "this benchmark needs Node and the npm packages of the interop peers",
            hint="run it from a checkout, after `python tools/setup.py --tests`",
        )
    done = subprocess.run(["node", INTEROP / name, *arguments], cwd=INTEROP, capture_output=True, text=True)
    if done.returncode != 0:
        raise MissingError(f"the peer failed: {done.stderr.strip()[-500:]}", about=name)
    return json.loads(done.stdout)
