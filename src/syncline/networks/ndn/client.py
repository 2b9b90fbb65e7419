"""An application attached to a forwarder elsewhere: an endpoint, its connection and the registration of its prefixes.

When the connection breaks it is made again and the prefixes are registered again, until the forwarder says that they are;
what was asked or sent meanwhile is lost, and questions are answered with a time-out, as after any loss.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random, SystemRandom
from typing import Final, Protocol

import anyio
import structlog

from syncline.core.clock import Clock, SystemClock
from syncline.core.errors import DecodeError, RefusedError, SynclineError, UnavailableError
from syncline.core.retry import Backoff
from syncline.core.verdict import Reason
from syncline.formats.ndn.names import Name, text
from syncline.formats.ndn.packets import Data
from syncline.formats.ndn.signing import Signer
from syncline.networks.background import background
from syncline.networks.ndn.bell import Bell
from syncline.networks.ndn.control import ControlParameters, ControlResponse
from syncline.networks.ndn.endpoint import TIMEOUT, Endpoint, registration
from syncline.networks.ndn.transports import Transport, connect

log = structlog.get_logger()
Understood = Callable[[ControlResponse | None], None]
REGISTER_SECONDS: Final = 5.0  # between tries to register a prefix again; longer than a command waits for its answer


class Attachment(Protocol):
    """What an application needs of a forwarder, in another process or in this one."""

    endpoint: Endpoint

    async def register(self, prefix: Name) -> None:
        """Have Interests below `prefix` sent here."""
        ...

    def unregister(self, prefix: Name) -> None:
        """No longer have them sent here. Returns at once."""
        ...

    def peer(self, face: int) -> str:
        """Who handed over what came by that face of the forwarder, as far as it is known."""
        ...


class Client:
    """Implements `Attachment` over a connection. Use `async with attached(address) as client`."""

    def __init__(self, address: str | None, clock: Clock, random: Random, signer: Signer | None) -> None:
        self._address = address
        self._clock = clock
        self._random = random
        self._signer = signer
        self._bell = Bell()
        self._transport: Transport | None = None
        self._prefixes: dict[Name, None] = {}
        self._missing: dict[Name, None] = {}  # of them, those a new connection has not registered yet
        self._last_time = 0
        self.endpoint = Endpoint(random, self._bell.ring)

    def peer(self, face: int) -> str:
        return self._transport.uri if self._transport is not None else ""

    async def open(self) -> Transport:
        self._transport = await connect(self._address)
        return self._transport

    async def run(self, transport: Transport) -> None:
        """Use this connection, and after it new ones, until cancelled."""
        while True:
            await self._carry(transport)
            self._missing.update(self._prefixes)
            transport = await self._reconnect()

    async def _reconnect(self) -> Transport:
        spans = Backoff(first=0.2, longest=10.0).spans(self._random)
        while True:
            self.endpoint.take()
            self.endpoint.fail()
            await anyio.sleep(next(spans))
            try:
                return await self.open()
            except SynclineError as error:
                log.info("ndn_reconnecting", forwarder=error.about, problem=error.message)

    async def register(self, prefix: Name) -> None:
        answers: list[ControlResponse | None] = []
        done = anyio.Event()

        def answered(response: ControlResponse | None) -> None:
            answers.append(response)
            done.set()

        self._command("rib/register", registration(prefix), answered)
        await done.wait()
        [answer] = answers
        if answer is None:
            raise UnavailableError("the forwarder does not answer", about=text(prefix))
        if answer.code != 200:
            raise RefusedError(
                f"the forwarder refuses the prefix: {answer.code} {answer.text}",
                reason=Reason.UNAUTHORISED,
                about=text(prefix),
            )
        self._prefixes[prefix] = None

    def unregister(self, prefix: Name) -> None:
        self._prefixes.pop(prefix, None)
        self._missing.pop(prefix, None)
        self._command("rib/unregister", ControlParameters(name=prefix, origin=0), lambda response: None)

    async def ask(self, name: Name, *, can_be_prefix: bool = False, lifetime: int = 4_000) -> Data:
        """The Data of that name; for simple uses and tests."""
        answers: list[tuple[Data | None, int]] = []
        done = anyio.Event()

        def answered(data: Data | None, reason: int) -> None:
            answers.append((data, reason))
            done.set()

        self.endpoint.ask(name, answered, anyio.current_time(), can_be_prefix=can_be_prefix, lifetime=lifetime)
        await done.wait()
        data, reason = answers[0]
        if data is None:
            told = "nobody answered in time" if reason == TIMEOUT else f"the network said no ({reason})"
            raise UnavailableError(told, about=text(name))
        return data

    async def _register_missing(self) -> None:
        while True:
            for prefix in list(self._missing):
                self._command("rib/register", registration(prefix), self._registered(prefix))
            await anyio.sleep(REGISTER_SECONDS)

    def _registered(self, prefix: Name) -> Understood:
        def answered(response: ControlResponse | None) -> None:
            if response is not None and response.code == 200:
                self._missing.pop(prefix, None)
            else:
                told = "no answer" if response is None else f"{response.code} {response.text}"
                log.warning("ndn_prefix_refused", prefix=text(prefix), answer=told)

        return answered

    def _command(self, verb: str, parameters: ControlParameters, answered: Understood) -> None:
        assert self._transport is not None
        self._last_time = max(self._last_time + 1, self._clock.now() // 1_000)  # commands have distinct times
        self.endpoint.command(
            verb,
            parameters,
            answered,
            anyio.current_time(),
            self._last_time,
            local=self._transport.local,
            signer=self._signer,
        )

    async def _carry(self, transport: Transport) -> None:
        try:
            async with anyio.create_task_group() as tasks:

                async def read() -> None:
                    while True:
                        self.endpoint.receive(await transport.receive(), anyio.current_time())

                tasks.start_soon(read)
                tasks.start_soon(self._register_missing)
                while True:
                    with anyio.move_on_at(self.endpoint.deadline):
                        await self._bell.wait()
                    self.endpoint.tick(anyio.current_time())
                    packets = self.endpoint.take()
                    if packets:
                        await transport.send(packets)
        except* (OSError, DecodeError, anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            log.info("ndn_connection_lost", forwarder=transport.uri)
        finally:
            with anyio.CancelScope(shield=True):
                await transport.aclose()


@asynccontextmanager
async def attached(
    address: str | None = None,
    *,
    clock: Clock | None = None,
    random: Random | None = None,
    signer: Signer | None = None,
) -> AsyncIterator[Client]:
    """A client of the forwarder at `address` (see `transports.connect`) for the length of the block.

    `signer` signs commands; a forwarder on another machine asks for a key it knows.
    """
    client = Client(address, clock or SystemClock(), random or SystemRandom(), signer)
    transport = await client.open()
    async with background() as tasks:
        tasks.start_soon(client.run, transport)
        yield client
