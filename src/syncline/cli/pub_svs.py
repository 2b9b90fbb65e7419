"""`syncline pub svs`: publish under a name in an SVS-PS group of a running node."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from syncline.cli import output
from syncline.cli.common import JsonFlag, NodeUrl, invocation
from syncline.core.errors import UsageError


def svs(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The application name, e.g. /chat/hello")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="The content; - is standard input")] = "-",
    group: Annotated[str, typer.Option(help="Which group, if the node is in several")] = "",
    as_: Annotated[str, typer.Option("--as", metavar="PREFIX", help="Publish for this node prefix of the node")] = "",
    node: NodeUrl = None,
    json: JsonFlag = False,
) -> None:
    """Publish content under a name in an SVS-PS group. Prints the publisher and the sequence number.

    Example: [bold]echo hello | syncline pub svs /chat/hello --group /room[/bold]
    """
    import base64

    from syncline.cli.client import NodeClient

    body = {"name": name, "content_base64": base64.b64encode(_content(file)).decode()}
    body |= {key: value for key, value in (("group", group), ("node", as_)) if value}
    with NodeClient.of(invocation(context).settings(), node) as client:
        answer = client.post("/api/v1/publish/svs", body)
    if json:
        output.json_line(answer)
    else:
        print(f"{answer['node']}  {answer['seq']}")


def _content(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read it: {error.strerror}", about=file) from None
