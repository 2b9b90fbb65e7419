"""The service: runs the session on FloodSub, the journal and a header source. Implements `core.ports.Service`.

Every notification is handed to the node's sink, and only after the commit is it forwarded, credited and told to
listeners. Publishing is at most once per height, across crashes too: the height is marked on disk before anything leaves.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any, Final

import anyio
import msgspec
import structlog

from syncline.core.crash import crash_point
from syncline.core.errors import (
    ClosedError,
    ConflictError,
    DecodeError,
    OverloadedError,
    RefusedError,
    UnavailableError,
    UsageError,
)
from syncline.core.limits import BAN_SECONDS, FAULTS_FORGIVEN, SHREX_WAITERS
from syncline.core.ports import Ground, StateChange, WebMount
from syncline.core.record import Direction, Incoming
from syncline.core.verdict import Reason, Verdict, ignore
from syncline.networks.host import Cut, Delivery, Host, PeerEvent
from syncline.networks.signal import Signal
from syncline.protocols.shrex.rules.judge import PROTOCOL, PUBLISHED_SPACE, RESULTS_TOPIC, height_key
from syncline.protocols.shrex.rules.notifications import judge_fields, judge_payload
from syncline.protocols.shrex.service.follow import Follower
from syncline.protocols.shrex.service.listen import Listeners, Subscription
from syncline.protocols.shrex.service.sources import HeaderSource, open_source
from syncline.protocols.shrex.service.validator import MessageValidator
from syncline.protocols.shrex.session.peers import Offer, PeerManager
from syncline.protocols.shrex.session.session import Action, CutPeer, Session, Settle
from syncline.protocols.shrex.settings import ShrexSettings
from syncline.protocols.shrex.wire.notification import HASH_BYTES, HEIGHT_MAX, Notification, encode, parse_hash
from syncline.protocols.shrex.wire.result import Outcome, PeerResult
from syncline.protocols.shrex.wire.result import encode as encode_result

log = structlog.get_logger()
TICK_SECONDS: Final = 1.0
RESULTS_QUEUE: Final = 1_024
Done = Callable[[Outcome], None]


class _Ticket(msgspec.Struct, frozen=True):
    """A notification on its way to a decision."""

    delivery: Any  # networks.host.Delivery
    notification: Notification | None
    received_at: int


class ShrexService:
    """ShrEx/Sub on a node."""

    def __init__(self, ground: Ground, source: HeaderSource | None = None) -> None:
        settings = ground.settings
        assert isinstance(settings, ShrexSettings)
        self._ground, self._settings = ground, settings
        self._source = source or open_source(settings.headers, settings.headers_token, ground.folder)
        self._roots = settings.roots
        self.session = Session(
            PeerManager(settings.peer_limits),
            validation_seconds=settings.validation_seconds,
            refused_roots=self._roots,
        )
        self.validator = MessageValidator(self.session)
        self.listeners = Listeners()
        self.follower = Follower(
            ground, self._source, settings.trusted, poll_seconds=settings.poll_seconds, on_header=self._on_header
        )
        self._host: Host | None = None
        self._changed = Signal()  # somebody was credited or discovered
        self._waiters = 0
        self._results: deque[PeerResult] = deque()
        self._results_ready = Signal()
        self._connected: set[str] = set()
        self._announced: Counter[str] = Counter()  # of connected peers
        self.counts: Counter[str] = Counter()

    # life

    async def run(self, *, started: Callable[[], None]) -> None:
        if self._ground.networks is None:
            raise UsageError("ShrEx needs a node with networks")
        host: Host = await self._ground.networks.libp2p()
        self._host = host
        host.watch(self._peer_changed)
        self._connected = {info.peer for info in host.peers()}
        await self.follower.restore()
        # ShrEx/Sub: subscribers MUST maintain an active subscription to the topic
        subscribed = host.flood.subscribe(
            self._settings.topic, forward=self._settings.relay, repeats=True, refused=True
        )
        try:
            async with subscribed as subscription, anyio.create_task_group() as tasks:
                tasks.start_soon(self.follower.run)
                tasks.start_soon(self._tick)
                tasks.start_soon(self._keep_results)
                started()
                async for batch in subscription:
                    await self._take(batch)
        finally:
            self._host = None
            self.listeners.close()
            with anyio.CancelScope(shield=True):
                await self._source.close()

    def _peer_changed(self, event: PeerEvent) -> None:
        if event.connected:
            self._connected.add(event.peer)
            return
        self._connected.discard(event.peer)
        self.session.manager.left(event.peer)
        self._announced.pop(event.peer, None)

    async def _tick(self) -> None:
        while True:
            await anyio.sleep(TICK_SECONDS)
            now = self._ground.clock.monotonic()
            await self._act(self.session.tick(now))
            self._changed.set()

    async def _on_header(self, height: int, data_hash: bytes) -> None:
        await self._act(self.session.header(height, data_hash, self._ground.clock.monotonic()))

    # receiving

    async def _take(self, batch: Sequence[Delivery]) -> None:
        received_at, now = self._ground.clock.now(), self._ground.clock.monotonic()
        actions: list[Action] = []
        for delivery in batch:
            actions += self._arrived(delivery, received_at, now)
        await self._act(actions)

    def _arrived(self, delivery: Delivery, received_at: int, now: float) -> list[Action]:
        if delivery.verdict is not None:  # pubsub refused it; it is kept with the reason
            return [Settle(_Ticket(delivery, None, received_at), delivery.verdict)]
        notification, verdict = judge_payload(delivery.message.data)
        ticket = _Ticket(delivery, notification, received_at)
        if notification is None or not verdict.accepted:
            return [Settle(ticket, verdict)]
        return self.session.arrived(ticket, delivery.forwarder, notification, now)

    async def _act(self, actions: Sequence[Action]) -> None:
        settles = [action for action in actions if isinstance(action, Settle)]
        followed = await self._settle(settles) if settles else []
        for action in (*actions, *followed):
            if isinstance(action, CutPeer) and self._host is not None:
                await self._host.disconnect(action.peer, Cut.MISBEHAVING, ban_seconds=BAN_SECONDS)

    async def _settle(self, settles: Sequence[Settle]) -> list[Action]:
        """Have decided notifications judged and kept, then act on the verdicts."""
        try:
            receipts = await self._ground.sink.receive([self._incoming(settle.ticket) for settle in settles])
        except UnavailableError as error:  # disk or node: not the peers' fault
            self.counts["not_kept"] += len(settles)
            log.warning("shrex_not_kept", error=str(error), count=len(settles))
            for settle in settles:
                settle.ticket.delivery.decide(ignore(Reason.OVERLOADED))
            return []
        followed: list[Action] = []
        for settle, receipt in zip(settles, receipts, strict=True):
            verdict = Verdict(receipt.arrival.verdict, receipt.arrival.reason)
            settle.ticket.delivery.decide(verdict)
            # A copy that another peer brought is no news, but as good an announcement as the first.
            followed += self._settled(settle.ticket, settle.verdict if verdict.reason is Reason.DUPLICATE else verdict)
        return followed

    def _settled(self, ticket: _Ticket, verdict: Verdict) -> list[Action]:
        self.counts[f"{verdict.outcome}"] += 1
        notification, peer = ticket.notification, ticket.delivery.forwarder
        if notification is None:
            return []
        if verdict.accepted:
            self._tell(notification)
            if peer not in self._connected:
                return []  # it left while its announcement waited: crediting it would keep it in the pools for ever
            self._announced[peer] += 1
        return self.session.settled(peer, notification, verdict)

    def _tell(self, notification: Notification) -> None:
        # ShrEx/Sub: only validated notifications SHALL be distributed to registered listeners
        if self.session.is_news(notification):
            self.listeners.tell(notification)
        self._changed.set()

    def _incoming(self, ticket: _Ticket) -> Incoming:
        return Incoming(
            protocol=PROTOCOL,
            topic=self._settings.topic,
            raw=ticket.delivery.message.raw,
            peer=ticket.delivery.forwarder,
            received_at=ticket.received_at,
        )

    def subscribe(self) -> Subscription:
        """Listen to validated notifications.

        # ShrEx/Sub: the Subscribe method MUST return a valid subscription or an error
        """
        return self.listeners.subscribe()

    # publishing

    async def publish(self, request: Mapping[str, Any], state: Sequence[StateChange] = ()) -> Mapping[str, Any]:
        """Announce a block's data: `{"height": …, "data_hash": "hex"}`."""
        host = self._host
        if host is None:
            raise ClosedError("not on the network yet")
        notification = self._publishable(_requested(request))
        message = host.flood.compose(self._settings.topic, encode(notification))
        now, key = self._ground.clock.now(), height_key(notification.height)
        sent = Incoming(
            protocol=PROTOCOL,
            topic=self._settings.topic,
            raw=message.raw,
            peer=self._ground.key.peer_id,
            received_at=now,
            direction=Direction.OUT,
        )
        # ShrEx/Sub: each EDS MUST be published exactly once per height
        mark = StateChange(space=PUBLISHED_SPACE, key=key, value=notification.data_hash, expect=None)
        try:
            [receipt] = await self._ground.sink.receive([sent], [mark, *state])
        except ConflictError:
            raise ConflictError(f"height {notification.height} was published already") from None
        if not receipt.accepted:
            raise RefusedError("our own rules refuse it", reason=receipt.arrival.reason or Reason.JUDGE_FAILED)
        crash_point("shrex.publish.marked")
        published = await host.flood.send(message)
        crash_point("shrex.publish.sent")
        self.counts["published"] += 1
        self._tell(notification)
        return {
            "height": str(notification.height),
            "data_hash": notification.data_hash.hex(),
            "sent": len(published.sent),
            "dropped": [{"peer": drop.peer, "why": drop.why} for drop in published.dropped],
            "record": str(receipt.record.name) if receipt.record else None,
        }

    def _publishable(self, notification: Notification) -> Notification:
        # ShrEx/Sub: the Publish method MUST validate input parameters before publishing
        verdict = judge_fields(notification)
        if not verdict.accepted:
            assert verdict.reason is not None
            raise RefusedError(verdict.detail, reason=verdict.reason)
        if notification.data_hash in self._roots:
            raise RefusedError("this node refuses that root", reason=Reason.UNAUTHORISED)
        # ShrEx/Sub: only when synced, and only for the current tip
        if not self.follower.synced:
            raise UnavailableError("not synced: the header source has not answered, or has headers we lack")
        if notification.height != self.follower.head:
            raise RefusedError(f"the tip is {self.follower.head}", reason=Reason.OUT_OF_WINDOW)
        # ShrEx/Sub: only hashes of locally validated data
        if self.session.known(notification.height).data_hash != notification.data_hash:
            raise RefusedError("the verified header has another data hash", reason=Reason.HEADER_MISMATCH)
        return notification

    # peers

    async def peer(self, data_hash: bytes, height: int, *, timeout: float) -> tuple[str, Done]:
        """A peer to ask for a block's data, and the function to say afterwards how it went.

        Waits until there is one; UnavailableError when there is none in time. What is said afterwards counts once.
        """
        if len(data_hash) != HASH_BYTES or not 1 <= height <= HEIGHT_MAX:
            raise UsageError(f"a block has a hash of {HASH_BYTES} bytes and a height from 1 to 2^64 - 1")
        if self._waiters >= SHREX_WAITERS:
            raise OverloadedError("too many requests wait for a peer")
        self._waiters += 1
        try:
            with anyio.move_on_after(timeout):
                while True:
                    now = self._ground.clock.monotonic()
                    offer = self.session.manager.offer(data_hash, height, now)
                    if offer is not None:
                        self.counts[f"offered_{offer.source}"] += 1
                        return offer.peer, self._reporter(offer)
                    rested = self.session.manager.next_change(data_hash, now)
                    with anyio.move_on_after(inf if rested is None else rested - now):
                        await self._changed.wait()
        finally:
            self._waiters -= 1
        self.counts["waited_in_vain"] += 1
        raise UnavailableError("no peer in time", about=data_hash.hex())

    def _reporter(self, offer: Offer) -> Done:
        said = False

        def done(result: Outcome) -> None:
            nonlocal said
            if not said:
                said = True
                self._done(offer, result)

        return done

    def _done(self, offer: Offer, result: Outcome) -> None:
        self.counts[f"result_{result}"] += 1
        if self.session.manager.done(offer, result, self._ground.clock.monotonic()) and self._host is not None:
            self._host.blame(offer.peer, 2 * FAULTS_FORGIVEN)
        if len(self._results) >= RESULTS_QUEUE:
            self.counts["results_not_kept"] += 1
            return
        self._results.append(
            PeerResult(
                peer=offer.peer,
                height=offer.height,
                data_hash=offer.data_hash.hex(),
                result=result,
                source=offer.source,
            )
        )
        self._results_ready.set()

    async def _keep_results(self) -> None:
        """Write what became of requests, so that the lake can score peers."""
        while True:
            while not self._results:
                await self._results_ready.wait()
            batch = [self._results.popleft() for _ in range(len(self._results))]
            now = self._ground.clock.now()
            records = [
                Incoming(
                    protocol=PROTOCOL,
                    topic=RESULTS_TOPIC,
                    raw=encode_result(result),
                    peer=result.peer,
                    received_at=now + offset,  # results alike are still different events
                )
                for offset, result in enumerate(batch)
            ]
            try:
                await self._ground.sink.receive(records)
            except UnavailableError:
                self.counts["results_not_kept"] += len(batch)

    def discovered(self, peer: str) -> None:
        """For discovery: a connected peer serves data, though it announced nothing yet."""
        self.session.manager.discovered(peer)
        self._changed.set()

    def lost(self, peer: str) -> None:
        """For discovery: the peer serves no more."""
        self.session.manager.left(peer)

    # looking in

    def pools(self) -> dict[str, Any]:
        """The pools and the chain they belong to, as `syncline peers --pools` shows them."""
        now = self._ground.clock.monotonic()
        return {
            "head": str(self.follower.head),
            "synced": self.follower.synced,
            "pools": self.session.manager.pools(now),
            "nodes": self.session.manager.nodes.peers,
        }

    def peers(self) -> list[Mapping[str, Any]]:
        if self._host is None:
            return []
        return [
            {
                "peer": info.peer,
                "address": info.address,
                "direction": info.direction,
                "seconds": round(info.since, 3),
                "agent": info.agent,
                "announced": self._announced[info.peer],
                "score": round(info.score, 3),
            }
            for info in self._host.peers()
            if self._settings.topic in info.topics or self._announced[info.peer]
        ]

    def statistics(self) -> Mapping[str, int | float]:
        return {
            **self.session.statistics(self._ground.clock.monotonic()),
            "synced": int(self.follower.synced),
            "source_head": self.follower.source_head,
            "source_failures": self.follower.failures,
            "headers_refused": self.follower.refused,
            "listeners": len(self.listeners),
            "told": self.listeners.told,
            "waiting_for_peers": self._waiters,
            **self.counts,
        }

    def web(self) -> WebMount | None:
        from syncline.protocols.shrex.service.web import mount

        return mount(self)


def _requested(request: Mapping[str, Any]) -> Notification:
    unknown = set(request) - {"height", "data_hash"}
    if unknown:
        raise UsageError(f"unknown field {min(unknown)!r}", hint="give height and data_hash")
    height, data_hash = request.get("height"), request.get("data_hash")
    if isinstance(height, str) and height.isdecimal() and len(height) <= 20:
        height = int(height)
    if not isinstance(height, int) or isinstance(height, bool) or not 0 <= height <= HEIGHT_MAX:
        raise UsageError("height must be a number below 2^64", about="height")
    if not isinstance(data_hash, str):
        raise UsageError("data_hash must be hex", about="data_hash")
    try:
        return Notification(height, parse_hash(data_hash))
    except DecodeError as error:
        raise UsageError(str(error)) from None
