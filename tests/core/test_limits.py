from __future__ import annotations

import re
from pathlib import Path

from syncline.core import limits

SOURCES = Path(limits.__file__).parent.parent


def test_every_cap_is_one_that_something_keeps() -> None:
    """A number nobody reads is a promise nobody keeps."""
    own = Path(limits.__file__).read_text()
    others = "\n".join(file.read_text() for file in SOURCES.rglob("*.py") if file != Path(limits.__file__))
    names = re.findall(r"^([A-Z_0-9]+): Final", own, re.MULTILINE)
    assert len(names) > 200
    used = set(re.findall(r"\b[A-Z][A-Z_0-9]+\b", others))
    assert [name for name in names if name not in used and len(re.findall(rf"\b{name}\b", own)) == 1] == []
