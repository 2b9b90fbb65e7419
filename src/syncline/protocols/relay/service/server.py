"""The listening side: every accepted stream becomes a client's connection or a server's link, read in chunks.

One task reads and one writes per socket; a reader waits while its client has too much on the way, so nobody can make the
server hold more than it can commit.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import structlog
from anyio.abc import ByteStream, Listener, SocketAttribute
from anyio.streams.tls import TLSListener

from syncline.core.clock import Clock
from syncline.core.errors import ClosedError, RefusedError, UnreachableError, UsageError
from syncline.core.keys import public_of_did_key
from syncline.core.limits import RELAY_BACKLOG_BYTES, RELAY_IN_FLIGHT, RELAY_REQUEST_BYTES, RELAY_UNSENT_BYTES
from syncline.networks.accepting import PatientListener
from syncline.networks.signal import Signal
from syncline.networks.websocket import Socket, accept
from syncline.protocols.relay.service.doors import Doors
from syncline.protocols.relay.service.driver import Driver
from syncline.protocols.relay.session.handshake import Trust
from syncline.protocols.relay.session.link import Link
from syncline.protocols.relay.session.outbox import Port
from syncline.protocols.relay.settings import RelaySettings

log = structlog.get_logger()
UNAUTHORISED: Final = 3000  # the close code clients know
OPEN_SECONDS: Final = 10.0
PING_SECONDS: Final = 20.0  # clients give a server up after 35 s without a word
SILENT_SECONDS: Final = 60.0


class Conversation:
    """One open socket and its port in the session."""

    def __init__(self, socket: Socket, port: Port, receive: Callable[[bytes, bool], None], driver: Driver) -> None:
        self.port = port
        self._socket = socket
        self._receive = receive
        self._driver = driver
        self._queue = driver.hub.queue
        self._signal = Signal()
        self._waiting = bool(port.frames)
        self._scope = anyio.CancelScope()
        self.heard_at = self.pinged_at = 0.0
        self.sending_since: float | None = None

    async def run(self, clock: Clock) -> None:
        """Until either side ends it."""
        self.heard_at = self.pinged_at = clock.monotonic()
        self._clock = clock
        self._driver.attach(self.port, self._wake)
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._write)
                    await self._read()
                    tasks.cancel_scope.cancel()
        finally:
            self._driver.detach(self.port)
            end = self.port.end or (1000, "")
            await self._socket.close(end[0], end[1], linger=1.0)

    def _wake(self) -> None:
        """Send at once if the machine takes it; else the writer waits for it."""
        if self.sending_since is not None or self.port.end is not None or not self._sent_now():
            self._waiting = True
            self._signal.set()

    def _sent_now(self) -> bool:
        try:
            self._socket.put_all(self.port.take())
        except ClosedError:
            return False
        return self._socket.flush_now()

    async def _read(self) -> None:
        port, queue, receive = self.port, self._queue, self._receive
        try:
            while True:
                messages = await self._socket.read()
                self.heard_at = self._clock.monotonic()
                for is_text, payload in messages:
                    receive(payload, is_text)
                    if (
                        port.in_flight >= RELAY_IN_FLIGHT
                        or port.waiting_bytes > RELAY_UNSENT_BYTES
                        or queue.bytes > RELAY_BACKLOG_BYTES
                    ):
                        self._driver.pump()
                        await self._room()
                self._driver.pump()
        except (ClosedError, UnreachableError):
            pass

    def _is_full(self) -> bool:
        port = self.port
        return port.in_flight >= RELAY_IN_FLIGHT or port.waiting_bytes > RELAY_UNSENT_BYTES or self._queue.is_full

    async def _room(self) -> None:
        """Wait until what is on the way has become less. The writer makes progress too."""
        while self._is_full():
            await self._driver.progress.wait()

    async def _write(self) -> None:
        try:
            while True:
                while not self._waiting:
                    await self._signal.wait()
                self._waiting = False
                self._socket.put_all(self.port.take())
                self.sending_since = self._clock.monotonic()
                await self._socket.flush()
                self.sending_since = None
                self._driver.progress.set()
                if self.port.end is not None and not self.port.frames:
                    self._scope.cancel()
        except (ClosedError, UnreachableError):
            self._scope.cancel()

    def tick(self, now: float) -> None:
        """Ping, and end what is silent or does not read."""
        if now - self.heard_at > SILENT_SECONDS:
            self.port.close(1001, f"silent for {SILENT_SECONDS:.0f} s")
        elif self.sending_since is not None and now - self.sending_since > SILENT_SECONDS:
            self._scope.cancel()
        elif now - self.pinged_at >= PING_SECONDS:
            self.pinged_at = now
            self._socket.ping()
            self._wake()


class Server:
    """Listens, and holds every open conversation."""

    def __init__(self, settings: RelaySettings, driver: Driver, clock: Clock, trust: Trust) -> None:
        self._settings = settings
        self._driver = driver
        self._clock = clock
        self._trust = trust
        self._conversations: set[Conversation] = set()
        self._ended = Signal()
        self._listener: Listener[ByteStream] | None = None
        self.doors: Doors | None = None
        self.faults = 0  # of ours, each of which ended a connection

    async def bind(self, tls: ssl.SSLContext | None) -> tuple[str, int]:
        """Begin to listen; returns where."""
        settings = self._settings
        try:
            listener = await anyio.create_tcp_listener(local_host=settings.host, local_port=settings.port)
        except OSError as error:
            raise UsageError(
                f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}",
                hint="choose another with --set relay.port=0",
            ) from None
        patient = PatientListener(listener)
        self._listener = _with_tls(patient, tls) if tls is not None else patient
        where = listener.extra(SocketAttribute.local_address)  # noqa: S610 - not Django's
        return str(where[0]), int(where[1])

    async def serve(self, doors: Doors) -> None:
        """Take connections in until cancelled."""
        assert self._listener is not None
        self.doors = doors
        async with self._listener:
            await self._listener.serve(self._handle)

    def tick(self) -> None:
        now = self._clock.monotonic()
        for conversation in list(self._conversations):
            conversation.tick(now)

    async def _handle(self, stream: ByteStream) -> None:
        assert self.doors is not None
        with self.doors.visit(_address(stream)) as visit:
            try:
                socket, request = await accept(
                    stream, visit.decide, max_message=RELAY_REQUEST_BYTES, seconds=OPEN_SECONDS
                )
            except (ClosedError, UnreachableError):
                await stream.aclose()
                return
            try:
                if self.doors.is_link(request):
                    await self.link(socket, self._trust, dialed=False)
                else:
                    await self._client(socket, self.doors.client(request))
            except RefusedError as error:
                await socket.close(UNAUTHORISED, f"{error.reason.value}: {error.message}"[:120], linger=1.0)
            except Exception:  # a fault of ours ends one connection, not the server
                self.faults += 1
                log.exception("relay_fault", path=request.path.partition("?")[0])
                await socket.close(1011, "a fault of the server")

    async def _client(self, socket: Socket, did: str) -> None:
        hub = self._driver.hub
        cursors = {} if hub.knows(did) else await self._driver.cursors(public_of_did_key(did))
        connection = hub.connect(did, cursors)

        try:
            await self._converse(Conversation(socket, connection, partial(hub.receive, connection), self._driver))
        finally:
            hub.disconnect(connection)
            self._driver.pump()

    async def link(self, socket: Socket, trust: Trust, *, dialed: bool) -> Link:
        """Run a link on an open socket until it ends."""
        links = self._driver.hub.links
        link = self._driver.hub.open_link(trust, dialed=dialed)

        try:
            await self._converse(Conversation(socket, link, partial(links.receive, link), self._driver))
        finally:
            links.end(link)
            self._driver.pump()
            log.info("relay_link_ended", peer=link.peer, dialed=dialed, end=link.end)
        return link

    async def _converse(self, conversation: Conversation) -> None:
        self._conversations.add(conversation)
        self._driver.pump()
        try:
            await conversation.run(self._clock)
        finally:
            self._conversations.discard(conversation)
            self._ended.set()

    def close_all(self, code: int, reason: str) -> None:
        """End every conversation after what is waiting for it has been sent."""
        for conversation in self._conversations:
            conversation.port.close(code, reason)
        self._driver.pump()

    async def all_ended(self) -> None:
        while self._conversations:
            await self._ended.wait()

    @property
    def open(self) -> int:
        return len(self._conversations)


def _with_tls(listener: Listener[anyio.abc.SocketStream], tls: ssl.SSLContext) -> Listener[ByteStream]:
    return TLSListener(listener, tls, standard_compatible=False, handshake_timeout=OPEN_SECONDS)


def _address(stream: ByteStream) -> str:
    """Where a connection comes from, to count by; empty if it has gone already."""
    try:
        remote = stream.extra(SocketAttribute.remote_address, "")  # noqa: S610 - not Django's
    except (OSError, anyio.ClosedResourceError):
        return ""
    return remote if isinstance(remote, str) else remote[0]


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"the relay's certificate cannot be used: {error}", about=str(certificate)) from None
    return context
