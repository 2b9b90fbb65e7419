"""`syncline init`: a folder with settings and a key, ready for `syncline up`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncline.cli import output
from syncline.cli.common import JsonFlag, invocation
from syncline.core import settings
from syncline.core.errors import UsageError
from syncline.core.keys import NodeKey

TEMPLATE = """\
# Settings of a Syncline node. Every line is optional; `syncline config` lists all settings with their meaning.

[node]
data = "data"
key = "node.key"

[api]
host = "127.0.0.1"
port = 7070
"""


def run(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="Where the node lives; made if needed")] = Path(),
    json: JsonFlag = False,
) -> None:
    """Make a settings file and a key for a new node.

    Example: [bold]syncline init my-node && cd my-node && syncline up[/bold]
    """
    config = invocation(context).config
    file = config if config is not None else folder / settings.FILE_NAME
    if file.exists():
        raise UsageError("there is a settings file already", hint="edit it, or choose another folder", about=str(file))
    file.parent.mkdir(parents=True, exist_ok=True)
    key_file = file.parent / "node.key"
    key = NodeKey.load(key_file) if key_file.exists() else NodeKey.generate()
    if not key_file.exists():
        key.save(key_file)
    file.write_text(TEMPLATE)
    found = {"settings": str(file), "key": str(key_file), "node": key.peer_id}
    if json:
        output.json_line(found)
    else:
        output.facts(found)
        output.progress_console().print(f"next: syncline --config {file} up")
