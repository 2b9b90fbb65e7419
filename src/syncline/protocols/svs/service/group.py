"""A group as an application uses it: publish, subscribe, iterate. Runs on anyio, so on trio and on asyncio.

    async with join("/chat-room", node="/alice") as group:
        group.subscribe("/chat", print)
        await group.publish("/chat/hello", b"hello, world")
        async for publication in group.publications("/chat"):
            ...

The conversation is `session`, its network `wiring`; here are the tasks around them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random, SystemRandom

import anyio
import structlog

from syncline.core.clock import Clock, SystemClock
from syncline.core.errors import ClosedError, UsageError
from syncline.core.ports import StateChange
from syncline.formats.ndn.names import Name, parse, text
from syncline.networks.background import background
from syncline.networks.ndn.bell import Bell
from syncline.networks.ndn.client import Attachment, attached
from syncline.networks.ndn.endpoint import Request as Asked
from syncline.protocols.svs.rules.trust import Signers, Trust
from syncline.protocols.svs.service.callbacks import Callback, FailureCallback, Filter, call, guarded, safely
from syncline.protocols.svs.service.intake import Intake, Judging
from syncline.protocols.svs.service.outbox import Outbox, Request
from syncline.protocols.svs.service.stores import MemoryStore, Store
from syncline.protocols.svs.service.stream import Buffer, Publications
from syncline.protocols.svs.service.wiring import Wiring
from syncline.protocols.svs.session import Action, Deliver, Failure, Judge, Options, Session, Skipped
from syncline.protocols.svs.wire.mapping import timestamp_block
from syncline.protocols.svs.wire.naming import MappingName, OuterName

log = structlog.get_logger()


class Subscription:
    """A running subscription."""

    def __init__(self, group: Group, number: int) -> None:
        self._group = group
        self.number = number

    def cancel(self) -> None:
        """End it; what is being delivered may still come."""
        self._group._unsubscribe(self.number)


class Group:
    """One member of a group. Made by `join`.

    Guarantees: each publication reaches each matching subscription at most once, whole and validated; those of one
    publisher may come out of order. `publish` returns when the publication is kept and will be announced.
    """

    def __init__(
        self,
        name: Name,
        attachment: Attachment,
        *,
        signers: Signers,
        trust: Trust,
        options: Options,
        store: Store,
        intake: Intake,
        clock: Clock,
        random: Random,
    ) -> None:
        self.name = name
        self.failures = 0
        self.skipped = 0
        self._attachment = attachment
        self._store = store
        self._intake = intake
        self._clock = clock
        self._bell = Bell()
        self._session = Session(name, options, random, anyio.current_time(), clock.now())
        self._wiring = Wiring(
            name, self._session, attachment.endpoint, signers, trust, anyio.current_time, self._bell.ring
        )
        self._callbacks: dict[int, Callback] = {}
        self._on_failure: list[FailureCallback] = []
        self._nodes: list[Name] = []
        self._registered: list[Name] = []
        self._closed = False
        self._deliveries: deque[Deliver] = deque()
        self._delivery_bell = Bell()
        self._lookup_bell = Bell()
        self._outbox = Outbox(name, self._session, self._wiring, signers, store, self._bell.ring)
        self._buffers: set[Buffer] = set()

    # the application's side

    @property
    def nodes(self) -> list[str]:
        """The nodes this member publishes for."""
        return [text(node) for node in self._nodes]

    async def publish(
        self,
        name: str | Name,
        payload: bytes,
        *,
        node: str | Name | None = None,
        extra: bytes = b"",
        timestamp: bool = True,
        state: Sequence[StateChange] = (),
    ) -> int:
        """Publish under an application name; returns the sequence number.

        `node` chooses among several nodes of this member. `extra` are further TLV blocks for the mapping entry, which
        subscribers can filter by; with `timestamp` the time is among them.
        """
        if self._closed:
            raise ClosedError("this member has left the group", about=text(self.name))
        blocks = (timestamp_block(self._clock.now()) if timestamp else b"") + extra
        return await self._outbox.publish(Request(self._node_of(node), _name(name), payload, blocks, state))

    def subscribe(self, prefix: str | Name, callback: Callback, *, filter: Filter | None = None) -> Subscription:
        """Call back with every publication whose name starts with `prefix`. Returns at once.

        `filter` sees the mapping entry before anything is fetched. An async callback is awaited; while the application
        is busy with many publications, no more are fetched.
        """
        return self._subscribed(self._session.subscribe(_name(prefix), guarded(filter)), callback)

    def subscribe_to_producer(
        self, prefix: str | Name, callback: Callback, *, filter: Filter | None = None
    ) -> Subscription:
        """Call back with every publication of the nodes below `prefix`, whatever its name."""
        return self._subscribed(self._session.subscribe_to_producer(_name(prefix), guarded(filter)), callback)

    def publications(
        self, prefix: str | Name = "/", *, producer: str | Name | None = None, filter: Filter | None = None
    ) -> Publications:
        """The publications below `prefix`, or those of `producer`, as they come, for `async for`.

        Subscribed from now on; reading slowly slows fetching down. Dropping the iterator ends the subscription.
        """
        buffer = Buffer()
        if producer is None:
            subscription = self.subscribe(prefix, buffer.put, filter=filter)
        else:
            subscription = self.subscribe_to_producer(producer, buffer.put, filter=filter)
        buffer.closing = subscription.cancel
        self._buffers.add(buffer)
        return Publications(buffer)

    def on_failure(self, callback: FailureCallback) -> None:
        """Be told of publications that do not come, and of packets that are refused."""
        self._on_failure.append(callback)

    def statistics(self) -> dict[str, int]:
        return {
            **self._session.statistics(),
            "failures": self.failures,
            "skipped": self.skipped,
            "refused_syncs": self._wiring.refused_syncs,
            "waiting_deliveries": len(self._deliveries),
        }

    @property
    def state_vector(self) -> dict[str, int]:
        """The newest sequence number of every node, as far as is known here."""
        return {text(node): seq for node, seq in sorted(self._session.vector.items())}

    def settled(self) -> dict[Name, int]:
        """Of each other node, up to which number everything has been fetched, refused or given up."""
        return self._session.settled()

    # starting and running

    async def add_node(self, node: str | Name) -> None:
        """Publish for one more node prefix."""
        prefix = _name(node)
        if not prefix:
            raise UsageError("a node has a name")
        self._session.join(prefix, await self._store.last(prefix))
        self._wiring.serve(prefix)
        self._nodes.append(prefix)
        await self._register(prefix + self.name)

    def resume(self, settled: dict[Name, int]) -> None:
        """Go on after what an earlier run has settled."""
        for node, seq in settled.items():
            self._session.resume(node, seq)

    async def enter(self) -> None:
        """Have the group's sync Interests sent here."""
        await self._register(self.name)

    async def _register(self, prefix: Name) -> None:
        self._registered.append(prefix)
        await self._attachment.register(prefix)

    def close(self) -> None:
        """Leave the group: nothing is sent here any more, and iterators end. `run` does so at its end."""
        self._closed = True
        self._wiring.close()
        for prefix in self._registered:
            self._attachment.unregister(prefix)
        self._registered.clear()
        for buffer in self._buffers:
            buffer.close()

    async def run(self) -> None:
        """Take part until cancelled."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._deliver)
                tasks.start_soon(self._look_up_all)
                while True:
                    await self._work()
                    with anyio.move_on_at(self._session.deadline):
                        await self._bell.wait()
        finally:
            self.close()

    async def _work(self) -> None:
        """Let the conversation do what is due, until nothing is left."""
        while True:
            self._session.tick(anyio.current_time())  # also while packets keep coming: publications must be announced
            if self._wiring.lookups:
                self._lookup_bell.ring()
            actions = self._wiring.act(self._session.take())
            if not actions:
                return
            judges = [action for action in actions if type(action) is Judge]
            self._note([action for action in actions if type(action) is not Judge])
            if judges:
                peer = self._attachment.peer
                judged = await self._intake.take([(each.wire, peer(each.face)) for each in judges])
                now = anyio.current_time()
                for each, verdict in zip(judges, judged, strict=True):
                    self._session.judged(each.token, verdict, now)

    def _note(self, actions: list[Action]) -> None:
        for action in actions:
            if type(action) is Deliver:
                self._deliveries.append(action)
                self._delivery_bell.ring()
            elif isinstance(action, Failure):
                self.failures += action.final
                log.info("svs_failure", group=text(self.name), node=action.node, low=action.low, step=action.step)
                for callback in self._on_failure:
                    safely(callback, action)
            elif isinstance(action, Skipped):
                self.skipped += action.high - action.low + 1
                log.info("svs_skipped", group=text(self.name), reason=action.reason, low=action.low, high=action.high)

    async def _look_up_all(self) -> None:
        """Answer from the store what is no longer in memory. Disks are slow: the conversation does not wait for them."""
        while True:
            await self._lookup_bell.wait()
            lookups, self._wiring.lookups = self._wiring.lookups, []
            for request, named in lookups:
                await self._look_up(request, named)

    async def _look_up(self, request: Asked, named: OuterName | MappingName) -> None:
        if isinstance(named, MappingName):
            numbers = self._wiring.numbers_of(named)
            entries = await self._store.entries(named.node, numbers.start, numbers.stop - 1)
            self._wiring.answer_mapping(request, named, entries)
        else:
            packet = await self._store.packet(named.node, named.seq, named.segment)
            self._wiring.answer_packet(request, packet)

    async def _deliver(self) -> None:
        while True:
            await self._delivery_bell.wait()
            while self._deliveries:
                delivery = self._deliveries.popleft()
                for number in delivery.subscriptions:
                    callback = self._callbacks.get(number)
                    if callback is not None:
                        await call(callback, delivery.publication)
                self._session.delivered(anyio.current_time())
                self._bell.ring()

    def _node_of(self, node: str | Name | None) -> Name:
        if node is None:
            if not self._nodes:
                raise UsageError("this member publishes for no node", hint="join with node=…")
            return self._nodes[0]
        prefix = _name(node)
        if prefix not in self._nodes:
            raise UsageError("this member does not publish for that node", about=text(prefix))
        return prefix

    def _subscribed(self, number: int, callback: Callback) -> Subscription:
        self._callbacks[number] = callback
        self._bell.ring()  # numbers heard of before may be wanted now
        return Subscription(self, number)

    def _unsubscribe(self, number: int) -> None:
        self._session.unsubscribe(number)
        self._callbacks.pop(number, None)
        self._buffers = {buffer for buffer in self._buffers if not buffer.closed}


@asynccontextmanager
async def join(
    group: str | Name,
    *,
    node: str | Name | Sequence[str] | None = None,
    forwarder: str | Attachment | None = None,
    signers: Signers | None = None,
    trust: Trust | None = None,
    options: Options | None = None,
    store: Store | None = None,
    intake: Intake | None = None,
    clock: Clock | None = None,
    random: Random | None = None,
) -> AsyncIterator[Group]:
    """Take part in a group for the length of the block.

    `forwarder` is an address (`tcp://127.0.0.1:6363`, `unix:///run/nfd/nfd.sock`, …), by default what
    NDN_CLIENT_TRANSPORT says, or a place inside a hub of this process. Without `node` (one prefix, or several) the member
    only listens. Without `store` numbers do not outlive the process, except in the memory of the group.
    """
    name, trust = _name(group), trust or Trust()
    if forwarder is None or isinstance(forwarder, str):
        async with attached(forwarder, clock=clock, random=random) as client:
            async with join(
                name, node=node, forwarder=client, signers=signers, trust=trust, options=options, store=store,
                intake=intake, clock=clock, random=random,
            ) as found:  # fmt: skip
                yield found
        return
    member = Group(
        name,
        forwarder,
        signers=signers or Signers(),
        trust=trust,
        options=options or Options(),
        store=store or MemoryStore(),
        intake=intake or Judging(name, trust),
        clock=clock or SystemClock(),
        random=random or SystemRandom(),
    )
    try:
        for prefix in [] if node is None else [node] if isinstance(node, str | bytes) else node:
            await member.add_node(prefix)
        await member.enter()
    except BaseException:
        member.close()
        raise
    async with background() as tasks:
        tasks.start_soon(member.run)
        yield member


def _name(name: str | Name) -> Name:
    return parse(name) if isinstance(name, str) else name
