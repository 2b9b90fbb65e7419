"""The pipeline beside the demo: `syncline lake run` in a process of its own, as an operator runs it.

It leads a session of its own, so that a Ctrl-C meant for the demo does not tear Spark's Java away under a commit; the
demo passes the word on and waits.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from syncline.core.errors import SynclineError
from syncline.core.settings import Settings

STOP_SECONDS: Final = 30.0
LINE_BYTES: Final = 1024 * 1024
OnBatch = Callable[[dict[str, Any]], None]


async def land(config: Path, on_batch: OnBatch, *, follow: bool) -> None:
    """Land what is sealed; with `follow`, go on until cancelled. Raises SynclineError when the pipeline fails."""
    command = [sys.executable, "-m", "syncline.cli.main", "--config", str(config), "lake", "run", "--json"]
    process = await anyio.open_process(
        [*command, "--follow"] if follow else command,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    complaints: list[bytes] = []
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_keep_last, process, complaints)
            await _read(process, on_batch)
        code = await process.wait()
    finally:
        await _stop(process)
    if code != 0:
        last = b"".join(complaints).decode(errors="replace").strip().splitlines()
        raise SynclineError(f"the pipeline ended with {code}: {last[-1] if last else 'it said nothing'}")


async def _read(process: Process, on_batch: OnBatch) -> None:
    assert process.stdout is not None
    lines = BufferedByteReceiveStream(process.stdout)
    while True:
        try:
            line = await lines.receive_until(b"\n", LINE_BYTES)
        except (anyio.IncompleteRead, anyio.EndOfStream):
            return
        event = msgspec.json.decode(line)
        if event.get("event") == "batch":
            on_batch(event)


async def _keep_last(process: Process, complaints: list[bytes]) -> None:
    """Read what Spark has to say, and keep the end of it in case it fails."""
    assert process.stderr is not None
    async for part in process.stderr:
        complaints.append(part)
        del complaints[:-16]


async def _stop(process: Process) -> None:
    """Ask the pipeline to finish its batch, wait, and only then insist."""
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            with anyio.move_on_after(STOP_SECONDS):
                await process.wait()
        if process.returncode is None:
            process.kill()
        await process.aclose()


async def table_rows(settings: Settings) -> dict[str, int]:
    """Rows of every table that is there, from the tables' own logs."""
    from syncline.lake.maintain import table_facts
    from syncline.lake.roots import Lake
    from syncline.lake.stages import all_tables, built_in_stages

    def look() -> dict[str, int]:
        facts = table_facts(Lake.of(settings), all_tables(built_in_stages().values()).values())
        return {each.name: each.rows for each in facts}

    return await anyio.to_thread.run_sync(look)
