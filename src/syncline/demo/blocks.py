"""ShrEx traffic: a chain that grows, every node announcing each block it has, and requests to those who announced it."""

from __future__ import annotations

import anyio
import anyio.to_thread

from syncline.core.errors import ConflictError, RefusedError, SynclineError, UnavailableError
from syncline.demo.world import Member, World
from syncline.protocols.shrex.wire import header as headers
from syncline.protocols.shrex.wire.header import Header
from syncline.protocols.shrex.wire.result import Outcome
from syncline.testing.headers import chain, demo_headers

ANNOUNCE_SECONDS = 5.0
ASK_SECONDS = 1.0


class Blocks:
    """One block a step: its header first, then the announcements, then somebody asks for its data."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.chance("blocks")
        self._members = world.speakers("shrex")
        self._ready = demo_headers()
        self._newest = self._resume()

    def _resume(self) -> Header | None:
        """The head of the chain that an earlier demo in this folder left, if any."""
        lines = self._world.headers_file.read_bytes().splitlines()
        return headers.decode(lines[-1]) if lines else None

    async def step(self) -> None:
        header = self._next()
        await anyio.to_thread.run_sync(self._append, header)
        async with anyio.create_task_group() as tasks:
            for member in self._members:
                tasks.start_soon(self._announce, member, header)
        await self._ask(self._chance.choice(self._members), header)

    def _next(self) -> Header:
        if self._newest is None:
            following = self._ready[0]
        elif self._newest.height < self._ready[-1].height:
            following = self._ready[self._newest.height - self._ready[0].height + 1]
        else:
            [following] = chain(1, after=self._newest)
        self._newest = following
        return following

    def _append(self, header: Header) -> None:
        with self._world.headers_file.open("ab") as file:
            file.write(headers.encode(header) + b"\n")

    async def _announce(self, member: Member, header: Header) -> None:
        """As soon as the node has seen the header; not when the chain has moved on."""
        request = {"height": str(header.height), "data_hash": header.data_hash.hex()}
        with anyio.move_on_after(ANNOUNCE_SECONDS):
            while True:
                try:
                    await member.service("shrex").publish(request)
                    return
                except ConflictError:
                    return
                except (RefusedError, UnavailableError):
                    await anyio.sleep(0.1)

    async def _ask(self, member: Member, header: Header) -> None:
        """Ask for a peer that has the data, and say how it served: mostly well."""
        try:
            _, done = await member.service("shrex").peer(header.data_hash, header.height, timeout=ASK_SECONDS)
        except SynclineError:
            return
        done(Outcome.COOLDOWN if self._chance.random() < 0.1 else Outcome.NOOP)
