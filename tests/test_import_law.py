"""The import law is real: a planted violation of each rule is found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LINT = Path(sys.executable).with_name("lint-imports")

VIOLATIONS = [
    ("core/planted.py", "import syncline.journal", "Floors"),
    ("formats/planted.py", "import syncline.journal", "Floors"),
    ("journal/planted.py", "import syncline.protocols.alpha", "Floors"),
    ("journal/planted.py", "import syncline.networks.memory", "Floors"),
    ("protocols/alpha/service.py", "import syncline.transports", "Floors"),
    ("protocols/alpha/service.py", "import syncline.node.node", "Floors"),
    ("transports/planted.py", "import syncline.node.node", "Floors"),
    ("node/planted.py", "import syncline.lake", "Floors"),
    ("lake/planted.py", "import syncline.node.node", "Floors"),
    ("node/planted.py", "import syncline.web", "Floors"),
    ("node/planted.py", "import syncline.testing.clock", "Floors"),
    ("testing/planted.py", "import syncline.cli.main", "Floors"),
    ("protocols/alpha/service.py", "import syncline.protocols.beta", "Protocols do not know one another"),
    ("protocols/alpha/wire.py", "import socket", "Pure rooms"),
    ("protocols/alpha/rules.py", "import time", "Pure rooms"),
    ("protocols/alpha/columns.py", "import syncline.networks.memory", "Pure rooms"),
    ("protocols/alpha/rebuild.py", "import anyio", "Pure rooms"),
    ("protocols/alpha/rules/parts.py", "import trio", "Pure rooms"),
    ("protocols/alpha/session.py", "import asyncio", "Pure rooms"),
    ("formats/planted.py", "import threading", "Pure rooms"),
    ("node/planted.py", "import pyspark", "PySpark stays in the lake"),
    ("cli/planted.py", "from pyspark.sql import SparkSession", "PySpark stays in the lake"),
    ("web/planted.py", "import syncline.testing.clock", "Floors"),
    ("bench/planted.py", "import syncline.cli.main", "Floors"),
    ("networks/planted.py", "import syncline.journal", "Floors"),
    ("cli/planted.py", "import syncline.testing.clock", "The testing kit"),
]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    return subprocess.run([LINT, "--no-cache"], cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source with two empty protocols beside the real ones."""
    folder = tmp_path_factory.mktemp("law")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    for name in ("alpha", "beta"):
        protocol = folder / "src/syncline/protocols" / name
        protocol.mkdir()
        (protocol / "__init__.py").touch()
    return folder


def test_the_law_holds(tree: Path) -> None:
    result = lint(tree)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(("file", "line", "contract"), VIOLATIONS)
def test_a_planted_violation_is_found(tree: Path, file: str, line: str, contract: str) -> None:
    planted = tree / "src/syncline" / file
    assert not planted.exists()
    planted.parent.mkdir(exist_ok=True)
    package = planted.parent / "__init__.py"
    made = not package.exists()
    try:
        package.touch()
        planted.write_text(line + "\n")
        result = lint(tree)
    finally:
        planted.unlink()
        if made:
            shutil.rmtree(planted.parent)
    broken = [each for each in result.stdout.splitlines() if " BROKEN" in each]
    assert result.returncode == 1
    assert [each for each in broken if each.startswith(contract)], result.stdout
