"""Live nodes for Spark to read from and to publish through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from syncline.networks.memory import MemoryNetwork
from syncline.networks.node_client import NodeClient
from syncline.testing.chirp import Chirp
from tests.nodes import NodeThread

MakeNode = Callable[..., NodeThread]


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[MakeNode]:
    """Chirping nodes, each on a network of its own."""
    made: list[NodeThread] = []

    def make(name: str = "a", **flags: Any) -> NodeThread:
        folder = tmp_path / name
        folder.mkdir()
        made.append(NodeThread(folder, {"chirp": Chirp(MemoryNetwork())}, **flags).start())
        return made[-1]

    yield make
    for node in made:
        node.stop()


def chirp(node: NodeThread, *texts: str) -> None:
    with NodeClient(node.url) as client:
        for text in texts:
            client.post("/api/v1/publish/chirp", {"text": text})
