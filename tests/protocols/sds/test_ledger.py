"""Every row of the ledger names code and a test that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CODE, TESTS = ROOT / "src" / "syncline" / "protocols" / "sds", ROOT / "tests" / "protocols" / "sds"
ROWS = re.findall(
    r"^\| (.+?) \| (\S+::\S+) \| (\S+::\S+) \|$", (ROOT / "docs/protocols/sds.md").read_text(), re.MULTILINE
)


def there(reference: str, beside: Path) -> bool:
    file, _, name = reference.partition("::")
    path = ROOT / file if file.startswith(("src/", "tests/")) else beside / file
    pattern = rf"^\s*(?:async def|def|class) {name}\b|^{name}: Final"
    return path.exists() and re.search(pattern, path.read_text(), re.MULTILINE) is not None


def test_the_ledger_has_rows() -> None:
    assert len(ROWS) > 60


@pytest.mark.parametrize(("asked", "code", "test"), ROWS)
def test_what_a_row_names_exists(asked: str, code: str, test: str) -> None:
    assert there(code, CODE), asked
    assert there(test, TESTS), asked
