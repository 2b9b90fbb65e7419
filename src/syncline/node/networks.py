"""The networks a node's protocols share: one libp2p host, started when the first protocol asks for it.

Implements `core.ports.Networks`. Which protocol does what on the host is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import anyio
import structlog
from anyio.abc import TaskStatus

from syncline.core.clock import Clock
from syncline.core.errors import ClosedError
from syncline.core.keys import NodeKey
from syncline.core.settings import Libp2pSettings

if TYPE_CHECKING:  # only a node that uses libp2p pays for importing it
    from syncline.networks.libp2p.host import HostSettings, Libp2pHost

log = structlog.get_logger()


class NodeNetworks:
    """The shared networks of one node."""

    def __init__(self, key: NodeKey, clock: Clock, settings: Libp2pSettings) -> None:
        self._key, self._clock, self._settings = key, clock, settings
        self._wanted = anyio.Event()
        self._ready = anyio.Event()
        self._host: Libp2pHost | None = None

    async def libp2p(self) -> Libp2pHost:
        self._wanted.set()
        await self._ready.wait()
        if self._host is None:
            raise ClosedError("the node is shutting down")
        return self._host

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        task_status.started()
        try:
            await self._wanted.wait()
            await self._run_host()
        finally:
            self._host = None
            self._ready.set()

    async def _run_host(self) -> None:
        from syncline.networks.libp2p.host import running_host

        async with running_host(self._key, self._host_settings(), clock=self._clock) as host:
            self._host = host
            self._ready.set()
            log.info("libp2p_ready", addresses=list(host.addresses))
            await anyio.sleep_forever()

    def _host_settings(self) -> HostSettings:
        from syncline.networks.libp2p.guard import Limits
        from syncline.networks.libp2p.host import HostSettings

        given = self._settings
        return HostSettings(
            listen=tuple(given.listen),
            announce=tuple(given.announce),
            bootstrap=tuple(given.bootstrap),
            limits=Limits(connections=given.connections, per_address=given.connections_per_address),
            slow_seconds=given.slow_seconds,
        )

    def addresses(self) -> Sequence[str]:
        return self._host.addresses if self._host is not None else ()

    def statistics(self) -> Mapping[str, int | float]:
        return self._host.statistics() if self._host is not None else {}
