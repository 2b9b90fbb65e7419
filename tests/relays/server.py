"""A relay in a process of its own, to be killed: `python -m tests.relays.server FOLDER [SETTING=VALUE …]`.

Prints one line of JSON when it listens.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import anyio
import structlog

from syncline.core.keys import NodeKey
from syncline.core.settings import load
from syncline.node.node import running
from syncline.protocols.relay.plugin import Relay
from syncline.protocols.relay.service import RelayService
from syncline.protocols.relay.settings import RelaySettings

structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))  # nobody reads standard output for long


async def main(folder: Path, flags: dict[str, str]) -> None:
    folder.mkdir(exist_ok=True)
    file = folder / "syncline.toml"
    if not file.exists():
        file.write_text("")
    if not (folder / "node.key").exists():
        NodeKey.generate().save(folder / "node.key")
    settings = load(file=file, environment={}, flags={"relay.port": "0", **flags}, sections={"relay": RelaySettings})
    async with running(settings, plugins={"relay": Relay()}) as node:
        service = node.service("relay")
        assert isinstance(service, RelayService)
        print(json.dumps({"url": service.url, "name": service.hub.identity.key.peer_id}), flush=True)
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), dict(each.split("=", 1) for each in sys.argv[2:]), backend="trio")
