"""`syncline pub relay`: a message on a relay topic, through a running node or to any relay."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from syncline.cli import output
from syncline.cli.common import JsonFlag, NodeUrl, invocation
from syncline.core.errors import UsageError
from syncline.core.limits import RELAY_TTL_DEFAULT


def relay(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="64 hex digits; or --name, and its sha256 is taken")],
    message: Annotated[str, typer.Argument(help="The text; - is standard input")] = "-",
    name: Annotated[bool, typer.Option("--name", help="TOPIC is a name; its sha256 is the topic")] = False,
    ttl: Annotated[int, typer.Option(min=1, help="Seconds that servers keep it")] = RELAY_TTL_DEFAULT,
    tag: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Label of the kind of message")] = 0,
    prompt: Annotated[bool, typer.Option("--prompt", help="Call the webhooks registered for the topic")] = False,
    relay: Annotated[
        str | None,
        typer.Option("--relay", metavar="URL", help="Publish to this relay as a client, with the node's key"),
    ] = None,
    node: NodeUrl = None,
    json: JsonFlag = False,
) -> None:
    """Publish a message on a relay topic; returns when it is on the relay's disk.

    Example: [bold]syncline pub relay --name weather "sunny" --ttl 600[/bold]
    """
    import hashlib

    chosen = hashlib.sha256(topic.encode()).hexdigest() if name else topic
    text = _input() if message == "-" else message
    fields = {"topic": chosen, "message": text, "ttl": ttl, "tag": tag, "prompt": prompt}
    if relay is not None:
        _to_relay(context, relay, fields)
        answer = {"topic": chosen, "published": True, "relay": relay}
    else:
        from syncline.cli.client import NodeClient

        with NodeClient.of(invocation(context).settings(), node) as client:
            answer = client.post("/api/v1/publish/relay", fields)
    output.json_line(answer) if json else print(answer["topic"])


def _input() -> str:
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise UsageError(
            "a relay carries text, and this is not UTF-8", hint="encode it, for example in base64"
        ) from None


def _to_relay(context: typer.Context, url: str, fields: dict[str, object]) -> None:
    import anyio

    from syncline.core.keys import NodeKey
    from syncline.protocols.relay.client import RelayClient

    key_file = invocation(context).settings().key_file
    key = NodeKey.load(key_file) if key_file.exists() else NodeKey.generate()

    async def publish() -> None:
        async with RelayClient(url, key) as client:
            await client.publish(**fields, timeout=30.0)  # type: ignore[arg-type]

    anyio.run(publish)
