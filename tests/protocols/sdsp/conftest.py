"""Fixtures of the SDSP tests."""

from __future__ import annotations

import pytest

from tests.protocols.sdsp.kit import Published


@pytest.fixture
def published() -> Published:
    """Five frames of a small object: a full one and four deltas."""
    made = Published()
    made.create({"n": 0, "log": []})
    for n in range(1, 5):
        made.update({"n": n, "log": list(range(n))})
    return made
