"""The ledger is kept: every requirement names code and tests that exist, and has a mutant that can be made."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SOURCE = ROOT / "src/syncline/protocols/svs"
PAGE = (ROOT / "docs/protocols/svs.md").read_text()
MUTANTS = tomllib.loads((HERE / "mutants.toml").read_text())
ROWS = re.findall(r"^\| ([A-Z]\d+) \| (.+?) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)


def test_every_row_names_code_and_tests_that_exist() -> None:
    assert len(ROWS) >= 35
    for name, _, code, tests in ROWS:
        for file, word in re.findall(r"`([\w/]+\.py)(?: (\w+))?`", code):
            assert word in (SOURCE / file).read_text(), f"{name}: {file} {word}"
        file = ""
        for path, function in re.findall(r"`([\w/.…]+)::(\w+)`", tests):
            file = file if path == "…" else path
            assert f"def {function}(" in (HERE / file).read_text(), f"{name}: {function}"


def test_every_row_has_a_mutant_that_can_be_made_and_a_test_for_it() -> None:
    inapplicable = {name for name, _, code, _ in ROWS if code.startswith("not applicable")}
    assert set(MUTANTS) == {name for name, *_ in ROWS} - inapplicable
    for name, mutant in MUTANTS.items():
        assert (SOURCE / mutant["file"]).read_text().count(mutant["old"]) == 1, name
        file, _, function = mutant["test"].partition("::")
        assert f"def {function}(" in (HERE / file).read_text(), name
