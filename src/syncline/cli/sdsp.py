"""`syncline sdsp`: look at the objects of a running node, and follow them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncline.cli import output
from syncline.cli.common import JsonFlag, NodeUrl, invocation
from syncline.core.errors import UsageError

if TYPE_CHECKING:
    from syncline.cli.client import NodeClient

app = typer.Typer(help="Objects that are synchronised by deltas: look at them, follow them.", no_args_is_help=True)
Uid = Annotated[str, typer.Argument(metavar="UID", help="The object")]


@app.command("list")
def list_(context: typer.Context, node: NodeUrl = None, json: JsonFlag = False) -> None:
    """List the objects of a node.

    Example: [bold]syncline sdsp list --json[/bold]
    """
    with _client(context, node) as client:
        objects = client.get("/sdsp/").json()["objects"]
    if json:
        for each in objects:
            output.json_line(each)
    else:
        columns = ("uid", "topic", "serial", "kind", "status")
        output.table(columns, ([each[column] for column in columns] for each in objects))


@app.command()
def cat(
    context: typer.Context,
    uid: Uid,
    at: Annotated[int | None, typer.Option(min=0, metavar="SERIAL", help="As it was after this serial")] = None,
    node: NodeUrl = None,
    json: JsonFlag = False,
) -> None:
    """Print an object as it is, or as it was.

    Example: [bold]syncline sdsp cat sat-1 --at 12[/bold]
    """
    import msgspec

    with _client(context, node) as client:
        state = _state(client, uid, at)
    if json:
        output.json_line(state)
        return
    value = _value(state)
    if not isinstance(value, bytes):
        text = value if state["kind"] == "text" else msgspec.json.format(msgspec.json.encode(value)).decode()
        value = (text if text.endswith("\n") else text + "\n").encode()
    sys.stdout.buffer.write(value)


@app.command()
def log(context: typer.Context, uid: Uid, node: NodeUrl = None, json: JsonFlag = False) -> None:
    """List the frames a node has kept of an object, also those it refused.

    Example: [bold]syncline sdsp log sat-1[/bold]
    """
    import base64

    import msgspec

    from syncline.protocols.sdsp.wire import Kind

    columns = ("serial", "ver", "kind", "alg", "bytes", "verdict", "reason", "received_at")
    rows = []
    with _client(context, node) as client:
        for record in client.records({"protocol": "sdsp", "key": uid}, last=None, follow=False):
            raw = base64.b64decode(record["raw"] or "")
            frame: dict[str, Any] = msgspec.json.decode(raw) if raw else {}
            kind = Kind.DELTA if "delta" in frame else Kind.FREEZE if frame.get("frozen") else Kind.FULL
            known = {"serial": int(record["seq"]), "ver": frame.get("ver") or 0, "kind": kind.value}
            told = {name: record[name] for name in ("verdict", "reason", "received_at", "name")}
            row = {**known, "alg": frame.get("alg"), "bytes": len(raw), **told}
            output.json_line(row) if json else rows.append([row[column] for column in columns])
    if not json:
        output.table(columns, rows)


@app.command()
def diff(
    context: typer.Context,
    uid: Uid,
    old: Annotated[int | None, typer.Argument(metavar="OLD", help="A serial (default: the one before NEW)")] = None,
    new: Annotated[int | None, typer.Argument(metavar="NEW", help="A serial (default: the newest)")] = None,
    node: NodeUrl = None,
    json: JsonFlag = False,
) -> None:
    """Show what changed between two serials: a JSON Patch for JSON, changed lines for text.

    Example: [bold]syncline sdsp diff sat-1 3 7[/bold]
    """
    with _client(context, node) as client:
        after = _state(client, uid, new)
        before = _state(client, uid, max(after["serial"] - 1, 0) if old is None else old)
    if before["kind"] != after["kind"]:
        raise UsageError(f"the object was {before['kind']} and is {after['kind']}: only like can be compared")
    changes = _changes(before["kind"], _value(before), _value(after))
    if json:
        output.json_line({"uid": uid, "old": before["serial"], "new": after["serial"], "changes": changes})
    else:
        for change in changes:
            print(output.visible(change if isinstance(change, str) else _patch_line(change)))


@app.command()
def freeze(context: typer.Context, uid: Uid, node: NodeUrl = None, json: JsonFlag = False) -> None:
    """Say that an object will not change any more. This cannot be undone.

    Example: [bold]syncline sdsp freeze sat-1[/bold]
    """
    with _client(context, node) as client:
        answer = client.post("/api/v1/publish/sdsp", {"do": "freeze", "uid": uid})
    output.json_line(answer) if json else print(f"{uid} is frozen at serial {answer['serial']}")


@app.command()
def watch(
    context: typer.Context,
    uid: Uid,
    after: Annotated[int | None, typer.Option(min=0, metavar="SERIAL", help="Begin after this serial")] = None,
    node: NodeUrl = None,
    json: JsonFlag = False,
) -> None:
    """Follow an object until it is frozen, one line for each event.

    Example: [bold]syncline sdsp watch sat-1 --json[/bold]
    """
    import anyio

    from syncline.cli.client import NodeClient
    from syncline.protocols.sdsp.rebuild import State, Status
    from syncline.protocols.sdsp.subscriber import follow
    from syncline.protocols.sdsp.wire import ObjectKind
    from syncline.transports.http import open_http

    settings = invocation(context).settings()
    with NodeClient.of(settings, node) as client:
        known = _state(client, uid, after) if after is not None else None
    begin = None
    if known is not None:
        kind, status = ObjectKind(known["kind"]), Status(known["status"])
        begin = State(uid, known["serial"], known["ver"], kind, _value(known), status)

    async def run() -> None:
        async with open_http(client.url, token=settings.api.token) as transport:
            async with follow(transport, uid, state=begin) as object:
                async for event in object:
                    output.json_line(event) if json else print(_event_line(event), flush=True)

    anyio.run(run, backend="trio")


def _client(context: typer.Context, node: str | None) -> NodeClient:
    from syncline.cli.client import NodeClient

    return NodeClient.of(invocation(context).settings(), node)


def _state(client: NodeClient, uid: str, at: int | None) -> dict[str, Any]:
    from urllib.parse import quote

    found: dict[str, Any] = client.get(f"/sdsp/{quote(uid)}", {"at": at}).json()
    return found


def _value(state: dict[str, Any]) -> Any:
    import base64

    return base64.b64decode(state["value"]) if state["kind"] == "binary" else state["value"]


def _changes(kind: str, old: Any, new: Any) -> list[Any]:
    import difflib

    if kind == "json":
        from syncline.protocols.sdsp.deltas.jp import JsonPatch

        return list(JsonPatch().make(old, new) or [])
    if kind == "text":
        return list(difflib.unified_diff(old.splitlines(), new.splitlines(), "old", "new", lineterm=""))
    return [] if old == new else [f"{len(old)} bytes became {len(new)}"]


def _patch_line(change: dict[str, Any]) -> str:
    import msgspec

    value = " " + msgspec.json.encode(change["value"]).decode() if "value" in change else ""
    source = f" from {change['from']}" if "from" in change else ""
    return f"{change['op']:<8}{change['path']}{source}{value}"


def _event_line(event: Any) -> str:
    """Serial, what happened, and the object or the trouble, shortened to a line."""
    import msgspec

    from syncline.protocols.sdsp.session import Fork

    told = msgspec.to_builtins(event)
    about = next((told[name] for name in ("new", "value", "detail") if name in told), "")
    if isinstance(event, Fork):
        about = "another frame with this serial came; the first one stands"
    text = about if isinstance(about, str) else msgspec.json.encode(about).decode()
    cause = f" {told['cause']}" if "cause" in told else ""
    short = text.replace("\n", "⏎")
    return f"{event.serial:>6}  {told['type']}{cause}  {short if len(short) <= 160 else short[:159] + '…'}"
