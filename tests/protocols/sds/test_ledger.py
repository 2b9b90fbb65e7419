"""The ledger is kept: every row names code and a test that exist, and has a mutant that can be made."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SOURCE = ROOT / "src/syncline"
MUTANTS = tomllib.loads((HERE / "mutants.toml").read_text())
PAGE = (ROOT / "docs/protocols/sds.md").read_text()
ROWS = re.findall(r"^\| (S\d+) \| (.+?) \| (\S+::\S+) \| (\S+::\S+) \|$", PAGE, re.MULTILINE)


def there(reference: str, beside: Path) -> bool:
    file, _, name = reference.partition("::")
    path = ROOT / file if file.startswith(("src/", "tests/")) else beside / file
    pattern = rf"^\s*(?:async def|def|class) {name}\b|^{name}: Final"
    return path.exists() and re.search(pattern, path.read_text(), re.MULTILINE) is not None


@pytest.mark.parametrize(("name", "asked", "code", "test"), ROWS)
def test_what_a_row_names_exists(name: str, asked: str, code: str, test: str) -> None:
    assert there(code, SOURCE / "protocols/sds"), asked
    assert there(test, HERE), asked


def test_every_row_has_a_mutant_that_can_be_made_and_a_test_for_it() -> None:
    assert len(ROWS) > 60
    assert list(MUTANTS) == [name for name, *_ in ROWS]
    for name, mutant in MUTANTS.items():
        assert (SOURCE / mutant["file"]).read_text().count(mutant["old"]) == 1, name
        assert there(mutant["test"], HERE), name
