"""`syncline plugins`: what is installed, and what cannot be loaded and why."""

from __future__ import annotations

import typer

from syncline.cli import output
from syncline.cli.common import JsonFlag


def run(json: JsonFlag = False) -> None:
    """List installed protocols, transports and other plug-ins.

    Example: [bold]syncline plugins --json[/bold]
    """
    from syncline.node.plugins import installed

    found = installed()
    if json:
        output.json_line(found)
    else:
        rows = [
            (each.group, each.name, f"{each.package} {each.version}", each.problem or "ok", each.fix) for each in found
        ]
        output.table(["group", "name", "package", "state", "fix"], rows)
    if any(each.problem for each in found):
        raise typer.Exit(1)
