"""`syncline demo`: three nodes on loopback with lively traffic, the Spark pipeline landing it, and the dashboard.

Everything lives in one folder and ends with the command. Traffic comes from `syncline.testing.samples`.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from syncline.cli import output
from syncline.cli.common import JsonFlag
from syncline.core.ports import RecordQuery
from syncline.core.record import RecordName

if TYPE_CHECKING:
    from syncline.core.settings import Settings
    from syncline.node.node import Node

NODES: Final = ("amber", "basalt", "chert")
ONCE_SATELLITES: Final = 96
ONCE_EDITS: Final = 60
ONCE_BAD: Final = 12
REPORT_SECONDS: Final = 5.0


def run(
    once: Annotated[
        bool, typer.Option("--once", help="Send a fixed amount, land it, say what landed, and end")
    ] = False,
    folder: Annotated[Path | None, typer.Option(help="Where to keep everything [default: a temporary folder]")] = None,
    seed: Annotated[int, typer.Option(help="Decides the traffic")] = 1,
    json: JsonFlag = False,
) -> None:
    """Three nodes with real traffic and one misbehaving peer, the Spark pipeline, and the dashboard.

    Runs until Ctrl-C; open the address it prints. With --once it ends by itself.

    Example: [bold]syncline demo --once --json[/bold]
    """
    import anyio

    from syncline.cli import logs
    from syncline.core.settings import LogSettings

    logs.configure(LogSettings(level="warning"))
    sys.setswitchinterval(0.0005)
    with contextlib.ExitStack() as stack:
        place = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="syncline-demo-")))
        anyio.run(_main, place.resolve(), once, seed, json, backend="trio")


async def _main(place: Path, once: bool, seed: int, json: bool) -> None:
    say = output.progress_console().print
    settings = [_settings(place, name) for name in NODES]
    if once:
        say("starting three nodes")
        async with _nodes(settings) as nodes:
            say("publishing")
            await _fixed_amount([node for node, _ in nodes], seed)
        say("landing with Spark")
        await _lake_run(place / NODES[0] / "syncline.toml", follow=False)
        rows = await _table_rows(settings[0])
        output.json_line({"tables": rows, "seed": seed}) if json else output.table(["table", "rows"], rows.items())
        return
    await _until_stopped(place, settings, seed, json)


async def _until_stopped(place: Path, settings: list[Settings], seed: int, json: bool) -> None:
    import anyio

    say = output.progress_console().print
    say("starting three nodes")
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with _nodes(settings) as nodes, anyio.create_task_group() as tasks:
            found = {name: url for name, (_, url) in zip(NODES, nodes, strict=True)}
            if json:
                output.json_line({"nodes": found})
            else:
                output.facts({"dashboard": f"{found[NODES[0]]}/", **found, "stop": "Ctrl-C"})
            tasks.start_soon(_endless, [node for node, _ in nodes], seed)
            tasks.start_soon(_lake_forever, place / NODES[0] / "syncline.toml")
            tasks.start_soon(_report, settings[0], json)
            async for _ in signals:
                break
            say("stopping")
            tasks.cancel_scope.cancel()


def _settings(place: Path, name: str) -> Settings:
    """One node's folder; all seal their segments into one place, from which the first one's lake reads."""
    from syncline.core import settings
    from syncline.core.keys import NodeKey
    from syncline.node.plugins import protocol_sections

    folder = place / name
    folder.mkdir(parents=True, exist_ok=True)
    shared = (place / "segments").as_uri()
    (place / "segments").mkdir(exist_ok=True)
    (folder / settings.FILE_NAME).write_text(
        f'[node]\nprotocols = ["sdsp"]\n[api]\nport = 0\n[segments]\nurl = "{shared}"\nseconds = 2.0\n'
        "[lake]\nseconds = 3.0\n[log]\nlevel = 'error'\n"
    )
    if not (folder / "node.key").exists():
        NodeKey.generate().save(folder / "node.key")
    return settings.load(file=folder / settings.FILE_NAME, sections=protocol_sections())


@contextlib.asynccontextmanager
async def _nodes(settings: list[Settings]) -> AsyncIterator[list[tuple[Node, str]]]:
    import anyio

    from syncline import web
    from syncline.node import api, serve
    from syncline.node.node import running

    async with contextlib.AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(running(each)) for each in settings]
        tasks = await stack.enter_async_context(anyio.create_task_group())
        urls = []
        for node in nodes:
            listener = serve.bind(node.settings.api)
            urls.append(serve.url_of(listener))
            mounts = web.mounts(settings[0])  # one lake for all
            await tasks.start(serve.serve, api.build(node, mounts), listener)
        yield list(zip(nodes, urls, strict=True))
        tasks.cancel_scope.cancel()


class _Traffic:
    """What is published where: satellites by the first node and its copies by the second, edits by the third."""

    def __init__(self, nodes: list[Node], seed: int) -> None:
        from syncline.testing.samples import bad_frames, edited_document, satellite_stream

        self._first = nodes[0]
        self._services = [node.service("sdsp") for node in nodes]
        self._satellites: Iterator[tuple[str, dict[str, Any]]] = satellite_stream(seed)
        self._edits: Iterator[dict[str, Any]] = edited_document(seed)
        self._bad: Iterator[str] = bad_frames(seed)

    async def satellite(self) -> None:
        uid, elements = next(self._satellites)
        answer = await self._services[0].publish({"uid": uid, "topic": "satellites", "data": elements})
        if answer["published"]:
            await self._copy(answer["record"])

    async def _copy(self, name: str) -> None:
        """Hand the second node the same frame, byte for byte."""
        lsn = RecordName.parse(name).lsn
        [record] = self._first.journal.read(RecordQuery(after=lsn - 1, before=lsn + 1))
        assert record.raw is not None
        await self._services[1].publish({"topic": record.topic, "frame": record.raw.decode()})

    async def edit(self) -> None:
        await self._services[2].publish({"uid": "flight-log", "topic": "documents", "data": next(self._edits)})

    async def misbehave(self) -> None:
        from syncline.core.errors import SynclineError

        with contextlib.suppress(SynclineError):  # refused, and kept with the reason
            await self._services[0].publish({"topic": "satellites", "frame": next(self._bad)})


async def _fixed_amount(nodes: list[Node], seed: int) -> None:
    traffic = _Traffic(nodes, seed)
    for _ in range(ONCE_SATELLITES):
        await traffic.satellite()
    for _ in range(ONCE_EDITS):
        await traffic.edit()
    for _ in range(ONCE_BAD):
        await traffic.misbehave()


async def _endless(nodes: list[Node], seed: int) -> None:
    import anyio

    traffic, turn = _Traffic(nodes, seed), 0
    while True:
        await traffic.satellite()
        if turn % 2 == 0:
            await traffic.edit()
        if turn % 11 == 0:
            await traffic.misbehave()
        turn += 1
        await anyio.sleep(0.05)


async def _lake_run(config: Path, *, follow: bool) -> None:
    """The pipeline in a process of its own, as an operator runs it."""
    import anyio

    command = [sys.executable, "-m", "syncline.cli.main", "--config", str(config), "lake", "run", "--json"]
    await anyio.run_process([*command, "--follow"] if follow else command, stderr=None)


async def _lake_forever(config: Path) -> None:
    import subprocess

    import anyio

    try:
        await _lake_run(config, follow=True)
    except subprocess.CalledProcessError as error:
        output.progress_console().print(f"the pipeline ended with {error.returncode}; nothing lands any more")
        await anyio.sleep_forever()


async def _table_rows(settings: Settings) -> dict[str, int]:
    import anyio.to_thread

    from syncline.lake.maintain import table_facts
    from syncline.lake.roots import Lake
    from syncline.lake.stages import all_tables, built_in_stages

    def look() -> dict[str, int]:
        facts = table_facts(Lake.of(settings), all_tables(built_in_stages().values()).values())
        return {each.name: each.rows for each in facts}

    return await anyio.to_thread.run_sync(look)


async def _report(settings: Settings, json: bool) -> None:
    """Every few seconds, what has landed."""
    import anyio

    while True:
        await anyio.sleep(REPORT_SECONDS)
        rows = await _table_rows(settings)
        if json:
            output.json_line({"tables": rows})
        elif rows:
            output.console().print("landed: " + ", ".join(f"{name} {count:,}" for name, count in rows.items() if count))
