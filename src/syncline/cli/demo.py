"""`syncline demo`: three nodes on loopback with lively traffic, the Spark pipeline landing it, and the dashboard.

Everything lives in one folder and ends with the command. The world and its traffic are in `syncline.demo`.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from syncline.cli import output
from syncline.cli.common import JsonFlag

if TYPE_CHECKING:
    from syncline.core.settings import Settings
    from syncline.demo.world import World

REPORT_SECONDS: Final = 5.0


def run(
    once: Annotated[
        bool, typer.Option("--once", help="Send a fixed amount, land it, say what landed, and end")
    ] = False,
    folder: Annotated[Path | None, typer.Option(help="Where to keep everything (default: a temporary folder)")] = None,
    seed: Annotated[int, typer.Option(help="Decides the traffic")] = 1,
    spark: Annotated[bool, typer.Option("--spark/--no-spark", help="Land the traffic in tables")] = True,
    json: JsonFlag = False,
) -> None:
    """Three nodes, five protocols with real traffic and one misbehaving peer, the Spark pipeline, and the dashboard.

    Runs until Ctrl-C; open the address it prints. With --once it ends by itself.

    Example: [bold]syncline demo --once --json[/bold]
    """
    import anyio

    from syncline.cli import logs
    from syncline.cli.common import need_lake
    from syncline.core.settings import LogSettings
    from syncline.node.tuning import tune

    if spark:
        need_lake()
    logs.configure(LogSettings(level="error"))
    tune()
    with ExitStack() as stack:
        place = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="syncline-demo-")))
        place.mkdir(parents=True, exist_ok=True)
        demo = _Demo(place.resolve(), seed, spark, json)
        anyio.run(demo.once if once else demo.until_stopped, backend="trio")


class _Demo:
    """One run of the command: what it does in which order, and what it tells."""

    def __init__(self, folder: Path, seed: int, spark: bool, json: bool) -> None:
        self._folder, self._seed, self._spark, self._json = folder, seed, spark, json
        self._start = time.monotonic()
        self._batches = 0
        self._rows: dict[str, int] = {}

    def _say(self, text: str) -> None:
        """Progress goes to standard error, with the seconds since the start."""
        output.progress_console().print(f"{time.monotonic() - self._start:5.1f} s  {text}", soft_wrap=True)

    async def once(self) -> None:
        from syncline.demo.landing import land, table_rows
        from syncline.demo.nodes import lake_config, lake_settings, running_world
        from syncline.demo.play import playing

        self._say("starting three nodes")
        async with running_world(self._folder, self._seed) as world:
            self._say("publishing on five networks")
            async with playing(world) as play:
                await play.fixed()
            records = {member.name: member.node.journal.newest() for member in world.members}
        rows: dict[str, int] = {}
        if self._spark:
            self._say(f"landing {sum(records.values()):,} records with Spark")
            await land(lake_config(self._folder), self._batch, follow=False)
            rows = await table_rows(lake_settings(self._folder))
        self._say("done")
        if self._json:
            seconds = round(time.monotonic() - self._start, 1)
            output.json_line(
                {"tables": rows, "sent": play.sent, "records": records, "seed": self._seed, "seconds": seconds}
            )
        else:
            output.table(["table", "rows"], [(name, f"{count:,}") for name, count in rows.items()])

    async def until_stopped(self) -> None:
        import anyio

        from syncline.demo.nodes import lake_settings, running_world
        from syncline.demo.play import playing

        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_cancel_on_signal, signals, tasks.cancel_scope, self._say)
                self._say("starting three nodes")
                async with running_world(self._folder, self._seed) as world, playing(world) as play:
                    self._ready(world)
                    tasks.start_soon(play.endless)
                    if self._spark:
                        self._say("starting Spark; the first rows land in about half a minute")
                        tasks.start_soon(self._land_forever)
                        tasks.start_soon(self._report, lake_settings(self._folder))
                    await anyio.sleep_forever()
        self._say("stopped")

    def _ready(self, world: World) -> None:
        addresses = {member.name: member.url for member in world.members}
        dashboard = f"{world.members[0].url}/"
        if self._json:
            output.json_line({"dashboard": dashboard, "nodes": addresses})
        else:
            output.facts({"dashboard": dashboard, **addresses, "everything in": self._folder, "stop": "Ctrl-C"})
            sys.stdout.flush()

    async def _land_forever(self) -> None:
        from syncline.core.errors import SynclineError
        from syncline.demo.landing import land
        from syncline.demo.nodes import lake_config

        try:
            await land(lake_config(self._folder), self._batch, follow=True)
        except SynclineError as error:
            self._say(f"{error}; nothing lands any more, the nodes go on")

    def _batch(self, event: dict[str, Any]) -> None:
        self._batches += 1
        if self._batches == 1:
            self._say("the first rows have landed")

    async def _report(self, settings: Settings) -> None:
        """Every few seconds, what has landed and how much of it is new."""
        import anyio

        from syncline.demo.landing import table_rows

        while True:
            await anyio.sleep(REPORT_SECONDS)
            rows = await table_rows(settings)
            if self._json:
                output.json_line({"tables": rows})
            elif any(rows.values()):
                lines = [(name, f"{n:,}", f"+{n - self._rows.get(name, 0):,}") for name, n in rows.items() if n]
                output.table(
                    ["table", "rows", "new"], lines, title=f"landed after {time.monotonic() - self._start:.0f} s"
                )
                sys.stdout.flush()
            self._rows = rows


async def _cancel_on_signal(signals: Any, scope: Any, say: Any) -> None:
    async for _ in signals:
        say("stopping: nodes seal what they have, the pipeline ends its batch")
        scope.cancel()
        return
