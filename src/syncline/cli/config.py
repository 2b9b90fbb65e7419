"""`syncline config`: every setting with its value, and where the value came from."""

from __future__ import annotations

from typing import Annotated

import typer

from syncline.cli import output
from syncline.cli.common import JsonFlag, invocation


def run(
    context: typer.Context,
    origin: Annotated[bool, typer.Option("--origin", help="Also show where each value came from")] = False,
    json: JsonFlag = False,
) -> None:
    """Show the settings in force. Secrets are masked.

    Example: [bold]SYNCLINE_API_PORT=0 syncline config --origin[/bold]
    """
    from syncline.core.settings import CORE_SECTIONS, describe
    from syncline.node.plugins import protocol_sections

    settings = invocation(context).settings()
    if json:
        output.json_line({name: {"value": value, "origin": source} for name, value, source in settings.values()})
        return
    docs = {each.name: each.doc for each in describe({**CORE_SECTIONS, **protocol_sections()})}
    columns = ["setting", "value", *(["origin"] if origin else []), "meaning"]
    rows = [
        [name, _shown(value), *([source] if origin else []), docs[name]] for name, value, source in settings.values()
    ]
    output.table(columns, rows)


def _shown(value: object) -> str:
    return "" if value is None or value == [] else str(value)
