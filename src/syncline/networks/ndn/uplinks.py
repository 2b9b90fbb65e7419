"""Connections to other forwarders: held open, announced to, and used as routes for what is not found here.

What applications registered here is registered there, so that Interests find their way back; sync Interests then reach the
members of a group on both sides. Loops end by their nonces.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Final, Protocol

import anyio
import structlog

from syncline.core.clock import Clock
from syncline.core.errors import OverloadedError, SynclineError
from syncline.core.retry import Backoff
from syncline.formats.ndn.names import Name, generic, text
from syncline.formats.ndn.signing import Signer
from syncline.networks.ndn.control import ControlParameters, ControlResponse
from syncline.networks.ndn.endpoint import Endpoint
from syncline.networks.ndn.faces import Face
from syncline.networks.ndn.forwarder import LOCALHOP, LOCALHOST, Forwarder
from syncline.networks.ndn.routes import CHILD_INHERIT, Route
from syncline.networks.ndn.transports import Transport, connect

log = structlog.get_logger()
ORIGIN: Final = 255  # a static route, in NFD's numbers
COST: Final = 100  # applications of this machine are nearer
REFRESH_SECONDS: Final = 60.0
_NFD: Final = generic(b"nfd")


class Carry(Protocol):
    def __call__(self, transport: Transport, opened: Callable[[Face], None]) -> Awaitable[None]: ...


class _Uplink:
    """One connection while it is up."""

    def __init__(self, face: Face, endpoint: Endpoint) -> None:
        self.face = face
        self.endpoint = endpoint
        self.announced: set[Name] = set()


class Uplinks:
    def __init__(
        self, forwarder: Forwarder, clock: Clock, random: Random, carry: Carry, signer: Signer | None = None
    ) -> None:
        self._forwarder = forwarder
        self._clock = clock
        self._random = random
        self._carry = carry
        self._signer = signer
        self._up: dict[int, _Uplink] = {}
        self._last_time = 0

    def __len__(self) -> int:
        return len(self._up)

    async def hold(self, uri: str) -> None:
        """Keep a connection to the forwarder at `uri`, for ever."""
        spans = Backoff(first=0.5, longest=30.0).spans(self._random)
        while True:
            try:
                transport = await connect(uri)
            except SynclineError as error:
                log.info("ndn_uplink_unreachable", uplink=uri, problem=error.message)
            else:
                spans = Backoff(first=0.5, longest=30.0).spans(self._random)
                await self._use(transport)
            await anyio.sleep(next(spans))

    async def _use(self, transport: Transport) -> None:
        link: list[_Uplink] = []

        def opened(face: Face) -> None:
            link.append(self._open(face))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._refresh, link)
            try:
                await self._carry(transport, opened)
            finally:
                for each in link:
                    self._up.pop(each.face.id, None)
                    each.endpoint.fail()
            tasks.cancel_scope.cancel()

    def _open(self, face: Face) -> _Uplink:
        endpoint = Endpoint(self._random)
        link = self._up[face.id] = _Uplink(face, endpoint)
        self._route(b"", face)
        for prefix, _ in self._forwarder.routes.entries():
            self._update(link, prefix)
        log.info("ndn_uplink_up", uplink=face.uri)
        return link

    async def _refresh(self, link: list[_Uplink]) -> None:
        """Announce again now and then, in case the other side forgot, and notice commands nobody answered."""
        waited = 0.0
        while True:
            await anyio.sleep(1.0)
            waited += 1.0
            for each in link:
                each.endpoint.tick(anyio.current_time())
                if waited >= REFRESH_SECONDS:
                    for prefix in sorted(each.announced):
                        self._command(each, "rib/register", prefix)
            waited = 0.0 if waited >= REFRESH_SECONDS else waited

    def routes_changed(self, prefix: Name) -> None:
        """Tell the others when a prefix appears here or is gone."""
        for link in list(self._up.values()):
            self._update(link, prefix)

    def tap(self, face: Face, packets: list[bytes]) -> list[bytes]:
        """Take answers to our own commands out of what an uplink brings; the rest is the forwarder's."""
        link = self._up.get(face.id)
        if link is None or not len(link.endpoint):
            return packets
        ours = [packet for packet in packets if _answers_command(packet)]
        link.endpoint.receive(ours, anyio.current_time())
        return [packet for packet in packets if packet not in ours]

    def _update(self, link: _Uplink, prefix: Name) -> None:
        here = any(route.face not in self._up for route in self._forwarder.routes.of(prefix))
        if prefix.startswith((LOCALHOST, LOCALHOP)) or here == (prefix in link.announced):
            return
        if here:
            link.announced.add(prefix)
            self._route(prefix, link.face)
            self._command(link, "rib/register", prefix)
        else:
            link.announced.discard(prefix)
            self._forwarder.routes.remove(prefix, link.face.id, ORIGIN)
            self._command(link, "rib/unregister", prefix)

    def _route(self, prefix: Name, face: Face) -> None:
        """What is announced to the other side is also asked for there."""
        try:
            self._forwarder.routes.add(prefix, Route(face.id, ORIGIN, COST, CHILD_INHERIT))
        except OverloadedError as error:
            log.warning("ndn_route_refused", prefix=text(prefix), reason=error.message)

    def _command(self, link: _Uplink, verb: str, prefix: Name, *, keyed: bool = False) -> None:
        """Give the other forwarder a command; on one machine a digest mostly suffices, else our key must be known."""
        keyed = self._signer is not None and (keyed or not link.face.local)

        def answered(response: ControlResponse | None) -> None:
            if response is not None and response.code == 403 and not keyed and self._signer is not None:
                self._command(link, verb, prefix, keyed=True)
            elif response is None or response.code != 200:
                told = "no answer" if response is None else f"{response.code} {response.text}"
                log.warning("ndn_uplink_refuses", uplink=link.face.uri, command=verb, prefix=text(prefix), answer=told)

        self._last_time = max(self._last_time + 1, self._clock.now() // 1_000)  # commands have distinct times
        link.endpoint.command(
            verb,
            ControlParameters(name=prefix, origin=0, cost=COST, flags=CHILD_INHERIT),
            answered,
            anyio.current_time(),
            self._last_time,
            local=link.face.local,
            signer=self._signer if keyed else None,
        )
        for packet in link.endpoint.take():
            link.face.send(packet)


def _answers_command(packet: bytes) -> bool:
    """Whether a packet looks like the answer to a command: the names of commands stand near its start."""
    return packet[:1] == b"\x06" and _NFD in packet[:32]
