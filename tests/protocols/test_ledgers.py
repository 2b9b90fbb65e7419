"""The spec ledgers name code and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEDGERS = sorted((ROOT / "docs" / "protocols").glob("*.md"))
REFERENCE = re.compile(r"([\w./-]+\.py)::(\w+)")


def defined(file: Path, name: str) -> bool:
    """Whether the file has a function or class of this name, or a constant at its top level."""
    pattern = rf"^\s*(?:async )?(?:def|class) {name}\b|^{name}(?:: \S+)? = "
    return re.search(pattern, file.read_text(), re.MULTILINE) is not None


def place(protocol: str, path: str) -> Path:
    """Where a reference points: from the root, else in the protocol's own rooms or tests."""
    if path.startswith(("src/", "tests/")):
        return ROOT / path
    here = Path("protocols") / protocol / path
    return ROOT / "tests" / here if Path(path).name.startswith("test_") else ROOT / "src" / "syncline" / here


@pytest.mark.parametrize("ledger", LEDGERS, ids=lambda path: path.stem)
def test_every_reference_of_a_ledger_resolves(ledger: Path) -> None:
    found = REFERENCE.findall(ledger.read_text())
    missing = [
        f"{path}::{name}"
        for path, name in found
        if not place(ledger.stem, path).is_file() or not defined(place(ledger.stem, path), name)
    ]
    assert missing == []


def test_the_ledger_of_sdsp_is_there() -> None:
    assert len(REFERENCE.findall((ROOT / "docs" / "protocols" / "sdsp.md").read_text())) > 90
