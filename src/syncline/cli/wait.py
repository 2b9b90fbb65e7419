"""`syncline wait`: returns when a node can be used; for scripts and health checks."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from syncline.cli import output
from syncline.cli.common import JsonFlag, NodeUrl, invocation

PAUSE = 0.2


def run(
    context: typer.Context,
    seconds: Annotated[float, typer.Option(min=0, help="Give up after so long; 0 looks once")] = 30.0,
    node: NodeUrl = None,
    json: JsonFlag = False,
) -> None:
    """Wait until a node answers and is ready. Exits with 3 if it does not in time.

    Example: [bold]syncline up & syncline wait && syncline tail[/bold]
    """
    from syncline.cli.client import NodeClient
    from syncline.core.errors import SynclineError, UnreachableError

    end = time.monotonic() + seconds
    with NodeClient.of(invocation(context).settings(), node) as client:
        while True:
            state = "away"
            try:
                found = client.get("/api/v1/status").json()
                state = found["state"]
            except UnreachableError as error:
                problem: SynclineError = error
            else:
                problem = UnreachableError(f"the node is {state}", about=client.url)
            if state == "ready":
                output.json_line(found) if json else print(f"{client.url} is ready")
                return
            if time.monotonic() >= end:
                raise problem
            time.sleep(PAUSE)
