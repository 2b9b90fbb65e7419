"""Federations in simulation: everybody who asked gets each message once, whatever shape the federation has."""

from __future__ import annotations

from collections import Counter

import pytest

from syncline.testing.relay import (
    RelayWorld,
    duplicates,
    lay_line,
    lay_random,
    lay_ring,
    topic_of,
)

FIVE = ["a", "b", "c", "d", "e"]
NEWS = topic_of("news")


def world_of(*names: str, seed: int = 1) -> RelayWorld:
    world = RelayWorld(seed)
    for name in names:
        world.add_server(name)
    return world


def test_a_message_travels_a_line_of_five_servers() -> None:
    world = world_of(*FIVE)
    lay_line(world, FIVE)
    alice, bob = world.add_client("alice", "a"), world.add_client("bob", "e")
    bob.subscribe(NEWS)
    world.run(2)
    alice.publish(NEWS, "hello")
    world.run(2)
    assert alice.published == bob.received == [(NEWS, "hello")]
    assert [(each.sender, each.receiver) for each in world.parcels] == [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")]


def test_in_a_ring_the_short_way_is_taken_and_nobody_else_hears_of_it() -> None:
    world = world_of(*FIVE)
    lay_ring(world, FIVE)
    alice, bob = world.add_client("alice", "a"), world.add_client("bob", "c")
    bob.subscribe(NEWS)
    world.run(2)
    for number in range(20):
        alice.publish(NEWS, f"message {number}")
    world.run(2)
    assert sorted(bob.received) == sorted(alice.published)
    assert len(bob.received) == 20
    assert Counter((each.sender, each.receiver) for each in world.parcels) == {("a", "b"): 20, ("b", "c"): 20}


def test_a_server_without_interest_never_receives_a_topic() -> None:
    world = world_of(*FIVE)
    lay_ring(world, FIVE)
    alice, bob, eve = (world.add_client(name, server) for name, server in [("alice", "a"), ("bob", "b"), ("eve", "d")])
    eve.subscribe(topic_of("something else"))
    bob.subscribe(NEWS)
    world.run(2)
    for number in range(10):
        alice.publish(NEWS, str(number))
    world.run(2)
    assert {each.receiver for each in world.parcels} == {"b"}
    assert [len(world.servers[name].disk.accepted) for name in FIVE] == [10, 10, 0, 0, 0]
    assert len(bob.received) == 10
    assert eve.received == []


def test_interest_ends_with_the_last_subscriber_even_in_a_loop() -> None:
    world = world_of("a", "b", "c")
    lay_ring(world, ["a", "b", "c"])
    alice, bob = world.add_client("alice", "a"), world.add_client("bob", "b")
    bob.subscribe(NEWS)
    world.run(2)
    alice.publish(NEWS, "wanted")
    world.run(2)
    bob.unsubscribe(NEWS)
    world.run(2)
    seen = len(world.parcels)
    alice.publish(NEWS, "unwanted")
    world.run(5)
    assert len(world.parcels) == seen == 1
    assert bob.received == [(NEWS, "wanted")]


def test_a_later_subscriber_far_away_gets_what_is_still_cached() -> None:
    world = world_of(*FIVE)
    lay_line(world, FIVE)
    alice = world.add_client("alice", "a")
    world.run(1)
    alice.publish(NEWS, "short", ttl=5)
    alice.publish(NEWS, "long", ttl=300)
    world.run(10)
    assert world.parcels == []
    bob = world.add_client("bob", "e")
    bob.subscribe(NEWS)
    world.run(3)
    assert bob.received == [(NEWS, "long")]


def test_the_expiry_stamped_by_the_first_server_is_the_same_on_every_server() -> None:
    world = world_of(*FIVE)
    lay_line(world, FIVE)
    alice, bob = world.add_client("alice", "a"), world.add_client("bob", "e")
    bob.subscribe(NEWS)
    world.run(2)
    start = world.clock.now()
    alice.publish(NEWS, "hello", ttl=60)
    world.run(30)
    [expiries] = {tuple(arrival.expires_at for arrival in world.servers[name].disk.accepted.values()) for name in FIVE}
    assert len(expiries) == 1
    assert expiries[0] is not None
    assert start + 60_000_000 <= expiries[0] <= start + 60_100_000
    late = world.add_client("late", "e")
    late.subscribe(NEWS)
    world.run(1)
    assert late.received == [(NEWS, "hello")]
    world.run(31)
    assert [len(world.servers[name].running.cache) for name in FIVE] == [0] * 5


def test_when_the_server_between_dies_the_other_way_round_is_taken() -> None:
    world = world_of(*FIVE)
    lay_ring(world, FIVE)
    alice, bob = world.add_client("alice", "a"), world.add_client("bob", "c")
    bob.subscribe(NEWS)
    world.run(2)
    alice.publish(NEWS, "by way of b")
    world.run(1)
    world.servers["b"].kill()
    world.run(1)
    alice.publish(NEWS, "by way of e and d")
    world.run(2)
    assert bob.received == [(NEWS, "by way of b"), (NEWS, "by way of e and d")]
    assert ("a", "e") in {(each.sender, each.receiver) for each in world.parcels}


def test_what_a_dying_server_had_not_handed_on_comes_by_the_other_way() -> None:
    world = world_of(*FIVE, seed=3)
    lay_ring(world, FIVE)
    alice, bob = world.add_client("alice", "a"), world.add_client("bob", "c")
    bob.subscribe(NEWS)
    world.run(2)
    for number in range(50):
        alice.publish(NEWS, str(number))
    while len(alice.published) < 50:
        world.run(0.01)
    assert len(bob.received) < 50
    world.servers["b"].kill()
    world.run(5)
    assert sorted(bob.received) == sorted(alice.published)
    assert duplicates(bob.received) == []


def test_a_killed_server_comes_back_with_all_it_answered_true_to() -> None:
    world = world_of("a", "b")
    lay_line(world, ["a", "b"])
    alice = world.add_client("alice", "a")
    world.run(1)
    for number in range(30):
        alice.publish(NEWS, str(number))
    while len(alice.published) < 10:
        world.run(0.005)
    world.servers["a"].kill()
    world.run(1)
    world.servers["a"].start()
    world.run(2)
    bob, carol = world.add_client("bob", "a"), world.add_client("carol", "b")
    bob.subscribe(NEWS)
    carol.subscribe(NEWS)
    world.run(5)
    assert set(alice.published) <= set(bob.received)
    assert sorted(bob.received) == sorted(carol.received)
    assert duplicates(bob.received) == []


def test_acknowledged_messages_are_not_sent_again_after_a_restart() -> None:
    world = world_of("a")
    alice, bob = world.add_client("alice", "a"), world.add_client("bob", "a")
    bob.subscribe(NEWS)
    world.run(1)
    for number in range(5):
        alice.publish(NEWS, str(number))
    world.run(3)
    assert len(bob.received) == 5
    world.servers["a"].kill()
    world.servers["a"].start()
    bob.connect("a")
    world.run(3)
    assert len(bob.received) == 5


def test_an_absent_subscriber_attracts_messages_to_its_server() -> None:
    world = world_of("a", "b")
    lay_line(world, ["a", "b"])
    alice, bob = world.add_client("alice", "a"), world.add_client("bob", "b")
    bob.subscribe(NEWS)
    world.run(2)
    bob.disconnect()
    alice.publish(NEWS, "while away")
    world.run(2)
    world.servers["a"].kill()
    bob.connect("b")
    world.run(2)
    assert bob.received == [(NEWS, "while away")]


def test_a_link_that_comes_back_carries_what_was_missed_and_nothing_twice() -> None:
    world = world_of("a", "b")
    lay_line(world, ["a", "b"])
    alice, bob = world.add_client("alice", "a"), world.add_client("bob", "b")
    bob.subscribe(NEWS)
    world.run(2)
    alice.publish(NEWS, "before")
    world.run(1)
    world.cut("a", "b")
    alice.publish(NEWS, "during")
    world.run(1)
    world.mend("a", "b")
    world.run(3)
    assert bob.received == [(NEWS, "before"), (NEWS, "during")]
    assert len(world.parcels) == 2


@pytest.mark.parametrize("shape", ["line", "ring", "random"])
@pytest.mark.parametrize("seed", range(6))
def test_links_that_come_and_go_neither_lose_nor_repeat(shape: str, seed: int) -> None:
    world = RelayWorld(seed)
    names = [f"s{number}" for number in range(7)]
    for name in names:
        world.add_server(name)
    if shape == "line":
        lay_line(world, names)
    elif shape == "ring":
        lay_ring(world, names)
    else:
        lay_random(world, names, 4)
    topics = [topic_of(str(number)) for number in range(4)]
    clients = [world.add_client(f"c{number}", world.random.choice(names)) for number in range(10)]
    for client in clients:
        client.subscribe(*world.random.sample(topics, 2))
    world.run(2)
    down: list[tuple[str, str]] = []
    for number in range(60):
        publisher = world.random.choice(clients)
        publisher.publish(world.random.choice(topics), f"message {number}")
        if number % 6 == 0:
            pair = sorted(world.random.choice(sorted(map(sorted, world.edges))))
            world.cut(pair[0], pair[1])
            down.append((pair[0], pair[1]))
        if number % 10 == 9:
            for one, other in down:
                world.mend(one, other)
            down.clear()
        world.run(world.random.random() * 0.3)
    for one, other in down:
        world.mend(one, other)
    world.run(10)
    published = {(topic, message) for client in clients for topic, message in client.published}
    assert len(published) == 60
    for client in clients:
        wanted = {each for each in published if each[0] in client.topics and each not in client.published}
        assert set(client.received) == wanted
        assert duplicates(client.received) == []


@pytest.mark.parametrize("seed", range(10))
def test_a_storm_of_kills_cuts_and_reconnects_loses_nothing_that_was_answered(seed: int) -> None:
    storm = Storm(seed)
    storm.rage(80)
    storm.calm()
    assert len(storm.published) > 20
    for client in storm.world.clients.values():
        wanted = {each for each in storm.published if each[0] in client.topics and each not in client.published}
        assert wanted <= set(client.received)
        if client.name not in storm.disturbed:
            assert duplicates(client.received) == []
        assert client.errors == []
    for server in storm.world.servers.values():
        ids = [arrival.id for arrival in server.disk.arrivals if arrival.accepted]
        assert len(ids) == len(set(ids))


class Storm:
    """Random servers, clients and mishaps."""

    def __init__(self, seed: int) -> None:
        self.world = RelayWorld(seed)
        self.random = self.world.random
        self.names = [f"s{number}" for number in range(self.random.randint(2, 9))]
        for name in self.names:
            self.world.add_server(name)
        lay_random(self.world, self.names, self.random.randint(0, 5))
        self.topics = [topic_of(str(number)) for number in range(5)]
        self.homes = {f"c{number}": self.random.choice(self.names) for number in range(10)}
        for name, home in self.homes.items():
            self.world.add_client(name, home).subscribe(*self.random.sample(self.topics, 2))
        self.disturbed: set[str] = set()
        self._cut: list[list[str]] = []
        self._dead: list[str] = []
        self.world.run(2)

    @property
    def published(self) -> set[tuple[str, str]]:
        return {each for client in self.world.clients.values() for each in client.published}

    def rage(self, steps: int) -> None:
        for number in range(steps):
            client = self.random.choice(list(self.world.clients.values()))
            if client.is_connected:
                client.publish(self.random.choice(self.topics), f"message {number}")
            self._mishap(self.random.random())
            self.world.run(self.random.random() * 0.4)

    def _mishap(self, chance: float) -> None:
        if chance < 0.10:
            pair = self.random.choice(sorted(map(sorted, self.world.edges)))
            self.world.cut(*pair)
            self._cut.append(pair)
        elif chance < 0.16:
            server = self.world.servers[self.random.choice(self.names)]
            if server.hub is not None:
                server.kill()
                self._dead.append(server.name)
        elif chance < 0.24:
            client = self.random.choice(list(self.world.clients.values()))
            if client.is_connected:
                client.disconnect()
        elif chance < 0.40:
            self._mend()

    def _mend(self) -> None:
        for one, other in self._cut:
            self.world.mend(one, other)
        for name in self._dead:
            self.world.servers[name].start()
        self._cut.clear()
        self._dead.clear()
        for client in self.world.clients.values():
            if not client.is_connected:
                self.disturbed.add(client.name)
                client.connect(self.homes[client.name])

    def calm(self) -> None:
        self._mend()
        self.world.run(20)


def test_the_same_seed_gives_the_same_trace() -> None:
    def trace(seed: int) -> tuple[list[str], list[tuple[str, str]]]:
        world = RelayWorld(seed)
        for name in FIVE:
            world.add_server(name)
        lay_random(world, FIVE, 2)
        alice, bob = world.add_client("alice", "a"), world.add_client("bob", "e")
        bob.subscribe(NEWS)
        world.run(2)
        for number in range(20):
            alice.publish(NEWS, str(number))
        world.run(3)
        return [f"{each.sender}{each.receiver}" for each in world.parcels], bob.received

    assert trace(7) == trace(7)
    assert trace(7) != trace(8)
