"""Nodes with the test protocol on an in-memory network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from syncline.core.keys import NodeKey
from syncline.core.settings import Settings, load
from syncline.networks.memory import MemoryNetwork
from syncline.node.node import Node
from syncline.testing.chirp import Chirp, ChirpSettings
from syncline.testing.clock import FakeClock

MakeSettings = Callable[..., Settings]
MakeNode = Callable[..., Node]


@pytest.fixture
def make_settings(tmp_path: Path) -> MakeSettings:
    """Settings of a node in a folder of its own, e.g. `make_settings("a", **{"api.token": "x"})`."""

    def make(name: str = "a", **flags: Any) -> Settings:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        file = folder / "syncline.toml"
        if not file.exists():
            file.write_text("")
            NodeKey.generate().save(folder / "node.key")
        defaults = {"api.port": 0, "segments.seconds": 3600.0}
        return load(file=file, environment={}, flags={**defaults, **flags}, sections={"chirp": ChirpSettings})

    return make


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def parts(network: MemoryNetwork, clock: FakeClock) -> dict[str, Any]:
    """What to give `running(settings, **parts)` so that the node chirps."""
    return {"plugins": {"chirp": Chirp(network)}, "clock": clock}
