"""Nodes that speak ShrEx on an in-process fabric, and bare peers beside them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from syncline.core.keys import NodeKey
from syncline.core.ports import RecordQuery
from syncline.core.record import Record
from syncline.core.settings import Settings, load
from syncline.networks.libp2p.host import Libp2pHost
from syncline.networks.memory_host import MemoryFabric, MemoryNetworks
from syncline.node.node import Node, running
from syncline.protocols.shrex.plugin import Shrex
from syncline.protocols.shrex.service import ShrexService
from syncline.protocols.shrex.service.sources import HeaderSource
from syncline.protocols.shrex.settings import ShrexSettings
from syncline.protocols.shrex.wire.header import Header
from syncline.protocols.shrex.wire.notification import TOPIC, Notification, encode

DEFAULTS = {"segments.seconds": 3600.0, "shrex.poll_seconds": 0.02}


def settings_of(folder: Path, **flags: Any) -> Settings:
    folder.mkdir(exist_ok=True)
    file = folder / "syncline.toml"
    if not file.exists():
        file.write_text("")
        NodeKey.generate().save(folder / "node.key")
    return load(file=file, environment={}, flags={**DEFAULTS, **flags}, sections={"shrex": ShrexSettings})


class ShrexNode:
    """A running node, its service and its host."""

    def __init__(self, node: Node, host: Libp2pHost) -> None:
        self.node, self.host = node, host
        service = node.services["shrex"]
        assert isinstance(service, ShrexService)
        self.service = service

    def records(self, kind: str = "notification", **filters: Any) -> list[Record]:
        return self.node.journal.read(RecordQuery(protocol="shrex", kind=kind, **filters))


@asynccontextmanager
async def shrex_node(
    fabric: MemoryFabric, folder: Path, source: HeaderSource, **flags: Any
) -> AsyncIterator[ShrexNode]:
    settings = settings_of(folder, **flags)
    key = NodeKey.load(settings.key_file)
    async with fabric.host(key) as host:
        plugins = {"shrex": Shrex(source)}
        async with running(settings, plugins=plugins, networks=MemoryNetworks(host)) as node:
            yield ShrexNode(node, host)


def decided(node: ShrexNode) -> float:
    """How many notifications were decided, kept and acted upon."""
    found = node.service.statistics()
    return sum(found.get(outcome, 0) for outcome in ("accept", "reject", "ignore"))


async def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    with anyio.fail_after(seconds):
        while not condition():
            await anyio.sleep(0.01)


def note(header: Header, data_hash: bytes | None = None) -> Notification:
    return Notification(header.height, header.data_hash if data_hash is None else data_hash)


async def announce(host: Libp2pHost, notification: Notification, topic: str = TOPIC) -> None:
    """Publish as a bridge would, to whoever listens."""
    with anyio.fail_after(10):
        await host.flood.wait_for_neighbours(topic)
    await host.flood.publish(topic, encode(notification))
