"""A simulated NDN: real forwarders and real group members on links that lose, repeat and delay, in virtual time.

Nothing here sleeps or opens a socket. The same seed gives the same run, packet for packet; `trace` is a digest of all that
moved. Parts are cut off by taking links down.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from random import Random

import msgspec

from syncline.formats.ndn.names import Name, parse
from syncline.networks.ndn.endpoint import Endpoint, Request
from syncline.networks.ndn.faces import Face
from syncline.networks.ndn.forwarder import Forwarder
from syncline.networks.ndn.routes import CHILD_INHERIT, Route
from syncline.protocols.svs.rules.judge import examine
from syncline.protocols.svs.rules.trust import Signers, Trust
from syncline.protocols.svs.service.stores import Prepared
from syncline.protocols.svs.service.wiring import Wiring
from syncline.protocols.svs.session import Deliver, Failure, Judge, Options, Publication, Session
from syncline.protocols.svs.wire.mapping import MappingEntry, timestamp_block
from syncline.protocols.svs.wire.naming import MappingName
from syncline.protocols.svs.wire.publication import encapsulate

WALL = 1_772_323_200_000_000
TICK = 0.1


class LinkWeather(msgspec.Struct, frozen=True, kw_only=True):
    """Chances per packet, and delays in seconds; a packet's delay is drawn anew, so packets overtake each other."""

    drop: float = 0.0
    duplicate: float = 0.0
    least_delay: float = 0.001
    most_delay: float = 0.010


class Link:
    """One direction of a connection."""

    def __init__(self, world: World, weather: LinkWeather, deliver: Callable[[list[bytes]], None]) -> None:
        self._world = world
        self._deliver = deliver
        self.weather = weather
        self.up = True
        self.carried = self.lost = 0

    def carry(self, packets: list[bytes]) -> None:
        random, weather = self._world.random, self.weather
        for packet in packets:
            copies = (random.random() >= weather.drop) + (random.random() < weather.duplicate)
            if not self.up or not copies:
                self.lost += 1
                continue
            for _ in range(copies):
                delay = random.uniform(weather.least_delay, weather.most_delay)
                self._world.after(delay, lambda packet=packet: self._arrive(packet))  # type: ignore[misc]

    def _arrive(self, packet: bytes) -> None:
        if self.up:
            self.carried += 1
            self._world.note(packet)
            self._deliver([packet])
        else:
            self.lost += 1


class World:
    """Virtual time, chance, and everything that is attached."""

    def __init__(self, seed: int = 0) -> None:
        self.now = 0.0
        self.random = Random(seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._digest = hashlib.sha256()

    @property
    def trace(self) -> str:
        """A digest of every packet that arrived, with its time."""
        return self._digest.hexdigest()

    def note(self, packet: bytes) -> None:
        self._digest.update(f"{self.now:.9f}".encode() + packet)

    def after(self, delay: float, act: Callable[[], None]) -> None:
        heappush(self._events, (self.now + delay, next(self._order), act))

    def run(self, seconds: float) -> None:
        """Let so much virtual time pass."""
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.now, _, act = heappop(self._events)
            act()
        self.now = end

    def run_until(self, condition: Callable[[], bool], most: float) -> bool:
        """Let time pass until something holds; whether it did within `most` seconds."""
        end = self.now + most
        while not condition():
            if self.now >= end:
                return False
            self.run(min(0.5, end - self.now))
        return True


class Hub:
    """A forwarder with simulated links."""

    def __init__(self, world: World, forwarder: Forwarder | None = None) -> None:
        self.world = world
        self.forwarder = forwarder or Forwarder(random=world.random)
        self._tick()

    def _tick(self) -> None:
        self.forwarder.tick(self.world.now)
        self.world.after(TICK, self._tick)

    def attach(self, endpoint: Endpoint, weather: LinkWeather, uri: str) -> tuple[Face, Link, Link]:
        """Connect an endpoint; its face, the link to the hub and the one back."""
        back = Link(self.world, weather, lambda packets: endpoint.receive(packets, self.world.now))
        face = self.face(uri, back)
        there = Link(self.world, weather, lambda packets: self.forwarder.receive(face, packets, self.world.now))
        return face, there, back

    def face(self, uri: str, out: Link, *, local: bool = True) -> Face:
        def notify() -> None:
            self.world.after(0.0, lambda: out.carry(face.take()))

        face = self.forwarder.add_face(uri, local=local, notify=notify, now=self.world.now)
        return face

    def connect(self, other: Hub, weather: LinkWeather, prefixes: list[Name]) -> tuple[Link, Link]:
        """Connect two hubs, each with routes for these prefixes through the other."""
        to_other = Link(self.world, weather, lambda packets: other.forwarder.receive(there, packets, self.world.now))
        to_us = Link(self.world, weather, lambda packets: self.forwarder.receive(here, packets, self.world.now))
        here, there = self.face("link://other", to_other), other.face("link://us", to_us)
        for prefix in prefixes:
            self.forwarder.routes.add(prefix, Route(here.id, 255, 10, CHILD_INHERIT))
            other.forwarder.routes.add(prefix, Route(there.id, 255, 10, CHILD_INHERIT))
        return to_other, to_us


class Member:
    """A member of a group with the real session and wiring, driven by the world's events."""

    def __init__(
        self,
        hub: Hub,
        group: str,
        node: str,
        *,
        options: Options | None = None,
        signers: Signers | None = None,
        trust: Trust | None = None,
        weather: LinkWeather | None = None,
        last: int = 0,
    ) -> None:
        self.world = hub.world
        self.group, self.node = parse(group), parse(node)
        self.received: list[Publication] = []
        self.failures: list[Failure] = []
        self.asked = 0
        self._signers, self._trust = signers or Signers(), trust or Trust()
        self._flushing = False
        self._wake_at: float | None = None
        self.endpoint = Endpoint(self.world.random, self._wake)
        self.session = Session(self.group, options or Options(), self.world.random, self.world.now, self._wall())
        self.face, self.to_hub, self.from_hub = hub.attach(self.endpoint, weather or LinkWeather(), f"sim://{node}")
        self.wiring = Wiring(
            self.group,
            self.session,
            self.endpoint,
            self._signers,
            self._trust,
            lambda: self.world.now,
            self._wake,
        )
        for prefix in (self.group, self.node + self.group):
            hub.forwarder.routes.add(prefix, Route(self.face.id))
        self.session.join(self.node, last)
        self.wiring.serve(self.node)
        self._wake()

    def subscribe(self, prefix: str = "/") -> int:
        return self.session.subscribe(parse(prefix))

    def publish(self, name: str, payload: bytes = b"") -> int:
        """Publish at once; nothing here is kept beyond the simulation."""
        seq = self.session.last(self.node) + 1
        packets = encapsulate(
            self.node,
            self.group,
            seq,
            parse(name),
            payload,
            inner=self._signers.inner,
            outer=self._signers.outer,
        )
        entry = MappingEntry(seq, parse(name), timestamp_block(self._wall()))
        self.wiring.shelve(Prepared(self.node, seq, packets, entry))
        self.session.published(self.node, entry, self.world.now)
        self._wake()
        return seq

    def cut(self, up: bool = False) -> None:
        """Take both directions of the link down, or up again."""
        self.to_hub.up = self.from_hub.up = up

    def _wall(self) -> int:
        return WALL + round(self.world.now * 1_000_000)

    def _wake(self) -> None:
        if not self._flushing:
            self._flushing = True
            self.world.after(0.0, self._work)

    def _work(self) -> None:
        self._flushing = False
        now = self.world.now
        self.endpoint.tick(now)
        self.session.tick(now)
        while left := self.wiring.act(self.session.take()):
            for action in left:
                if isinstance(action, Judge):
                    self.session.judged(action.token, examine(action.wire, self.group, self._trust), now)
                elif isinstance(action, Deliver):
                    self.received.append(action.publication)
                    self.session.delivered(now)
                elif isinstance(action, Failure):
                    self.failures.append(action)
        lookups, self.wiring.lookups = self.wiring.lookups, []
        for request, named in lookups:
            if isinstance(named, MappingName):
                self.wiring.answer_mapping(request, named, [])  # the store of a simulated member is its memory
        packets = self.endpoint.take()
        self.asked += len(packets)
        self.to_hub.carry(packets)
        self._alarm()

    def _alarm(self) -> None:
        """Be woken when a timer of the session or the endpoint is due."""
        due = self.session.deadline
        if self.endpoint.deadline is not None:
            due = min(due, self.endpoint.deadline)
        if self._wake_at is None or due < self._wake_at or self._wake_at <= self.world.now:
            self._wake_at = due
            self.world.after(max(due - self.world.now, 0.0), lambda: self._ring(due))

    def _ring(self, due: float) -> None:
        if self._wake_at == due:
            self._wake_at = None
            self._wake()


class Stranger:
    """An endpoint without a session: sends what it likes and answers as it likes."""

    def __init__(self, hub: Hub, prefixes: list[str], answer: Callable[[Request], bytes | None] | None = None) -> None:
        self.world = hub.world
        self.endpoint = Endpoint(self.world.random, lambda: self.world.after(0.0, self._flush))
        self.face, self._to_hub, _ = hub.attach(self.endpoint, LinkWeather(), "sim://stranger")
        self.requests: list[Request] = []
        self._answer = answer
        for prefix in prefixes:
            hub.forwarder.routes.add(parse(prefix), Route(self.face.id))
            self.endpoint.serve(parse(prefix), self._asked)

    def send(self, packet: bytes) -> None:
        self.endpoint.send(packet)

    def _asked(self, request: Request) -> None:
        self.requests.append(request)
        reply = None if self._answer is None else self._answer(request)
        if reply is not None:
            self.endpoint.reply(request, reply)

    def _flush(self) -> None:
        self._to_hub.carry(self.endpoint.take())
