"""A node that publishes as fast as it can until it is killed: python -m … FOLDER PORT LIFE.

Prints a line for each publication that was acknowledged: `ack`, its sequence number and its text.
"""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path

import anyio

from syncline.core.keys import NodeKey
from syncline.core.settings import load
from syncline.node.node import running
from syncline.protocols.svs.plugin import plugin


async def main(folder: Path, port: int, life: int) -> None:
    file = folder / "syncline.toml"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text("")
        NodeKey.generate().save(folder / "node.key")
    flags = {
        "svs.tcp_port": port, "svs.udp_port": -1, "svs.websocket_port": -1, "svs.groups": ["/room"],
        "svs.nodes": ["/node"], "api.port": 0,
    }  # fmt: skip
    settings = load(file=file, environment={}, flags=flags, sections={"svs": plugin.settings})
    async with running(settings, plugins={"svs": plugin}) as node:
        sys.stdout.write("ack ready\n")
        sys.stdout.flush()
        for number in count():
            text = f"life {life} number {number}"
            answer = await node.service("svs").publish({"name": f"/log/{life}/{number}", "content": text})
            sys.stdout.write(f"ack {answer['seq']} {text}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), backend="trio")
