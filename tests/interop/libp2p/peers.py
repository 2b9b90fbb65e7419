"""js-libp2p peers as subprocesses, told what to do by JSON lines."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

HERE = Path(__file__).parent


class JsPeer:
    """One js-libp2p node with GossipSub and FloodSub."""

    def __init__(self, process: Process) -> None:
        assert process.stdout is not None
        self._process = process
        self._lines = BufferedByteReceiveStream(process.stdout)
        self.peer = self.address = ""

    async def ready(self) -> None:
        hello = await self._answer()
        self.peer, self.address = hello["peer"], hello["address"]

    async def tell(self, command: str, **options: Any) -> dict[str, Any]:
        """Have a command done; its answer, or an AssertionError with what the peer says went wrong."""
        assert self._process.stdin is not None
        options = {
            key: b64encode(value).decode() if isinstance(value, bytes) else value for key, value in options.items()
        }
        await self._process.stdin.send(json.dumps({"do": command, **options}).encode() + b"\n")
        answer = await self._answer()
        assert answer["ok"], answer["error"]
        return answer

    async def _answer(self) -> dict[str, Any]:
        with anyio.fail_after(90):
            found: dict[str, Any] = json.loads(await self._lines.receive_until(b"\n", 64_000_000))
        return found


@asynccontextmanager
async def js_peer(script: Path = HERE / "peer.mjs") -> AsyncIterator[JsPeer]:
    """A js peer that lives for the length of the block."""
    command = ["node", "--import", str(HERE / "polyfill.mjs"), str(script)]
    async with await anyio.open_process(command, stderr=None) as process:
        peer = JsPeer(process)
        try:
            await peer.ready()
            yield peer
        finally:
            process.kill()
