"""Other programs as processes of their own that take and say JSON, one document a line."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process

SECONDS = 30.0  # how long a program may take to say something


class Program:
    """A running program."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._rest = b""
        self._lines: list[bytes] = []

    async def said(self) -> dict[str, Any]:
        """The next document it says."""
        assert self._process.stdout is not None
        with anyio.fail_after(SECONDS):
            while not self._lines:
                *self._lines, self._rest = (self._rest + await self._process.stdout.receive()).split(b"\n")
        found: dict[str, Any] = json.loads(self._lines.pop(0))
        return found

    async def tell(self, **fields: Any) -> None:
        """Give it a document."""
        assert self._process.stdin is not None
        await self._process.stdin.send(json.dumps(fields).encode() + b"\n")


@asynccontextmanager
async def program(
    command: Sequence[str | Path], environment: Mapping[str, str], cwd: Path | None = None
) -> AsyncIterator[Program]:
    """Run a program for the length of the block; what it writes to standard error goes to ours."""
    async with await anyio.open_process(
        list(map(str, command)), env=dict(environment), stderr=None, cwd=cwd
    ) as process:
        try:
            yield Program(process)
        finally:
            if process.returncode is None:
                process.kill()
