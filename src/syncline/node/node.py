"""The node: one journal, the protocols that feed it, and their orderly start and stop.

Wires receive, judge, append and deliver together. The HTTP API is in `api.py`; what a protocol does on its network is in
that protocol's service.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, cast

import anyio
import anyio.to_thread
import structlog
from anyio.abc import TaskGroup

from syncline.core.clock import Clock, SystemClock
from syncline.core.errors import UnavailableError, UsageError
from syncline.core.keys import NodeKey
from syncline.core.limits import HOUR
from syncline.core.ports import Archive, Ground, Networks, ProtocolPlugin, Service
from syncline.core.record import Record
from syncline.core.settings import Settings
from syncline.journal import Drainer, Journal, target_of
from syncline.node.deliver import Deliveries
from syncline.node.judge import Judges
from syncline.node.networks import NodeNetworks
from syncline.node.plugins import protocol_plugins
from syncline.node.receive import Receiver

if TYPE_CHECKING:
    from syncline.protocols.sds.service import Following, Found, SdsService, Taken, Where

log = structlog.get_logger()
State = Literal["starting", "ready", "stopping", "stopped"]


class Node:
    """A running node. Use `async with running(settings) as node`."""

    def __init__(
        self,
        settings: Settings,
        *,
        key: NodeKey | None = None,
        clock: Clock | None = None,
        plugins: Mapping[str, ProtocolPlugin] | None = None,
        archive: Archive | None = None,
        networks: Networks | None = None,
    ) -> None:
        self.settings = settings
        self.key = key or NodeKey.load(settings.key_file)
        self.clock = clock or SystemClock()
        self.state: State = "starting"
        self.started_at = self.clock.now()
        self._plugins = dict(protocol_plugins(settings.node.protocols) if plugins is None else plugins)
        self._archive = archive
        self.networks = networks or NodeNetworks(self.key, self.clock, settings.libp2p)
        self.journal = Journal.open(
            settings.journal_file, node=self.key.peer_id, clock=self.clock, settings=settings.journal
        )
        self.judges = Judges({})
        self.receiver = Receiver(self.judges, self.journal)
        self.deliveries = Deliveries(self.journal)
        self.services: dict[str, Service] = {}
        try:
            target = target_of(settings.segments, settings.segments_folder)
            self.drainer = Drainer(self.journal, target, settings.segments)
            for name, plugin in self._plugins.items():
                ground = self._ground(name)
                self.judges.add(name, plugin.judge(ground))
                self.services[name] = plugin.service(ground)
        except BaseException:  # there will be nobody to stop this node
            self.journal.close()
            raise

    def _ground(self, protocol: str) -> Ground:
        return Ground(
            key=self.key,
            clock=self.clock,
            sink=self.receiver,
            records=self.journal,
            state=self.journal,
            settings=self.settings.plugin_section(protocol),
            networks=self.networks,
            archive=self._archive,
            public_url=self.settings.node.public_url,
            retention=int(self.settings.journal.retention_hours * HOUR),
            folder=self.settings.folder,
        )

    def service(self, protocol: str) -> Service:
        try:
            return self.services[protocol]
        except KeyError:
            raise UsageError(
                f"this node does not speak {protocol!r}",
                hint=f"it speaks: {', '.join(sorted(self.services)) or 'none'}",
            ) from None

    # space data, by SDS exchange; what else a protocol can do is in its service

    async def publish(self, schema: str, data: Mapping[str, Any], *, ttl: int = 0) -> Taken:
        """Sign the fields of one message (`"OMM", {"NORAD_CAT_ID": 25544, …}`), keep it and give it to the network.

        Returns it as it was kept. Raises UsageError for fields the schema does not have, RefusedError when the rate of
        the network is used up.
        """
        return await self._sds.send(schema, data, ttl=ttl)

    def subscribe(self, schema: str, where: Where = None, *, after: int | None = None) -> Following:
        """Messages of a schema that this node takes in and that match, to be iterated over for ever.

        From now on, or from after the record of this lsn; each once and in order, however late they are asked for.
        """
        return self._sds.subscribe(schema, where, after=after)

    async def query(self, peer: str, schema: str, where: Where = None, **options: Any) -> list[Found]:
        """Messages that a peer holds, named by its PeerID or an address, and whether each proves itself.

        Options: `limit` (100), `offset`, `order_by`, `order` ("asc", "desc"), `signatures` (True), `keep` (False). Raises
        UnreachableError when the peer cannot be reached, RefusedError when it says no.
        """
        return await self._sds.query(peer, schema, where, **options)

    @property
    def _sds(self) -> SdsService:
        return cast("SdsService", self.service("sds"))

    def decoded(self, record: Record) -> Mapping[str, Any]:
        """What a record says, in the words of its protocol."""
        plugin = self._plugins.get(record.protocol)
        return plugin.decoded(record) if plugin is not None and record.raw is not None else {}

    def statistics(self) -> dict[str, Any]:
        """Counters and gauges of every part."""
        return {
            "state": self.state,
            "followers": self.deliveries.followers,
            "judge_failures": self.judges.failures,
            "verdicts": {"/".join(key): count for key, count in sorted(self.receiver.verdicts.items())},
            "bytes": dict(self.receiver.bytes),
            "journal": self.journal.statistics(),
            "segments": self.drainer.statistics(),
            "libp2p": dict(self.networks.statistics()),
            "protocols": {name: dict(service.statistics()) for name, service in self.services.items()},
        }

    async def start(self, tasks: TaskGroup) -> None:
        """Start sealing and the protocols; returns when every protocol says it can be used."""
        tasks.start_soon(self.journal.damage)  # a node that can keep nothing any more must not look as if it ran
        tasks.start_soon(self.drainer.run)
        await tasks.start(self.networks.run)
        for name, service in self.services.items():
            await tasks.start(_run_service, name, service)
        self.state = "ready"
        log.info("node_ready", node=self.key.peer_id, epoch=self.journal.epoch, protocols=sorted(self.services))

    async def stop(self) -> None:
        """Take nothing more in, seal what was kept, close the journal."""
        self.state = "stopping"
        self.receiver.close()
        try:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self.drainer.drain)
        except UnavailableError as error:  # the target is away; the next start seals the rest
            log.warning("segments_not_sealed", error=str(error))
        finally:
            self.journal.close()
        self.state = "stopped"
        log.info("node_stopped", node=self.key.peer_id)


@asynccontextmanager
async def running(settings: Settings, **parts: Any) -> AsyncIterator[Node]:
    """A node that runs for the length of the block and stops in order after it."""
    node = Node(settings, **parts)
    try:
        async with anyio.create_task_group() as tasks:
            await node.start(tasks)
            try:
                yield node
            finally:
                node.state = "stopping"
                tasks.cancel_scope.cancel()
    finally:
        await node.stop()


async def _run_service(name: str, service: Service, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    def started() -> None:
        log.info("protocol_ready", protocol=name)
        task_status.started()

    await service.run(started=started)
