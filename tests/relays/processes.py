"""Relays in processes of their own, for tests that kill them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from syncline.core.keys import NodeKey
from tests.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]


class RelayProcess:
    """One relay that can be killed and started again in the same folder, on the same port."""

    def __init__(self, folder: Path, port: int, **flags: Any) -> None:
        self.folder = folder
        self.port = port
        self.flags = flags
        folder.mkdir(exist_ok=True)
        if not (folder / "node.key").exists():
            NodeKey.generate().save(folder / "node.key")
        self.name = NodeKey.load(folder / "node.key").peer_id
        self._process: Process | None = None

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    @property
    def link_address(self) -> str:
        return f"{self.name}@{self.url}/link"

    async def start(self) -> None:
        flags = {"relay.port": self.port, **self.flags}
        command = [sys.executable, "-m", "tests.relays.server", str(self.folder)]
        command += [f"{name}={','.join(value) if isinstance(value, list) else value}" for name, value in flags.items()]
        self._process = await anyio.open_process(command, cwd=ROOT, stderr=subprocess.DEVNULL)
        assert self._process.stdout is not None
        lines = BufferedByteReceiveStream(self._process.stdout)
        with anyio.fail_after(30):
            while True:
                line = await lines.receive_until(b"\n", 10_000)
                if line.startswith(b'{"url"'):
                    assert json.loads(line)["name"] == self.name
                    return

    async def kill(self) -> None:
        """As by kill -9."""
        if self._process is not None:
            self._process.kill()
            await self._process.wait()
            await self._process.aclose()
            self._process = None


@asynccontextmanager
async def federation(
    folder: Path, links: list[tuple[str, str]], **flags: Any
) -> AsyncIterator[dict[str, RelayProcess]]:
    """Servers by name; the first of each pair dials the second."""
    names = sorted({name for pair in links for name in pair})
    servers = {
        name: RelayProcess(folder / name, port) for name, port in zip(names, free_ports(len(names)), strict=True)
    }
    for name, server in servers.items():
        server.flags = {
            **flags,
            "relay.peers": [servers[other].link_address for one, other in links if one == name],
            "relay.trusted": [servers[one].name for one, other in links if other == name],
        }
    try:
        async with anyio.create_task_group() as tasks:
            for server in servers.values():
                tasks.start_soon(server.start)
        yield servers
    finally:
        with anyio.CancelScope(shield=True):
            for server in servers.values():
                await server.kill()
