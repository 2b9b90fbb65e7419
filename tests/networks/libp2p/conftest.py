"""Hosts on an in-process fabric, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from trio.testing import MockClock

from syncline.networks.memory_host import MemoryFabric


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Time jumps ahead whenever everybody waits."""
    return "trio", {"clock": MockClock(autojump_threshold=0)}


@pytest.fixture
def fabric() -> MemoryFabric:
    return MemoryFabric()
