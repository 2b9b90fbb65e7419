"""`syncline peers`: who a running node talks to, and which peers it would ask for a block's data."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from syncline.cli import output
from syncline.cli.common import JsonFlag, NodeUrl, invocation


def run(
    context: typer.Context,
    pools: Annotated[
        bool, typer.Option("--pools", help="ShrEx: the pools of peers by data hash, newest first")
    ] = False,
    protocol: Annotated[str | None, typer.Option(help="Only this protocol")] = None,
    node: NodeUrl = None,
    json: JsonFlag = False,
) -> None:
    """Show the peers of a running node.

    Example: [bold]syncline peers --pools[/bold]
    """
    from syncline.cli.client import NodeClient

    with NodeClient.of(invocation(context).settings(), node) as client:
        answer = client.get("/shrex/pools" if pools else "/api/v1/peers").json()
    if not pools and protocol is not None:
        answer = {"peers": [peer for peer in answer["peers"] if peer["protocol"] == protocol]}
    if json:
        output.json_line(answer)
    elif pools:
        _show_pools(answer)
    else:
        _show_peers(answer["peers"])


def _show_pools(answer: dict[str, Any]) -> None:
    rows = [
        (pool["height"], pool["data_hash"], len(pool["peers"]), len(pool["resting"]), " ".join(pool["peers"][:3]))
        for pool in answer["pools"]
    ]
    state = "synced" if answer["synced"] else "not synced"
    output.table(
        ["height", "data hash", "peers", "resting", "first to ask"],
        rows,
        title=f"head {answer['head']}, {state}; {len(answer['nodes'])} nodes",
    )


def _show_peers(peers: list[dict[str, Any]]) -> None:
    known = ("protocol", "peer", "name", "kind", "address", "direction", "agent")
    shown = [name for name in known if any(peer.get(name) for peer in peers)] or list(known)
    rows = [tuple(peer.get(name, "") for name in shown) for peer in peers]
    output.table(shown, rows)
