"""Real nodes that speak SDS exchange on hosts inside this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio

from syncline.core.keys import NodeKey
from syncline.core.ports import Archive, RecordQuery
from syncline.core.record import Record
from syncline.core.settings import Settings, load
from syncline.networks.libp2p.host import Libp2pHost
from syncline.networks.memory_host import MemoryFabric, MemoryNetworks
from syncline.node.node import Node, running
from syncline.protocols.sds.plugin import PLUGIN
from syncline.protocols.sds.service import SdsService
from syncline.protocols.sds.settings import SdsSettings
from syncline.testing.clock import FakeClock


class Running:
    """A node, its host and its service."""

    def __init__(self, node: Node, host: Libp2pHost, fabric: MemoryFabric) -> None:
        self.node = node
        self.fabric = fabric
        self.host = host
        service = node.services["sds"]
        assert isinstance(service, SdsService)
        self.sds = service

    @property
    def peer_id(self) -> str:
        return self.host.peer_id

    def records(self, **query: Any) -> list[Record]:
        return self.node.journal.read(RecordQuery(**{"protocol": "sds", "limit": 100_000, **query}))

    async def holds(self, count: int, **query: Any) -> list[Record]:
        """The accepted records, once there are that many."""
        with anyio.fail_after(20):
            while len(found := self.records(verdict="accept", **query)) < count:
                await anyio.sleep(0.01)
        return found


@asynccontextmanager
async def nodes(
    folder: Path,
    count: int,
    *,
    clock: FakeClock | None = None,
    archive: Callable[[Settings, str], Archive] | None = None,
    **settings: Any,
) -> AsyncIterator[list[Running]]:
    """So many nodes, not connected yet. With a clock, their rates and time-outs follow it; hosts have their own."""
    fabric, made = MemoryFabric(), []
    async with AsyncExitStack() as stack:
        for number in range(count):
            key = NodeKey(bytes([number + 1]) * 32)
            host = await stack.enter_async_context(fabric.host(key))
            file = folder / f"node{number}" / "syncline.toml"
            file.parent.mkdir(parents=True)
            file.write_text("")
            flags = {"sds.schemas": ["OMM", "CDM"], "sds.sync_seconds": 0.0, "segments.seconds": 3600.0}
            flags |= {name if "." in name else f"sds.{name}": value for name, value in settings.items()}
            loaded = load(file=file, environment={}, flags=flags, sections={"sds": SdsSettings})
            node = await stack.enter_async_context(
                running(
                    loaded,
                    key=key,
                    clock=clock,
                    plugins={"sds": PLUGIN},
                    networks=MemoryNetworks(host),
                    archive=archive(loaded, key.peer_id) if archive else None,
                )
            )
            made.append(Running(node, host, fabric))
        yield made


async def line(*places: Running, topic: str = "/spacedatanetwork/mainnet/OMM") -> None:
    """Connect each with the next, and wait until gossip knows."""
    for one, other in pairwise(places):
        await one.host.connect(other.host.addresses[0])
        await one.host.gossip.wait_for_neighbours(topic)
        await other.host.gossip.wait_for_neighbours(topic)
