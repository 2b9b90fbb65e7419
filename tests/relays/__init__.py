"""Running relays: nodes with real sockets and a real journal."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from syncline.core.clock import Clock
from syncline.core.keys import NodeKey
from syncline.core.settings import load
from syncline.node.node import Node, running
from syncline.protocols.relay.plugin import Relay
from syncline.protocols.relay.service import RelayService
from syncline.protocols.relay.settings import RelaySettings

MakeRelay = Callable[..., AbstractAsyncContextManager["RunningRelay"]]


def topic_of(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


class RunningRelay:
    """A node whose relay listens."""

    def __init__(self, node: Node) -> None:
        self.node = node
        service = node.service("relay")
        assert isinstance(service, RelayService)
        self.service = service

    @property
    def url(self) -> str:
        return self.service.url

    @property
    def name(self) -> str:
        return self.service.hub.identity.key.peer_id

    @property
    def link_address(self) -> str:
        return f"{self.name}@{self.url}/link"


@pytest.fixture
def relay(tmp_path: Path) -> MakeRelay:
    """`async with relay("a", **{"relay.ttl_max": 60}) as server`; the same name again finds the same folder."""

    @asynccontextmanager
    async def run(name: str = "a", clock: Clock | None = None, **flags: Any) -> AsyncIterator[RunningRelay]:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        file = folder / "syncline.toml"
        if not file.exists():
            file.write_text("")
            NodeKey.generate().save(folder / "node.key")
        defaults = {"relay.port": 0, "relay.drain_seconds": 1.0}
        settings = load(file=file, environment={}, flags={**defaults, **flags}, sections={"relay": RelaySettings})
        async with running(settings, plugins={"relay": Relay()}, clock=clock) as node:
            yield RunningRelay(node)

    return run
