"""Every example of docs/testing.md runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parent.parent / "docs" / "testing.md"
EXAMPLES = re.findall(r"^## ([^\n]+)\n.*?^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def test_there_are_examples_of_every_part() -> None:
    assert len(EXAMPLES) >= 7
    assert PAGE.read_text().count("```python") == len(EXAMPLES)


@pytest.mark.parametrize(("title", "code"), EXAMPLES, ids=[title for title, _ in EXAMPLES])
def test_an_example_runs_as_it_stands(title: str, code: str) -> None:
    exec(compile(code, f"docs/testing.md: {title}", "exec"), {})
