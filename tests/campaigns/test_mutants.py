"""Lines broken by hand, one at a time: the test named beside each must notice.

Every `mutants.toml` below tests is a list of them: rows of the spec ledgers beside each protocol's tests, and what is most
tempting to leave out (an fsync, a signature, a FinalBlockId) here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest

from tests.campaigns.conftest import LONG, Figures

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(400)]
ROOT = Path(__file__).resolve().parents[2]
SHORT = 10


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """One break. `home` is the folder its list is in."""

    home: Path
    name: str
    file: str
    old: str
    new: str
    test: str

    @property
    def path(self) -> str:
        """Below src/syncline; some lists name files below their protocol."""
        below = f"protocols/{self.home.name}/{self.file}"
        return below if (ROOT / "src/syncline" / below).is_file() else self.file

    @property
    def where(self) -> str:
        if self.test.startswith("tests/"):
            return self.test
        folder = "tests" if self.home.name == "campaigns" else self.home.relative_to(ROOT).as_posix()
        return f"{folder}/{self.test}"

    def __str__(self) -> str:
        return f"{self.home.name}-{self.name}"


LISTS = sorted((ROOT / "tests").rglob("mutants.toml"))
MUTANTS = [
    Mutant(home=path.parent, name=name, **fields)
    for path in LISTS
    for name, fields in tomllib.loads(path.read_text()).items()
]


def chosen() -> list[Mutant]:
    """All of them, or ten: the tempting ones first, then one of each list."""
    if LONG:
        return MUTANTS
    tempting = [mutant for mutant in MUTANTS if mutant.home.name == "campaigns"]
    others = [next(m for m in MUTANTS if m.home == path.parent) for path in LISTS if path.parent.name != "campaigns"]
    return [*others, *tempting][:SHORT]


def test_every_mutant_can_be_made_and_names_a_test_that_exists() -> None:
    assert len(LISTS) >= 6
    for mutant in MUTANTS:
        source = (ROOT / "src/syncline" / mutant.path).read_text()
        assert source.count(mutant.old) == 1, f"{mutant}: {source.count(mutant.old)} places"
        file, _, test = mutant.where.partition("::")
        function = test.partition("[")[0].rpartition("::")[2]
        assert re.search(rf"def {function}\b", (ROOT / file).read_text()), str(mutant)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source, to be broken."""
    folder = tmp_path_factory.mktemp("mutants")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def passes(source: Path, where: str) -> bool:
    environment = {**os.environ, "PYTHONPATH": str(source / "src"), "PYTHONDONTWRITEBYTECODE": "1", "SYNCLINE_LONG": ""}
    environment.pop("SYNCLINE_FIGURES", None)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--timeout=60", where]
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=150)
    except subprocess.TimeoutExpired:  # in virtual time a test may wait for ever: it does not pass
        return False
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.returncode == 0


@pytest.mark.parametrize("mutant", chosen(), ids=str)
def test_a_broken_line_is_noticed(copy: Path, mutant: Mutant, figures: Figures) -> None:
    file = copy / "src/syncline" / mutant.path
    whole = file.read_text()
    try:
        file.write_text(whole.replace(mutant.old, mutant.new))
        assert not passes(copy, mutant.where), "the mutant lives"
    finally:
        file.write_text(whole)
    figures(mutant=str(mutant), killed_by=mutant.where, of=len(MUTANTS))
