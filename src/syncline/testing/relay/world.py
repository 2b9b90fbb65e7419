"""The simulated world itself: servers, the wires between them, and the time that passes for all."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable
from functools import partial
from itertools import count
from random import Random
from typing import Final

import msgspec

from syncline.core.keys import NodeKey
from syncline.protocols.relay.session import durable
from syncline.protocols.relay.session.handshake import Identity
from syncline.protocols.relay.session.hub import Hub
from syncline.protocols.relay.session.link import Link
from syncline.protocols.relay.session.outbox import Load, Port
from syncline.protocols.relay.session.quotas import Quotas
from syncline.protocols.relay.wire.links import decode_parcel
from syncline.testing.clock import FakeClock
from syncline.testing.relay.client import SimClient
from syncline.testing.relay.disk import MemoryDisk

REDIAL_SECONDS: Final = 0.5


class Parcel(msgspec.Struct, frozen=True):
    """A network message seen on the wire between two servers."""

    sender: str
    receiver: str
    topic: str


class RelayWorld:
    """Servers, clients and the wires between them."""

    def __init__(self, seed: int = 0, *, delay: float = 0.02, quotas: Quotas | None = None) -> None:
        self.clock = FakeClock()
        self.random = Random(seed)
        self.quotas = quotas or Quotas(requests_per_second=1e9, request_burst=1e9)
        self.servers: dict[str, SimServer] = {}
        self.clients: dict[str, SimClient] = {}
        self.parcels: list[Parcel] = []  # every network message that crossed a link
        self.edges: dict[frozenset[str], bool] = {}  # pair of servers → whether the wire is whole
        self._delay = delay
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def add_server(self, name: str) -> SimServer:
        server = self.servers[name] = SimServer(self, name, NodeKey(hashlib.sha256(name.encode()).digest()))
        server.start()
        return server

    def add_client(self, name: str, server: str) -> SimClient:
        client = self.clients[name] = SimClient(self, name)
        client.connect(server)
        return client

    def link(self, one: str, other: str) -> None:
        """Lay a wire; it is dialed again by `one` whenever it is down and both ends live."""
        self.edges[frozenset((one, other))] = True
        self._dial(one, other)

    def cut(self, one: str, other: str) -> None:
        self.edges[frozenset((one, other))] = False
        self.servers[one].hang_up(other)

    def mend(self, one: str, other: str) -> None:
        self.edges[frozenset((one, other))] = True
        self._dial(one, other)

    def _dial(self, one: str, other: str) -> None:
        if not self.edges[frozenset((one, other))]:
            return
        here, there = self.servers[one], self.servers[other]
        if here.hub is not None and there.hub is not None and other not in here.wires:
            here.dial(there)
        else:
            self.later(REDIAL_SECONDS, lambda: self._dial(one, other) if other not in here.wires else None)

    def redial(self, one: str, other: str) -> None:
        self.later(REDIAL_SECONDS * (0.5 + self.random.random()), lambda: self._dial(one, other))

    def later(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.clock.monotonic() + seconds, next(self._numbers), event))

    def some_delay(self) -> float:
        return self.random.random() * self._delay

    def run(self, seconds: float) -> None:
        """Let this much time pass. Servers tick once a second."""
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            upto = min(end, self._events[0][0] if self._events else end, self._next_tick())
            self.clock.advance(max(0.0, upto - self.clock.monotonic()))
            while self._events and self._events[0][0] <= self.clock.monotonic() + 1e-9:
                heapq.heappop(self._events)[2]()
            if self.clock.monotonic() + 1e-9 >= self._next_tick():
                self._ticked = self._next_tick()
                for server in self.servers.values():
                    server.tick()

    _ticked = 0.0

    def _next_tick(self) -> float:
        return self._ticked + 1.0


class SimServer:
    """One relay server: its hub while it lives, its disk for ever."""

    def __init__(self, world: RelayWorld, name: str, key: NodeKey) -> None:
        self.world = world
        self.name = name
        self.key = key
        self.disk = MemoryDisk(world.clock)
        self.hub: Hub | None = None
        self.wires: dict[str, Wire] = {}  # by the other server's name
        self.ports: dict[Port, Wire | SimClient] = {}
        self._epoch = 0
        self._committing = False

    @property
    def running(self) -> Hub:
        assert self.hub is not None
        return self.hub

    def start(self) -> None:
        """Begin, or begin again with what is on disk."""
        self._epoch += 1
        counters = dict(self.disk.scan(durable.COUNTERS))
        self.hub = Hub(
            identity=Identity(self.key, self._epoch, self.name),
            quotas=self.world.quotas,
            clock=self.world.clock,
            random=self.world.random,
            position=int.from_bytes(counters.get(durable.POSITION, b""), "big"),
        )
        self.hub.restore(
            (entry for _, value in self.disk.scan(durable.MESSAGES) for entry in durable.entries_of(value)),
            (
                (*durable.split_client_key(key), int.from_bytes(value, "big"))
                for key, value in self.disk.scan(durable.SUBSCRIPTIONS)
            ),
        )
        self._committing = False

    def kill(self) -> None:
        """Gone, as by kill -9: what was not committed is lost."""
        self.hub = None
        for other in list(self.wires):
            self.hang_up(other)
        for port in [each for each, end in self.ports.items() if isinstance(end, SimClient)]:
            client = self.ports.pop(port)
            assert isinstance(client, SimClient)
            client.dropped()
        self.ports.clear()

    def dial(self, other: SimServer) -> None:
        Wire(self, other).open()

    def hang_up(self, other: str) -> None:
        wire = self.wires.get(other)
        if wire is not None:
            wire.break_down()

    def trusts(self, key: str) -> bool:
        names = {each.key.peer_id: each.name for each in self.world.servers.values()}
        return frozenset((self.name, names.get(key, ""))) in self.world.edges

    def tick(self) -> None:
        if self.hub is not None:
            self.hub.tick()
            self.pump()

    def pump(self) -> None:
        """Do what the hub wants done."""
        hub = self.hub
        if hub is None:
            return
        hub.settle()
        for load in hub.outbox.take_loads():
            self.world.later(self.world.some_delay(), partial(self._load, hub, load))
        if not self._committing and len(hub.queue):
            self._committing = True
            self.world.later(self.world.some_delay(), lambda: self._commit(hub))
        for port in hub.outbox.take_ready():
            end = self.ports.get(port)
            if end is not None:
                end.carry(port)

    def _load(self, hub: Hub, load: Load) -> None:
        if hub is self.hub:
            load.then([self.disk.body(entry) for entry in load.entries])
            self.pump()

    def _commit(self, hub: Hub) -> None:
        if hub is not self.hub:
            return
        self._committing = False
        batch = hub.queue.take()
        if batch is not None:
            batch.done(self.disk.append(batch.incoming, batch.state))
            self.pump()


class Wire:
    """A link between two servers: order is kept, delays are random."""

    def __init__(self, dialer: SimServer, listener: SimServer) -> None:
        self.ends = {dialer.name: dialer, listener.name: listener}
        self._links: dict[str, Link] = {}
        self._busy_until: dict[str, float] = {}
        self._dialer = dialer.name

    def open(self) -> None:
        for name, server in self.ends.items():
            other = next(each for each in self.ends if each != name)
            link = server.running.open_link(server.trusts, dialed=name == self._dialer)
            self._links[name] = link
            server.ports[link] = self
            server.wires[other] = self
        for server in self.ends.values():
            server.pump()

    def carry(self, port: Port) -> None:
        """Take what an end wants to send."""
        [sender] = [name for name, link in self._links.items() if link is port]
        receiver = next(name for name in self.ends if name != sender)
        for is_text, payload in port.take():
            if not is_text:
                self._witness(sender, receiver, payload)
            self._later(receiver, partial(self._arrive, receiver, payload, is_text))
        if port.end is not None:
            self._later(receiver, self.break_down)

    def _later(self, receiver: str, event: Callable[[], None]) -> None:
        world = self.ends[receiver].world
        now = world.clock.monotonic()
        at = max(self._busy_until.get(receiver, 0.0), now + world.some_delay())
        self._busy_until[receiver] = at
        world.later(at - now, event)

    def _witness(self, sender: str, receiver: str, payload: bytes) -> None:
        topic, _ = decode_parcel(payload)
        self.ends[sender].world.parcels.append(Parcel(sender, receiver, topic))

    def _arrive(self, name: str, payload: bytes, is_text: bool) -> None:
        server, link = self.ends[name], self._links[name]
        if server.hub is not None and server.ports.get(link) is self:
            server.hub.links.receive(link, payload, is_text)
            server.pump()

    def break_down(self) -> None:
        """Both ends lose it; what was on its way is lost."""
        if not any(server.wires.get(other) is self for server in self.ends.values() for other in self.ends):
            return
        for name, server in self.ends.items():
            other = next(each for each in self.ends if each != name)
            if server.wires.get(other) is self:
                del server.wires[other]
            link = self._links[name]
            if server.ports.pop(link, None) is not None and server.hub is not None:
                server.hub.links.end(link)
                server.pump()
        listener = next(name for name in self.ends if name != self._dialer)
        self.ends[self._dialer].world.redial(self._dialer, listener)
