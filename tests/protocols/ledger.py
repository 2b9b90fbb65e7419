"""Spec ledgers with a mutant for every row: what a row says, and whether what it names is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src/syncline"
_ROW = re.compile(r"^\| ([A-Z]\d+) \| (.+?) \| (\S+::\S+) \| (\S+::\S+) \|$", re.MULTILINE)


class Row(NamedTuple):
    """One requirement."""

    name: str
    asked: str
    code: str
    test: str


class Ledger:
    """The ledger of one protocol and its mutants."""

    def __init__(self, protocol: str) -> None:
        self.tests = ROOT / "tests/protocols" / protocol
        self.code = SOURCE / "protocols" / protocol
        page = (ROOT / "docs/protocols" / f"{protocol}.md").read_text()
        self.rows = [Row(*found) for found in _ROW.findall(page)]
        self.mutants: dict[str, dict[str, Any]] = tomllib.loads((self.tests / "mutants.toml").read_text())

    def missing(self) -> list[str]:
        """What rows name that does not exist."""
        found = [f"{row.name}: {row.code}" for row in self.rows if not _there(row.code, self.code)]
        return found + [f"{row.name}: {row.test}" for row in self.rows if not _there(row.test, self.tests)]

    def unmakeable(self) -> list[str]:
        """Mutants that cannot be made, or whose test does not exist."""
        return [
            name
            for name, mutant in self.mutants.items()
            if (SOURCE / mutant["file"]).read_text().count(mutant["old"]) != 1 or not _there(mutant["test"], self.tests)
        ]


def _there(reference: str, beside: Path) -> bool:
    file, _, name = reference.partition("::")
    path = ROOT / file if file.startswith(("src/", "tests/")) else beside / file
    pattern = rf"^\s*(?:async def|def|class) {name}\b|^{name}: Final"
    return path.exists() and re.search(pattern, path.read_text(), re.MULTILINE) is not None
