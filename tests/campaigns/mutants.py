"""Making mutants: a copy of the source with one line broken, and whether a test passes on it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def copy_of_source(folder: Path) -> Path:
    """The source, to be broken."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def survives(copy: Path, mutant: dict[str, Any], tests: str) -> bool:
    """Whether the mutant's test passes although the line is broken. Tests are named below `tests`, or from the root."""
    file = copy / "src/syncline" / mutant["file"]
    whole = file.read_text()
    try:
        file.write_text(whole.replace(mutant["old"], mutant["new"]))
        return _passes(copy, mutant["test"] if mutant["test"].startswith("tests/") else f"{tests}/{mutant['test']}")
    finally:
        file.write_text(whole)


def _passes(source: Path, test: str) -> bool:
    environment = {**os.environ, "PYTHONPATH": str(source / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--timeout=60", test]
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=150)
    except subprocess.TimeoutExpired:  # in virtual time a test may wait for ever: it does not pass
        return False
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.returncode == 0
