"""Runs a forwarder on anyio: listens for applications and other forwarders, moves packets, attaches our own endpoints.

The forwarder decides; here are only sockets, tasks and their ends. A connection that misbehaves ends alone. Connections
this side makes to other forwarders are in `uplinks.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random, SystemRandom
from typing import Final

import anyio
import anyio.lowlevel
import msgspec
import structlog
from anyio.abc import TaskGroup

from syncline.core.clock import Clock
from syncline.core.errors import DecodeError, OverloadedError
from syncline.core.limits import NDN_CONTENT_PACKETS
from syncline.formats.ndn.names import Name
from syncline.formats.ndn.signing import Signer, Verifier
from syncline.networks.background import background
from syncline.networks.ndn.bell import Bell
from syncline.networks.ndn.commands import CommandGate
from syncline.networks.ndn.content import Admission, anything
from syncline.networks.ndn.doors import DoorOptions, Doors
from syncline.networks.ndn.endpoint import Endpoint
from syncline.networks.ndn.faces import Face
from syncline.networks.ndn.forwarder import Forwarder, Limits
from syncline.networks.ndn.management import Management
from syncline.networks.ndn.routes import Route
from syncline.networks.ndn.transports import Transport
from syncline.networks.ndn.uplinks import Uplinks

log = structlog.get_logger()
TICK_SECONDS: Final = 0.1
LINGER_SECONDS: Final = 2.0  # how long what waits may still be sent to a peer that says no more


class HubOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where to listen, whom to connect to, and caps."""

    doors: DoorOptions = DoorOptions()
    uplinks: tuple[str, ...] = ()
    limits: Limits = Limits()
    content_packets: int = NDN_CONTENT_PACKETS
    need_key: bool = False  # commands from this machine must be signed by a known key too


class Inside:
    """Implements `client.Attachment` for an application in the hub's process."""

    def __init__(self, hub: Hub, endpoint: Endpoint, face: Face) -> None:
        self._hub = hub
        self._face = face
        self.endpoint = endpoint

    async def register(self, prefix: Name) -> None:
        self._hub.forwarder.routes.add(prefix, Route(self._face.id))
        self._hub.uplinks.routes_changed(prefix)

    def unregister(self, prefix: Name) -> None:
        self._hub.forwarder.routes.remove(prefix, self._face.id, Route(self._face.id).origin)
        self._hub.uplinks.routes_changed(prefix)

    def peer(self, face: int) -> str:
        found = self._hub.forwarder.faces.get(face)
        return found.uri if found is not None else ""


class Hub:
    """A forwarder with its connections. Use `async with running(options, clock) as hub`."""

    def __init__(
        self,
        options: HubOptions,
        clock: Clock,
        tasks: TaskGroup,
        *,
        admit: Admission = anything,
        command_keys: Sequence[Verifier] = (),
        command_signer: Signer | None = None,
        random: Random | None = None,
    ) -> None:
        self.options = options
        self.random = random or SystemRandom()
        self.forwarder = Forwarder(
            admit=admit, limits=options.limits, content_packets=options.content_packets, random=self.random
        )
        self.addresses: dict[str, str] = {}  # what is listened on: tcp, udp, ws, unix
        self._clock = clock
        self._tasks = tasks
        self.uplinks = Uplinks(self.forwarder, clock, self.random, self.carry, command_signer)
        self.management = Management(
            self.forwarder,
            CommandGate(command_keys, need_key=options.need_key),
            clock.now,
            self.uplinks.routes_changed,
        )

    async def start(self) -> None:
        """Open the doors, then connect to others."""
        self._tasks.start_soon(self._tick)
        self.addresses = await Doors(self, self.options.doors, self._tasks).open()
        for uri in self.options.uplinks:
            self._tasks.start_soon(self.uplinks.hold, uri)

    def attach(self) -> Inside:
        """A place for an application in this process; it lives as long as the hub."""
        bell = Bell()
        endpoint = Endpoint(self.random, bell.ring)
        face = self.forwarder.add_face(
            "internal://", local=True, inside=True, notify=bell.ring, now=anyio.current_time()
        )
        self._tasks.start_soon(self._serve_endpoint, endpoint, face, bell)
        return Inside(self, endpoint, face)

    async def carry(self, transport: Transport, opened: Callable[[Face], None] = lambda face: None) -> None:
        """Move packets between a transport and the forwarder until either hangs up."""
        bell = Bell()
        try:
            face = self.forwarder.add_face(
                transport.uri, local=transport.local, notify=bell.ring, now=anyio.current_time()
            )
        except OverloadedError as error:
            log.warning("ndn_face_refused", peer=transport.uri, reason=error.message)
            await transport.aclose()
            return
        log.debug("ndn_face_up", face=face.id, peer=face.uri)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._read, transport, face, bell, tasks)
                opened(face)
                while not face.closed:
                    await bell.wait()
                    packets = face.take()
                    if packets:
                        await transport.send(packets)
                tasks.cancel_scope.cancel()
        except* (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the other side hung up while we were sending
        finally:
            self.drop(face)
            with anyio.CancelScope(shield=True):
                await transport.aclose()

    async def _read(self, transport: Transport, face: Face, bell: Bell, tasks: TaskGroup) -> None:
        try:
            while not face.closed:
                packets = await transport.receive()
                self.forwarder.receive(face, self.uplinks.tap(face, packets), anyio.current_time())
        except DecodeError as error:
            self.forwarder.malformed(face)
            log.warning("ndn_stream_unreadable", peer=face.uri, problem=str(error))
        except (OSError, anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        face.closed = True
        bell.ring()
        await anyio.sleep(LINGER_SECONDS)
        tasks.cancel_scope.cancel()  # it does not read either

    def drop(self, face: Face) -> None:
        """Forget a face and what came with it."""
        for prefix in self.forwarder.remove_face(face):
            self.uplinks.routes_changed(prefix)
        self.management.face_gone(face)
        log.debug("ndn_face_down", face=face.id, peer=face.uri, malformed=face.counters.malformed)

    async def _serve_endpoint(self, endpoint: Endpoint, face: Face, bell: Bell) -> None:
        try:
            while True:
                with anyio.move_on_at(endpoint.deadline):
                    await bell.wait()
                now = anyio.current_time()
                endpoint.tick(now)
                while endpoint.outgoing or face.outgoing:
                    self.forwarder.receive(face, endpoint.take(), now)
                    endpoint.receive(face.take(), now)
                await anyio.lowlevel.checkpoint()
        finally:
            self.drop(face)

    async def _tick(self) -> None:
        while True:
            await anyio.sleep(TICK_SECONDS)
            for prefix in self.forwarder.tick(anyio.current_time()):
                self.uplinks.routes_changed(prefix)


@asynccontextmanager
async def running(options: HubOptions, clock: Clock, **parts: object) -> AsyncIterator[Hub]:
    """A hub that runs for the length of the block."""
    async with background() as tasks:
        hub = Hub(options, clock, tasks, **parts)  # type: ignore[arg-type]
        await hub.start()
        yield hub
