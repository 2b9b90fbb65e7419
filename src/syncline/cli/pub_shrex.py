"""`syncline pub shrex`: announce that a block's data is available."""

from __future__ import annotations

from typing import Annotated

import typer

from syncline.cli import output
from syncline.cli.common import JsonFlag, NodeUrl, invocation


def shrex(
    context: typer.Context,
    height: Annotated[str, typer.Argument(help="The block's height; it must be the tip")],
    data_hash: Annotated[str, typer.Argument(help="Its data root, as 64 hex digits")],
    node: NodeUrl = None,
    json: JsonFlag = False,
) -> None:
    """Announce a block's data to the network: once per height, and only at the tip of a synced chain.

    Example: [bold]syncline pub shrex 7000000 e98800aa25f75159e7206717d7b3c87bc3102b6f97efc67035da37ba46b01183[/bold]
    """
    from syncline.cli.client import NodeClient

    with NodeClient.of(invocation(context).settings(), node) as client:
        answer = client.post("/api/v1/publish/shrex", {"height": height, "data_hash": data_hash})
    if json:
        output.json_line(answer)
    else:
        print(f"{answer['height']}  told to {answer['sent']} peers")
