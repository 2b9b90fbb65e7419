"""`syncline tail`: the records of a running node as they come."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from syncline.cli import output
from syncline.cli.common import JsonFlag, NodeUrl, invocation


def run(
    context: typer.Context,
    number: Annotated[
        int, typer.Option("-n", "--number", min=0, help="Start with the newest N records that match")
    ] = 10,
    end: Annotated[bool, typer.Option("-e", "--end", help="Stop at the newest record instead of waiting")] = False,
    protocol: Annotated[str | None, typer.Option(help="Only this protocol")] = None,
    topic: Annotated[str | None, typer.Option(help="Only this topic")] = None,
    kind: Annotated[str | None, typer.Option(help="Only this kind of record")] = None,
    key: Annotated[str | None, typer.Option(help="Only records about this object")] = None,
    publisher: Annotated[str | None, typer.Option(help="Only what this publisher wrote")] = None,
    verdict: Annotated[str | None, typer.Option(help="accept, reject or ignore")] = None,
    reason: Annotated[str | None, typer.Option(help="Only what was refused for this reason")] = None,
    node: NodeUrl = None,
    json: JsonFlag = False,
) -> None:
    """Follow what a node takes in and sends out.

    Example: [bold]syncline tail --protocol sds --reason invalid_signature -n 1000 -e[/bold]
    """
    from syncline.core.errors import UsageError
    from syncline.core.verdict import Outcome, Reason

    for name, given, known in (("--verdict", verdict, Outcome), ("--reason", reason, Reason)):
        if given is not None and given not in [each.value for each in known]:
            raise UsageError(f"{name} is one of {', '.join(each.value for each in known)}", about=given)
    from syncline.cli.client import NodeClient

    filters = {
        "protocol": protocol,
        "topic": topic,
        "kind": kind,
        "key": key,
        "publisher": publisher,
        "verdict": verdict,
        "reason": reason,
    }
    with NodeClient.of(invocation(context).settings(), node) as client:
        for record in client.records(filters, last=number, follow=not end):
            output.json_line(record) if json else _line(record)


def _line(record: dict[str, Any]) -> None:
    from rich.text import Text

    colour = {"accept": "green", "reject": "red", "ignore": "yellow"}[record["verdict"]]
    line = Text(f"{record['received_at'][11:23]} {record['protocol']:<5} {record['direction']:<3} ")
    line.append(f"{record['verdict']:<6}", style=colour)
    line.append(f" {record['reason'] or '':<18} " if record["reason"] else " ")
    line.append(output.visible(f"{record['topic']} {record['key']} {record['seq'] or ''}  "))
    line.append(record["name"], style="dim")
    output.console().print(line, soft_wrap=True)
