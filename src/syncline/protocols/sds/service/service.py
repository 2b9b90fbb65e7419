"""SDS exchange in a node: listens on the topics, answers streams, publishes, asks peers, and catches up with them.

Everything is handed to the sink before it is decided, acknowledged, forwarded or told to followers. The parts are in the
files beside this one; here they are put together, and here is the API for programs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import uuid4

import anyio
import msgspec

from syncline.core import limits
from syncline.core.errors import ClosedError, OverloadedError, UsageError
from syncline.core.ports import Ground, StateChange, WebMount
from syncline.core.record import Arrival, Incoming
from syncline.core.verdict import Reason, ignore
from syncline.networks.host import Host, Stream
from syncline.protocols.sds.catalogue import plain_name
from syncline.protocols.sds.filters import from_where
from syncline.protocols.sds.rules import PROTOCOL, judge, topic_of
from syncline.protocols.sds.service.answering import Answering
from syncline.protocols.sds.service.asking import FRAMING, Found
from syncline.protocols.sds.service.catchup import CatchUp, Caught
from syncline.protocols.sds.service.gossip import GossipIntake
from syncline.protocols.sds.service.holdings import Holdings
from syncline.protocols.sds.service.publishing import Publisher, Request, encoded
from syncline.protocols.sds.service.questions import Pushes, Questions, Where, condition_of
from syncline.protocols.sds.service.taken import Following, News, Taken
from syncline.protocols.sds.session import Responder
from syncline.protocols.sds.settings import SdsSettings
from syncline.protocols.sds.wire import PROTOCOL_ID, Publish, Query, Subscribe

STREAMS_PER_PEER: Final = 16
STREAM_SECONDS: Final = 60.0


class SdsService:
    """Implements `core.ports.Service`, and is SDS exchange for programs in the same process."""

    def __init__(self, ground: Ground) -> None:
        settings: SdsSettings = ground.settings
        self._ground = ground
        self._context = settings.context()
        self._terms = settings.terms()
        self._quotas = settings.quotas()
        self._sync_seconds = settings.sync_seconds
        self._news = News(ground.records)
        self._gossip = GossipIntake(ground, self._news, self._context, publish_rate=settings.publish_rate)
        self._publisher = Publisher(ground, self._news, self._quotas, settings.network)
        self._holdings = Holdings(ground)
        self._questions = Questions(ground, self._news, self._holdings, self._context, settings.query_seconds)
        self._running: Host | None = None
        self._catch_up: CatchUp | None = None
        self._streams = 0
        self._blamed = 0
        self._synced = 0

    # the life of the service

    async def run(self, *, started: Callable[[], None]) -> None:
        if self._ground.networks is None:
            raise UsageError("SDS exchange needs a libp2p host, and this node has none")
        host: Host = await self._ground.networks.libp2p()
        network, schemas = self._context.network, self._context.schemas
        self._catch_up = CatchUp(self._ground, host, self._news, network=network, schemas=schemas)
        self._running = host
        host.handle_stream(PROTOCOL_ID, self._answer, FRAMING, timeout=STREAM_SECONDS, per_peer=STREAMS_PER_PEER)
        host.watch(self._catch_up.met)
        try:
            async with anyio.create_task_group() as tasks:
                for schema in sorted(schemas):
                    await tasks.start(self._gossip.listen, host, topic_of(network, schema))
                if self._sync_seconds:
                    tasks.start_soon(self._catch_up.keep_up, self._sync_seconds)
                started()
        finally:
            self._running = None

    @property
    def _host(self) -> Host:
        if self._running is None:
            raise ClosedError("SDS exchange is not running")
        return self._running

    def peers(self) -> list[Mapping[str, Any]]:
        return [] if self._running is None else [msgspec.to_builtins(peer) for peer in self._running.peers()]

    def statistics(self) -> Mapping[str, int | float]:
        return {
            "published": self._publisher.published,
            "gossip_received": self._gossip.received,
            "gossip_overloaded": self._gossip.overloaded,
            "streams": self._streams,
            "stream_faults": self._blamed,
            "subscriptions": self._quotas.subscriptions,
            "synced": self._synced,
            "sync_failed": self._catch_up.failed if self._catch_up else 0,
        }

    def web(self) -> WebMount | None:
        from syncline.protocols.sds.service.web import mount

        return mount(self)

    # streams that peers opened

    async def _answer(self, stream: Stream) -> None:
        self._streams += 1
        session = Responder(
            stream.peer,
            self._terms,
            self._quotas,
            newest=lambda: self._news.newest,
            wall=self._ground.clock.now,
            archived=self._holdings.archived,
        )
        answering = Answering(
            stream,
            session,
            clock=self._ground.clock,
            holdings=self._holdings,
            news=self._news,
            store=self._store,
            tell=self._tell,
            blame=lambda why: self._blame(stream.peer),
        )
        await answering.run()

    def _blame(self, peer: str) -> None:
        self._blamed += 1
        self._host.blame(peer)

    async def _store(self, message: Publish, raw: bytes, peer: str) -> Arrival:
        """A publish on a stream: kept like any other. While the disk is full it is refused for now."""
        topic, now = topic_of(self._context.network, message.schema), self._ground.clock.now()
        incoming = Incoming(protocol=PROTOCOL, topic=topic, raw=raw, peer=peer, received_at=now)
        try:
            [receipt] = await self._ground.sink.receive([incoming])
        except OverloadedError:
            return judge(incoming, self._context).judged(ignore(Reason.OVERLOADED))
        self._news.tell([receipt])
        return receipt.arrival

    async def _tell(self, message: Publish, raw: bytes) -> None:
        await self._host.gossip.publish(topic_of(self._context.network, message.schema), raw)

    # publishing

    async def publish(self, request: Mapping[str, Any], state: Sequence[StateChange] = ()) -> Mapping[str, Any]:
        wanted = Request.read(request)
        receipt, sent = await self._publisher.publish(
            self._host,
            wanted.schema,
            wanted.encoded(),
            ttl=wanted.ttl,
            message_id=wanted.message_id,
            state=state,
        )
        return {
            "id": receipt.arrival.id.hex(),
            "schema": plain_name(wanted.schema),
            "topic": receipt.arrival.topic,
            "record": str(receipt.record.name) if receipt.record else None,
            "sent": sent,
        }

    async def send(self, schema: str, data: Mapping[str, Any], *, ttl: int = 0) -> Taken:
        """Publish the fields of one message; returns it as it was kept."""
        receipt, _ = await self._publisher.publish(self._host, schema, encoded(schema, data), ttl=ttl, message_id="")
        assert receipt.record is not None
        return Taken.of(receipt.record)

    # following and asking

    def subscribe(self, schema: str, where: Where = None, *, after: int | None = None) -> Following:
        """Records of a schema that this node takes in and that match: from now on, or after an lsn; for ever."""
        start = self._news.newest if after is None else after
        return Following(self._news, topic_of(self._context.network, schema), condition_of(where, schema), start)

    async def query(
        self,
        peer: str,
        schema: str,
        where: Where = None,
        *,
        limit: int = limits.SDS_PAGE_DEFAULT,
        offset: int = 0,
        order_by: str = "",
        order: str = "",
        signatures: bool = True,
        keep: bool = False,
    ) -> list[Found]:
        """Records that a peer holds, which is named by its PeerID or an address.

        With `keep`, those with a good signature are kept here, too. Raises UnreachableError when the peer cannot be
        reached, RefusedError when it says no.
        """
        condition_of(where, schema)  # a mistake is better found here than by the peer
        query = _query(schema, where, limit, offset, order_by, order, signatures=signatures)
        peer = await self._reached(peer)
        found = await self._questions.query(self._host, peer, query)
        if keep:
            await self._questions.keep(peer, found)
        return found

    async def find(
        self,
        schema: str,
        where: Where = None,
        *,
        limit: int = limits.SDS_PAGE_DEFAULT,
        offset: int = 0,
        order_by: str = "",
        order: str = "",
    ) -> list[Found]:
        """Records this node holds itself, found as a peer's query would find them."""
        condition_of(where, schema)
        return await self._questions.find(_query(schema, where, limit, offset, order_by, order, signatures=True))

    @asynccontextmanager
    async def follow(
        self, peer: str, schemas: Sequence[str], where: Where = None, *, history: int = 0
    ) -> AsyncIterator[Pushes]:
        """Subscribe at a peer for the length of the block; what it pushes is kept, and iterated over."""
        for schema in schemas:
            condition_of(where, schema)
        subscribe = Subscribe(
            subscription_id=uuid4().hex,
            schemas=tuple(schemas),
            filter=from_where(where),
            include_historical=history > 0,
            historical_limit=history,
        )
        async with self._questions.follow(self._host, await self._reached(peer), subscribe) as pushes:
            yield pushes

    async def sync(self, peer: str) -> Caught:
        """Ask a peer for all that it holds and we do not."""
        if self._catch_up is None:
            raise ClosedError("SDS exchange is not running")
        caught = await self._catch_up.run(await self._reached(peer), thorough=True)
        self._synced += caught.accepted
        return caught

    async def _reached(self, peer: str) -> str:
        """The PeerID of a peer; if it is named by an address, that is dialled."""
        return await self._host.connect(peer) if peer.startswith("/") else peer


def _query(schema: str, where: Where, limit: int, offset: int, order_by: str, order: str, *, signatures: bool) -> Query:
    if not 0 < limit < 2**32 or not 0 <= offset <= limits.SDS_OFFSET_MAX:
        raise UsageError(f"a limit is positive, and an offset at most {limits.SDS_OFFSET_MAX}", about=schema)
    return Query(
        schema=plain_name(schema),
        filter=from_where(where),
        order_by=order_by,
        order=order,
        limit=limit,
        offset=offset,
        include_signatures=signatures,
    )
