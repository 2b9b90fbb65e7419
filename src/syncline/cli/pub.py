"""`syncline pub`: publish through a running node, one sub-command per protocol."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncline.cli import output
from syncline.cli.common import JsonFlag, NodeUrl, invocation
from syncline.cli.pub_relay import relay
from syncline.cli.pub_shrex import shrex
from syncline.cli.pub_svs import svs
from syncline.core.errors import RefusedError, UsageError
from syncline.core.verdict import Reason

if TYPE_CHECKING:
    from syncline.cli.client import NodeClient

app = typer.Typer(help="Publish through a running node.", no_args_is_help=True)
app.command()(relay)
app.command()(shrex)
app.command()(svs)
KINDS = ("json", "text", "binary")
RATE_PAUSE = 0.1  # seconds in which the usual rate lets one more message through


@app.command()
def sdsp(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The object; - is standard input")] = "-",
    uid: Annotated[str, typer.Option(help="Which object (default: a new one)")] = "",
    topic: Annotated[str, typer.Option(help="What it is published under (default: its uid)")] = "",
    kind: Annotated[str | None, typer.Option(help="json, text or binary (default: by the content)")] = None,
    whole: Annotated[bool, typer.Option("--whole", help="Send the whole object even if a delta would do")] = False,
    delta: Annotated[
        str | None, typer.Option(metavar="ALG", help="FILE is a delta of this algorithm (jp, md, X-mp, X-vcdiff)")
    ] = None,
    node: NodeUrl = None,
    json: JsonFlag = False,
) -> None:
    """Publish an object, or its new state if it is there already. Prints its uid and serial.

    Example: [bold]echo '{"alt": 550.5}' | syncline pub sdsp --uid sat-1 --topic sats[/bold]
    """
    from syncline.cli.client import NodeClient

    content = sys.stdin.buffer.read() if file == "-" else _read(file)
    if delta is not None:
        body = {"do": "delta", "alg": delta, **_named("delta", content, kind)}
    else:
        body = {"do": "replace" if whole else "put", **_named("data", content, kind)}
    with NodeClient.of(invocation(context).settings(), node) as client:
        answer = client.post("/api/v1/publish/sdsp", {**body, "uid": uid, "topic": topic})
    if json:
        output.json_line(answer)
    else:
        unchanged = "" if answer["published"] else "  (nothing changed)"
        print(f"{answer['uid']}  {answer['serial']}{unchanged}")


@app.command()
def sds(
    context: typer.Context,
    schema: Annotated[str, typer.Argument(help="OMM, CDM or another of the 29 standards")],
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Messages as JSON; of OMM also CSV or two-line elements; - is input")
    ] = "-",
    ttl: Annotated[int, typer.Option(min=0, help="Seconds after which peers need not hand it on; 0: for ever")] = 0,
    node: NodeUrl = None,
    json: JsonFlag = False,
) -> None:
    """Sign space data and publish it to the network, no faster than the network takes it. Prints the id of each message.

    Example: [bold]syncline pub sds OMM elements.json[/bold]
    """
    from syncline.cli.client import NodeClient

    content = sys.stdin.buffer.read() if file == "-" else _read(file)
    messages = _messages(schema, content)
    with NodeClient.of(invocation(context).settings(), node) as client:
        for message in messages:
            answer = _in_its_turn(client, {"schema": schema, "data": message, "ttl": ttl})
            output.json_line(answer) if json else print(f"{answer['id']}  {answer['schema']}")


def _in_its_turn(client: NodeClient, body: dict[str, Any]) -> Any:
    """Publish space data, waiting while the node's share of the network's rate is used up."""
    while True:
        try:
            return client.post("/api/v1/publish/sds", body)
        except RefusedError as error:
            if error.reason is not Reason.RATE_LIMITED:
                raise
        time.sleep(RATE_PAUSE)


def _messages(schema: str, content: bytes) -> list[Any]:
    """What a file says: one message, a list of them, or one on each line; mean elements in any form they come in."""
    import msgspec

    from syncline.protocols.sds import omm

    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"this is not UTF-8: {error}") from None
    if schema.removesuffix(".fbs") == "OMM":
        return omm.read(text)
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        try:
            found = msgspec.json.Decoder().decode_lines(text)
        except msgspec.DecodeError:
            raise UsageError(f"this is not JSON: {error}") from None
    if found == []:
        raise UsageError("there is no message here")
    return found if isinstance(found, list) else [found]


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read it: {error.strerror}", about=file) from None


def _named(name: str, content: bytes, kind: str | None) -> dict[str, Any]:
    """The content as the API takes it, and what kind it is: JSON if it can be read so, else text, else binary."""
    import base64

    import msgspec

    if kind is not None and kind not in KINDS:
        raise UsageError(f"a kind is one of {', '.join(KINDS)}, not {kind!r}")
    if kind in (None, "json"):
        try:
            return {name: msgspec.json.decode(content), "kind": "json"}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if kind == "json":
                raise UsageError(f"this is not JSON: {error}") from None
    if kind in (None, "text"):
        try:
            return {name: content.decode(), "kind": "text"}
        except UnicodeDecodeError as error:
            if kind == "text":
                raise UsageError(f"this is not UTF-8: {error}") from None
    return {name: base64.b64encode(content).decode(), "kind": "binary"}
