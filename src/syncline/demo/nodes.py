"""Starts the demo's three nodes one after the other, so that each can be told where the earlier ones listen.

Every port is a free one. All seal their segments into one folder, from which the first node's lake reads.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from syncline import web
from syncline.core import settings
from syncline.core.keys import NodeKey
from syncline.core.settings import Settings
from syncline.demo.world import GROUP, NAMES, NETWORK, Member, World, headers_file
from syncline.node import api, serve
from syncline.node.node import running
from syncline.node.plugins import protocol_sections
from syncline.protocols.relay.settings import LINK_PATH
from syncline.testing.headers import demo_headers

PROTOCOLS: Final = {
    "amber": ["sds", "sdsp", "relay", "svs", "shrex"],
    "basalt": ["sds", "sdsp", "relay", "svs", "shrex"],
    "chert": ["sds", "sdsp", "svs", "shrex"],  # a node need not speak everything
}
SEAL_SECONDS: Final = 2.0
LAND_SECONDS: Final = 3.0


def lake_config(folder: Path) -> Path:
    """The settings file of the node whose lake everything lands in."""
    return folder / NAMES[0] / settings.FILE_NAME


def lake_settings(folder: Path) -> Settings:
    return settings.load(file=lake_config(folder), sections=protocol_sections())


@asynccontextmanager
async def running_world(folder: Path, seed: int) -> AsyncIterator[World]:
    """The nodes with their APIs and pages, until the block ends."""
    keys = {name: _key(folder / name) for name in NAMES}
    secret = base64.b64encode(Random(f"{seed} group").randbytes(16)).decode()  # it protects nothing but the demo
    (folder / "segments").mkdir(exist_ok=True)
    headers_file(folder).touch()
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(anyio.create_task_group())
        members: list[Member] = []
        for name in NAMES:
            file = folder / name / settings.FILE_NAME
            file.write_text(_toml(_sections(name, folder, keys, secret, members)))
            loaded = settings.load(file=file, sections=protocol_sections())
            node = await stack.enter_async_context(running(loaded))
            url = await _serve(tasks, node, folder)
            members.append(Member(name, node, url))
        try:
            yield World(members, folder, secret, seed)
        finally:
            tasks.cancel_scope.cancel()


async def _serve(tasks: TaskGroup, node: Any, folder: Path) -> str:
    listener = serve.bind(node.settings.api)
    url = serve.url_of(listener)
    await tasks.start(serve.serve, api.build(node, web.mounts(node, lake_settings(folder))), listener)
    return url


def _sections(
    name: str, folder: Path, keys: dict[str, NodeKey], secret: str, earlier: Sequence[Member]
) -> dict[str, dict[str, Any]]:
    """The settings of one node: neighbours are those that already run."""
    group_key = f"{GROUP} all hmac:{secret}"
    hub = earlier[0] if earlier else None
    first = demo_headers()[0]
    return {
        "node": {"name": name, "protocols": PROTOCOLS[name]},
        "api": {"port": 0},
        "segments": {"url": (folder / "segments").as_uri(), "seconds": SEAL_SECONDS},
        "lake": {"seconds": LAND_SECONDS},
        "log": {"level": "error"},
        "libp2p": {
            "listen": ["/ip4/127.0.0.1/tcp/0"],
            "bootstrap": [member.node.networks.addresses()[0] for member in earlier],
        },
        "sds": {"network": NETWORK},
        "shrex": {
            "headers": f"file:{headers_file(folder)}",
            "poll_seconds": 0.5,
            "trusted_height": first.height,
            "trusted_hash": first.hash.hex(),
        },
        "svs": {
            "tcp_port": 0,
            "udp_port": -1,
            "websocket_port": -1,
            "uplinks": [hub.service("svs").hub.addresses["tcp"]] if hub else [],
            "groups": [GROUP],
            "nodes": [f"/station/{name}"],
            "keys": [group_key],
            "signers": [group_key],
        },
        "relay": {
            "port": 0,
            "name": name,
            "peers": [
                f"{member.node.key.peer_id}@{member.service('relay').url}{LINK_PATH}"
                for member in earlier
                if member.speaks("relay") and "relay" in PROTOCOLS[name]
            ],
            "trusted": [keys[other].peer_id for other in NAMES if other != name and "relay" in PROTOCOLS[other]],
        },
    }


def _toml(sections: dict[str, dict[str, Any]]) -> str:
    lines: list[str] = []
    for section, values in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {_value(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_value(each) for each in value) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _key(folder: Path) -> NodeKey:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "node.key"
    if not file.exists():
        NodeKey.generate().save(file)
    return NodeKey.load(file)
