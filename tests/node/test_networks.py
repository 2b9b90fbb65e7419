"""The libp2p host that the protocols of a node share."""

from __future__ import annotations

import anyio
import pytest

from syncline.core.clock import SystemClock
from syncline.core.errors import ClosedError
from syncline.core.keys import NodeKey
from syncline.core.settings import Libp2pSettings
from syncline.networks.libp2p.host import running_host
from syncline.node.networks import NodeNetworks

pytestmark = pytest.mark.anyio
SETTINGS = Libp2pSettings(listen=["/ip4/127.0.0.1/tcp/0"])


async def test_the_host_starts_when_asked_for_is_the_same_for_all_and_ends_with_the_node() -> None:
    key = NodeKey.generate()
    networks = NodeNetworks(key, SystemClock(), SETTINGS)
    async with running_host(NodeKey.generate()) as other:
        async with anyio.create_task_group() as node:
            await node.start(networks.run)
            assert networks.statistics() == {}
            first, second = await networks.libp2p(), await networks.libp2p()
            assert first is second
            assert first.peer_id == key.peer_id
            await other.connect(first.addresses[0])
            with anyio.fail_after(5):
                while networks.statistics()["connections"] != 1:
                    await anyio.sleep(0.01)
            node.cancel_scope.cancel()
        with pytest.raises(ClosedError):
            await networks.libp2p()
        with anyio.fail_after(5):
            while other.peers():
                await anyio.sleep(0.01)


async def test_what_was_published_leaves_even_when_the_node_is_cancelled() -> None:
    networks = NodeNetworks(NodeKey.generate(), SystemClock(), SETTINGS)
    async with running_host(NodeKey.generate()) as other, other.gossip.subscribe("/t") as subscription:
        async with anyio.create_task_group() as node:
            await node.start(networks.run)
            host = await networks.libp2p()
            await other.connect(host.addresses[0])
            with anyio.fail_after(5):
                await host.gossip.wait_for_neighbours("/t")
            for number in range(500):
                await host.gossip.publish("/t", b"%d" % number)
            node.cancel_scope.cancel()
        found: list[bytes] = []
        with anyio.fail_after(5):
            while len(found) < 500:
                found += [delivery.message.data for delivery in await subscription.receive()]
        assert found == [b"%d" % number for number in range(500)]
