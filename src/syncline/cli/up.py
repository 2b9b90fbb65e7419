"""`syncline up`: runs a node until it is told to stop."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import typer

from syncline.cli import output
from syncline.cli.common import JsonFlag, invocation

if TYPE_CHECKING:
    from syncline.core.settings import Settings


def run(context: typer.Context, json: JsonFlag = False) -> None:
    """Run a node until Ctrl-C or SIGTERM; then stop in order.

    With --json one line tells the address once it is ready.

    Example: [bold]syncline init && syncline up[/bold]
    """
    import anyio

    from syncline.cli import logs
    from syncline.node.tuning import tune

    settings = invocation(context).settings(need_file=True)
    logs.configure(settings.log)
    tune()
    anyio.run(_main, settings, json, backend="trio")


async def _main(settings: Settings, json: bool) -> None:
    import anyio

    from syncline import web
    from syncline.node import api, serve
    from syncline.node.node import running

    listener = serve.bind(settings.api)
    url = serve.url_of(listener)
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with running(settings) as node, anyio.create_task_group() as tasks:
            await tasks.start(serve.serve, api.build(node, web.mounts(node)), listener)
            ready = {"url": url, "node": node.key.peer_id, "epoch": node.journal.epoch, "pid": _pid()}
            if json:
                output.json_line(ready)
            else:
                output.facts({**ready, "protocols": ", ".join(sorted(node.services)) or "none", "stop": "Ctrl-C"})
            async for _ in signals:
                break
            tasks.cancel_scope.cancel()


def _pid() -> int:
    import os

    return os.getpid()
