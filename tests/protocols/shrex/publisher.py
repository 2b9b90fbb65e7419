"""A process that publishes a height, for tests that kill it: python -m … FOLDER PEER_ADDRESS HEADERS_FILE HEIGHT HASH.

Prints `result: sent`, or the error's name, unless it was killed before.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from syncline.core.errors import SynclineError
from syncline.node.node import running
from syncline.protocols.shrex.plugin import Shrex
from syncline.protocols.shrex.service import ShrexService
from syncline.protocols.shrex.wire.notification import TOPIC
from tests.protocols.shrex.nodes import settings_of


async def main(arguments: list[str]) -> None:
    folder, address, headers, height, data_hash = arguments
    flags = {"shrex.headers": f"file:{headers}", "libp2p.listen": ["/ip4/127.0.0.1/tcp/0"]}
    settings = settings_of(Path(folder), **flags)
    async with running(settings, plugins={"shrex": Shrex()}) as node:
        service = node.services["shrex"]
        assert isinstance(service, ShrexService)
        host = await node.networks.libp2p()
        await host.connect(address)
        with anyio.fail_after(20):
            await host.flood.wait_for_neighbours(TOPIC)
            while not service.follower.synced:
                await anyio.sleep(0.01)
        try:
            await service.publish({"height": height, "data_hash": data_hash})
            sys.stdout.write("result: sent\n")
        except SynclineError as error:
            sys.stdout.write(f"result: {type(error).__name__}\n")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1:], backend="trio")
