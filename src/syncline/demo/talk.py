"""Relay traffic: four clients in two rooms, connected to two servers, so that every word crosses the link between them."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import cycle
from typing import Final

import anyio
import msgspec

from syncline.demo.world import World
from syncline.protocols.relay.client import RelayClient

ROOMS: Final = ("flight-dynamics", "ground-segment")
LINES: Final = (
    "pass over Svalbard starts in {n} min", "copy", "residuals of DEMO-{n} look fine", "slewing to target {n}",
    "downlink {n} MB done", "handover to the next station", "battery at {n} %", "burn window {n} confirmed",
)  # fmt: skip


class Talk:
    """Who says something next; what is heard is counted."""

    def __init__(self, world: World, clients: list[tuple[str, str, RelayClient]]) -> None:
        self._chance = world.chance("talk")
        self._clock = world.members[0].node.clock
        self._speakers = cycle(clients)
        self._said = 0
        self.heard = 0

    async def say(self) -> None:
        room, name, client = next(self._speakers)
        self._said += 1
        words = self._chance.choice(LINES).format(n=self._chance.randrange(1, 96))
        # With its time, or a second demo in the same folder would only repeat what the first one said.
        told = {"n": self._said, "from": name, "text": words, "room": room, "at": self._clock.now()}
        text = msgspec.json.encode(told).decode()
        await client.publish(topic_of(room), text, ttl=3_600, tag=1 + self._said % 3, timeout=10.0)

    async def listen(self, room: str, client: RelayClient, ready: anyio.Event) -> None:
        async with client.subscribe(topic_of(room)) as messages:
            ready.set()
            async for _ in messages:
                self.heard += 1


@asynccontextmanager
async def talking(world: World) -> AsyncIterator[Talk]:
    """Clients connected and subscribed, for the length of the block."""
    servers = [member.service("relay").url for member in world.speakers("relay")]
    async with AsyncExitStack() as stack:
        clients = []
        for room in ROOMS:
            for number, url in enumerate(servers):
                client = await stack.enter_async_context(RelayClient(url))
                clients.append((room, f"{room}-{number + 1}", client))
        talk = Talk(world, clients)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        for room, _, client in clients:
            ready = anyio.Event()
            tasks.start_soon(talk.listen, room, client, ready)
            await ready.wait()
        try:
            yield talk
        finally:
            tasks.cancel_scope.cancel()


def topic_of(room: str) -> str:
    """A topic is 32 bytes that only those who know the room can name."""
    return hashlib.sha256(f"syncline demo {room}".encode()).hexdigest()
