"""`syncline get`: look something up through a running node, one sub-command per protocol."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

import typer

from syncline.cli import output
from syncline.cli.common import JsonFlag, NodeUrl, invocation
from syncline.core.errors import UsageError

app = typer.Typer(help="Look something up through a running node.", no_args_is_help=True)
OPERATORS: Final = {"=": "eq", "!=": "ne", ">": "gt", ">=": "gte", "<": "lt", "<=": "lte", "~": "contains"}
FORMS: Final = ("json", "csv", "tle")


@app.callback()
def get() -> None:
    """Look something up through a running node."""


@app.command()
def sds(
    context: typer.Context,
    schema: Annotated[str, typer.Argument(help="OMM, CDM or another of the 29 standards")],
    where: Annotated[
        list[str] | None,
        typer.Option("--where", "-w", help="FIELD=VALUE, also != > >= < <= and ~ for contains; all must hold"),
    ] = None,
    peer: Annotated[
        str, typer.Option(help="PeerID or address of a peer to ask (default: the node's own records)")
    ] = "",
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="At most so many")] = 10,
    order_by: Annotated[str, typer.Option(help="Field to sort by")] = "",
    descending: Annotated[bool, typer.Option("--desc", help="Largest first")] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Let the node keep what the peer answers with, if it is signed")
    ] = False,
    form: Annotated[str | None, typer.Option("--form", help="Print OMM messages alone, as json, csv or tle")] = None,
    node: NodeUrl = None,
    json: JsonFlag = False,
) -> None:
    """Find space data in a node, or ask a peer of it.

    Example: [bold]syncline get sds OMM -w NORAD_CAT_ID=25544 --form tle[/bold]
    """
    from syncline.cli.client import NodeClient

    if form is not None and (form not in FORMS or schema.removesuffix(".fbs") != "OMM"):
        raise UsageError(f"--form is one of {', '.join(FORMS)}, and for OMM only")
    body = {
        "schema": schema,
        "where": terms(where or []),
        "peer": peer,
        "limit": limit,
        "order_by": order_by,
        "order": "desc" if descending else "",
        "keep": keep,
    }
    with NodeClient.of(invocation(context).settings(), node) as client:
        found = client.post("/sds/find", body)["records"]
    if form is not None:
        print(_formed(form, [each["data"] for each in found]), end="")
    elif json:
        for each in found:
            output.json_line(each)
    else:
        rows = [(each["timestamp"], each["publisher"][-8:], _mark(each), _short(each["data"])) for each in found]
        output.table(["timestamp", "publisher", "", "data"], rows, title=f"{len(found)} {schema}")


def terms(where: list[str]) -> dict[str, dict[str, str]]:
    """`["A=1", "A!=3"]` as the API takes it: `{"A": {"eq": "1", "ne": "3"}}`."""
    found: dict[str, dict[str, str]] = {}
    for term in where:
        match = re.fullmatch(r"([A-Za-z0-9_.]+)(!=|>=|<=|=|>|<|~)(.*)", term, re.DOTALL)
        if match is None:
            raise UsageError(f"{term!r} is not FIELD=VALUE")
        found.setdefault(match[1], {})[OPERATORS[match[2]]] = match[3]
    return found


def _formed(form: str, payloads: list[dict[str, Any]]) -> str:
    from syncline.protocols.sds import omm

    write = {"json": omm.to_json, "csv": omm.to_csv, "tle": omm.to_tle}[form]
    return write(payloads)


def _mark(each: dict[str, Any]) -> str:
    return "signed" if each["verified"] else "unverified"


def _short(data: dict[str, Any]) -> str:
    text = ", ".join(f"{name}={value}" for name, value in data.items())
    return text if len(text) <= 120 else text[:119] + "…"
