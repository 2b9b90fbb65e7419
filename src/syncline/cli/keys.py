"""`syncline keys`: the node's key and its public names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncline.cli import output
from syncline.cli.common import JsonFlag, invocation

app = typer.Typer(help="Show and make keys.", no_args_is_help=True)


@app.command()
def show(context: typer.Context, json: JsonFlag = False) -> None:
    """Show the public names of this node's key. The secret is never shown.

    Example: [bold]syncline keys show --json[/bold]
    """
    from syncline.core.keys import NodeKey

    _print(NodeKey.load(invocation(context).settings().key_file), json=json)


@app.command()
def new(path: Annotated[Path, typer.Argument(help="File to write; never overwritten")], json: JsonFlag = False) -> None:
    """Make a key file that only its owner can read.

    Example: [bold]syncline keys new link.key[/bold]
    """
    from syncline.core.keys import NodeKey

    key = NodeKey.generate()
    key.save(path)
    _print(key, json=json)


def _print(key: object, *, json: bool) -> None:
    from syncline.core.keys import NodeKey

    assert isinstance(key, NodeKey)
    found = {"peer_id": key.peer_id, "did": key.did, "public_key": key.public.hex()}
    output.json_line(found) if json else output.facts(found)
