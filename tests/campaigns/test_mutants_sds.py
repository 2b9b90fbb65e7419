"""Every row of the SDS ledger, broken by hand: the test named beside it must notice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.campaigns.conftest import LONG, Figures

pytestmark = pytest.mark.campaign
ROOT = Path(__file__).resolve().parents[2]
TESTS = "tests/protocols/sds"
MUTANTS = tomllib.loads((ROOT / TESTS / "mutants.toml").read_text())
CHOSEN = MUTANTS if LONG else dict(list(MUTANTS.items())[:: max(1, len(MUTANTS) // 10)])


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source, to be broken."""
    folder = tmp_path_factory.mktemp("mutants")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def passes(source: Path, test: str) -> bool:
    where = test if test.startswith("tests/") else f"{TESTS}/{test}"
    environment = {**os.environ, "PYTHONPATH": str(source / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--timeout=60", where]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.returncode == 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", CHOSEN)
def test_a_broken_line_is_noticed(copy: Path, name: str, figures: Figures) -> None:
    mutant = MUTANTS[name]
    file = copy / "src/syncline" / mutant["file"]
    whole = file.read_text()
    try:
        file.write_text(whole.replace(mutant["old"], mutant["new"]))
        assert not passes(copy, mutant["test"]), "the mutant lives"
    finally:
        file.write_text(whole)
    figures(mutant=name, killed_by=mutant["test"])
