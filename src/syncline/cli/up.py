"""`syncline up`: runs a node until it is told to stop."""

from __future__ import annotations

import signal
from contextlib import AbstractContextManager, closing, nullcontext
from typing import TYPE_CHECKING

import typer

from syncline.cli import output
from syncline.cli.common import JsonFlag, invocation

if TYPE_CHECKING:
    from syncline.core.ports import Archive
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
    from syncline.core.keys import NodeKey
    from syncline.node import api, serve
    from syncline.node.node import running

    listener = serve.bind(settings.api)
    url = serve.url_of(listener)
    key = NodeKey.load(settings.key_file)
    archived = _archive(settings, key.peer_id)
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals, archived as archive:
        async with running(settings, key=key, archive=archive) as node, anyio.create_task_group() as tasks:
            await tasks.start(serve.serve, api.build(node, web.mounts(node)), listener)
            ready = {"url": url, "node": node.key.peer_id, "epoch": node.journal.epoch, "pid": _pid()}
            if json:
                output.json_line(ready)
            else:
                output.facts({**ready, "protocols": ", ".join(sorted(node.services)) or "none", "stop": "Ctrl-C"})
            async for _ in signals:
                break
            tasks.cancel_scope.cancel()


def _archive(settings: Settings, node: str) -> AbstractContextManager[Archive | None]:
    """What the node kept and the journal has forgotten, from the lake; None where the lake is not installed."""
    from importlib.util import find_spec

    if find_spec("duckdb") is None or find_spec("deltalake") is None:
        return nullcontext()
    from syncline.lake.archive import LakeArchive
    from syncline.lake.roots import Lake

    return closing(LakeArchive(Lake.of(settings), node))


def _pid() -> int:
    import os

    return os.getpid()
