"""200 light nodes and 10 bridges in virtual time, three of which lie: who ends up in the pools, and who is punished."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from hashlib import sha256
from itertools import count as counting
from random import Random

import pytest

from syncline.core.limits import SHREX_HELD_PER_PEER
from syncline.protocols.shrex.session.peers import PeerLimits, PeerManager
from syncline.protocols.shrex.session.session import Action, CutPeer, Session, Settle
from syncline.protocols.shrex.wire.notification import Notification
from syncline.protocols.shrex.wire.result import Outcome

LIGHTS, BRIDGES, HEIGHTS, BLOCK = 200, 10, 50, 6.0
WRONG_HASHES, UNKNOWN_HEIGHTS, SERVES_NOTHING = "bridge-7", "bridge-8", "bridge-9"
HONEST = {f"bridge-{number}" for number in range(7)}


def root(height: int) -> bytes:
    return sha256(b"root %d" % height).digest()


class World:
    """A heap of things that happen, in the order of time."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self._order = counting()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self.trace = sha256()

    def at(self, time: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._order), event))

    def run(self) -> None:
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            event()

    def note(self, *words: object) -> None:
        self.trace.update(repr((round(self.now, 6), words)).encode())


class Light:
    """A light node: the real session, with requests for the data of every block it hears of."""

    def __init__(self, world: World, name: str, bridges: set[str]) -> None:
        self.world, self.name, self.bridges = world, name, set(bridges)
        self.session = Session(PeerManager(PeerLimits(blacklist_peers=True)))
        self.heard: list[int] = []
        self.cut: set[str] = set()
        self.failures: dict[str, int] = {}
        self.most_held = 0

    def hear(self, bridge: str, notification: Notification) -> None:
        if bridge in self.bridges:
            self.act(self.session.arrived((bridge, notification), bridge, notification, self.world.now))
            self.most_held = max(self.most_held, self.session.held)

    def header(self, height: int) -> None:
        self.act(self.session.header(height, root(height), self.world.now))

    def tick(self) -> None:
        self.act(self.session.tick(self.world.now))

    def act(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, CutPeer):
                self.disconnect(action.peer)
            elif isinstance(action, Settle):
                bridge, notification = action.ticket
                self.world.note(self.name, bridge, notification.height, action.verdict.outcome, action.verdict.reason)
                self.act(self.session.settled(bridge, notification, action.verdict))
                if action.verdict.accepted and self.session.is_news(notification):
                    self.heard.append(notification.height)
                    for turn in range(12):
                        self.world.at(self.world.now + 3.0 + turn / 2, lambda wanted=notification: self.request(wanted))  # type: ignore[misc]

    def request(self, notification: Notification) -> None:
        """Ask for the block's data; the one that serves nothing rests first, and is blacklisted the second time."""
        offer = self.session.manager.offer(notification.data_hash, notification.height, self.world.now)
        if offer is None:
            return
        result = Outcome.NOOP
        if offer.peer == SERVES_NOTHING:
            self.failures[offer.peer] = self.failures.get(offer.peer, 0) + 1
            result = Outcome.COOLDOWN if self.failures[offer.peer] == 1 else Outcome.BLACKLIST
        self.world.note(self.name, "asked", offer.peer, result)
        if self.session.manager.done(offer, result, self.world.now):
            self.disconnect(offer.peer)

    def disconnect(self, bridge: str) -> None:
        self.bridges.discard(bridge)
        self.cut.add(bridge)
        self.session.manager.left(bridge)


def announcements(bridge: str, height: int, random: Random) -> list[Notification]:
    """What a bridge says when the block at `height` is there."""
    if bridge == WRONG_HASHES and height % 2:
        return [Notification(height, random.randbytes(32))]
    if bridge == UNKNOWN_HEIGHTS:
        near = Notification(height + random.randrange(50, 99), random.randbytes(32))
        return [near, Notification(2**40 + height, random.randbytes(32)), Notification(2**64 - 1, random.randbytes(32))]
    return [Notification(height, root(height))]


def simulate(seed: int, count: int = LIGHTS) -> tuple[World, list[Light]]:
    world = World(seed)
    bridges = [f"bridge-{number}" for number in range(BRIDGES)]
    lights = []
    for number in range(count):
        known = set(world.random.sample(sorted(HONEST), 4)) | {WRONG_HASHES, UNKNOWN_HEIGHTS, SERVES_NOTHING}
        lights.append(Light(world, f"light-{number}", known))
    for height in range(1, HEIGHTS + 1):
        born = height * BLOCK
        for bridge in bridges:
            for notification in announcements(bridge, height, world.random):
                said = born + world.random.uniform(0.0, 2.0)
                for light in lights:
                    for _ in range(2 if world.random.random() < 0.1 else 1):
                        heard = said + world.random.uniform(0.01, 0.5)
                        world.at(heard, lambda light=light, b=bridge, n=notification: light.hear(b, n))  # type: ignore[misc]
        for number, light in enumerate(lights):
            known_at = born + world.random.uniform(0.0, 4.0)
            if number < 20 and 100.0 < known_at < 240.0:  # its header source fails for more than two minutes
                known_at = 240.0 + height / 1_000
            world.at(known_at, lambda light=light, height=height: light.header(height))  # type: ignore[misc]
    for second in range(0, int(HEIGHTS * BLOCK) + 140, 5):
        for light in lights:
            world.at(float(second), light.tick)
    world.run()
    return world, lights


@pytest.mark.parametrize(("seed", "count"), [(1, LIGHTS), (2, 30), (3, 30), (4, 30)])
def test_every_light_node_ends_with_honest_peers_only(seed: int, count: int) -> None:
    _, lights = simulate(seed, count)
    for number, light in enumerate(lights):
        manager = light.session.manager
        pooled = {peer for pool in manager.pools(light.world.now) for peer in pool["peers"]}  # type: ignore[attr-defined]
        assert pooled
        assert pooled <= HONEST, light.name
        assert set(manager.nodes.peers) <= HONEST
        assert light.cut == {WRONG_HASHES, SERVES_NOTHING}  # the one with unknown heights is only not believed
        assert not any(manager.is_blacklisted(bridge) for bridge in HONEST)  # also with a failing header source
        assert light.session.held == 0
        assert light.most_held <= 7 * SHREX_HELD_PER_PEER
        assert len(manager.pools(light.world.now)) <= 20
        if number >= 20:
            assert sorted(light.heard) == list(range(1, HEIGHTS + 1))
        else:  # what waited too long was ignored, and is heard of when announced later; nothing is heard twice
            assert len(light.heard) == len(set(light.heard)) >= HEIGHTS - 25


def test_the_same_seed_gives_the_same_trace() -> None:
    assert simulate(3, 20)[0].trace.digest() == simulate(3, 20)[0].trace.digest()
    assert simulate(3, 20)[0].trace.digest() != simulate(4, 20)[0].trace.digest()
