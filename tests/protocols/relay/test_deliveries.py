"""Deliveries: acknowledged once, resent a few times, held back by the window, remembered on disk."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from syncline.protocols.relay.session import durable
from syncline.protocols.relay.session.cache import Cache
from syncline.protocols.relay.session.clients import Connection, Cursor
from syncline.protocols.relay.session.handshake import Identity
from syncline.protocols.relay.session.hub import Hub
from syncline.protocols.relay.session.quotas import Quotas
from tests.protocols.relay.desk import KEY, Desk
from tests.relays import topic_of

NEWS, OTHER = topic_of("news"), topic_of("other")


def texts(deliveries: list[Any]) -> list[str]:
    return [each["params"]["data"]["message"] for each in deliveries]


def test_what_is_not_acknowledged_is_resent_three_times_and_then_left() -> None:
    desk = Desk(subscription_seconds=100_000)
    alice, bob = desk.client(1), desk.client(2)
    desk.subscribe(bob, NEWS)
    desk.publish(alice, NEWS, "hello")
    [first] = desk.heard(bob)
    heard = []
    for _ in range(200):
        desk.clock.advance(1)
        desk.hub.tick()
        heard += [(int(desk.clock.monotonic()), each) for each in desk.heard(bob)]
    assert [(second, each) for second, each in heard] == [(30, first), (60, first), (90, first)]
    assert (desk.hub.deliveries.resent, desk.hub.deliveries.abandoned) == (3, 1)
    desk.hub.disconnect(bob)
    again = desk.client(2)
    desk.tell(again, {"id": 1, "jsonrpc": "2.0", "method": "irn_subscribe", "params": {"topic": NEWS}})
    assert texts([each for each in desk.heard(again) if "method" in each]) == ["hello"]


def test_what_is_acknowledged_is_not_resent() -> None:
    desk = Desk()
    alice, bob = desk.client(1), desk.client(2)
    desk.subscribe(bob, NEWS)
    desk.publish(alice, NEWS, "hello")
    desk.acknowledge(bob, *desk.heard(bob))
    for _ in range(100):
        desk.clock.advance(1)
        desk.hub.tick()
    assert desk.heard(bob) == []


def test_an_error_in_place_of_an_acknowledgement_is_none() -> None:
    desk = Desk()
    alice, bob = desk.client(1), desk.client(2)
    desk.subscribe(bob, NEWS)
    desk.publish(alice, NEWS, "hello")
    [delivery] = desk.heard(bob)
    desk.tell(bob, {"id": delivery["id"], "jsonrpc": "2.0", "error": {"code": 1, "message": "no"}})
    desk.tell(bob, {"id": 99, "jsonrpc": "2.0", "result": True})
    desk.clock.advance(31)
    desk.hub.tick()
    assert desk.heard(bob) == [delivery]


def test_a_client_that_does_not_acknowledge_gets_no_more_than_its_window() -> None:
    desk = Desk(window=3)
    alice, bob = desk.client(1), desk.client(2)
    desk.subscribe(bob, NEWS)
    for number in range(10):
        desk.publish(alice, NEWS, str(number))
    first = desk.heard(bob)
    assert texts(first) == ["0", "1", "2"]
    desk.acknowledge(bob, first[0], first[1])
    second = desk.heard(bob)
    assert texts(second) == ["3", "4"]
    desk.acknowledge(bob, first[2], *second)
    seen = texts(first) + texts(second)
    while more := desk.heard(bob):
        seen += texts(more)
        desk.acknowledge(bob, *more)
    assert seen == [str(number) for number in range(10)]


def test_order_is_kept_when_new_messages_come_while_old_ones_are_read() -> None:
    desk = Desk(window=4)
    alice, bob = desk.client(1), desk.client(2)
    for number in range(6):
        desk.publish(alice, NEWS, str(number))
    desk.tell(bob, {"id": 1, "jsonrpc": "2.0", "method": "irn_subscribe", "params": {"topic": NEWS}})
    seen: list[str] = []
    for number in range(6, 12):
        desk.publish(alice, NEWS, str(number))
        got = [each for each in desk.heard(bob) if "method" in each]
        seen += texts(got)
        desk.acknowledge(bob, *got)
    while got := desk.heard(bob):
        seen += texts(got)
        desk.acknowledge(bob, *got)
    assert seen == [str(number) for number in range(12)]


def test_acknowledgements_out_of_order_are_remembered_each() -> None:
    desk = Desk()
    alice, bob = desk.client(1), desk.client(2)
    desk.subscribe(bob, NEWS)
    for number in range(4):
        desk.publish(alice, NEWS, str(number))
    deliveries = desk.heard(bob)
    desk.acknowledge(bob, deliveries[1], deliveries[3])
    desk.hub.disconnect(bob)
    again = desk.client(2)
    desk.tell(again, {"id": 1, "jsonrpc": "2.0", "method": "irn_subscribe", "params": {"topic": NEWS}})
    rest = [each for each in desk.heard(again) if "method" in each]
    assert texts(rest) == ["0", "2"]


def restarted(desk: Desk) -> Desk:
    """The same disk under a new hub."""
    new = Desk()
    new.clock, new.disk = desk.clock, desk.disk
    counters = dict(desk.disk.scan(durable.COUNTERS))
    new.hub = Hub(
        identity=Identity(KEY, 2),
        quotas=Quotas(),
        clock=desk.clock,
        random=Random(2),
        position=int.from_bytes(counters.get(durable.POSITION, b""), "big"),
    )
    new.hub.restore(
        (entry for _, value in desk.disk.scan(durable.MESSAGES) for entry in durable.entries_of(value)),
        (
            (*durable.split_client_key(key), int.from_bytes(value, "big"))
            for key, value in desk.disk.scan(durable.SUBSCRIPTIONS)
        ),
    )
    return new


def reconnect(desk: Desk, connection: Connection) -> Connection:
    public = connection.client.public
    cursors = {
        durable.split_client_key(key)[1]: durable.cursor_value(value)
        for key, value in desk.disk.scan(durable.CURSORS, public)
    }
    return desk.hub.connect(connection.client.did, cursors)


def test_acknowledgements_survive_a_restart_within_a_second() -> None:
    desk = Desk()
    alice, bob = desk.client(1), desk.client(2)
    desk.subscribe(bob, NEWS)
    for number in range(4):
        desk.publish(alice, NEWS, str(number))
    deliveries = desk.heard(bob)
    desk.acknowledge(bob, deliveries[0], deliveries[2])
    desk.hub.tick()
    desk.run()
    new = restarted(desk)
    again = reconnect(new, bob)
    new.tell(again, {"id": 1, "jsonrpc": "2.0", "method": "irn_subscribe", "params": {"topic": NEWS}})
    assert texts([each for each in new.heard(again) if "method" in each]) == ["1", "3"]


def test_positions_go_on_after_a_restart_even_when_everything_has_expired() -> None:
    desk = Desk()
    alice, bob = desk.client(1), desk.client(2)
    desk.subscribe(bob, NEWS)
    for number in range(5):
        desk.publish(alice, NEWS, str(number), ttl=5)
    desk.acknowledge(bob, *desk.heard(bob))
    desk.hub.tick()
    desk.run()
    desk.clock.advance(60)
    new = restarted(desk)
    assert len(new.hub.cache) == 0
    new.publish(new.client(1), NEWS, "after")
    again = reconnect(new, bob)
    new.tell(again, {"id": 1, "jsonrpc": "2.0", "method": "irn_subscribe", "params": {"topic": NEWS}})
    assert texts([each for each in new.heard(again) if "method" in each]) == ["after"]


def test_expired_messages_are_delivered_to_nobody() -> None:
    desk = Desk()
    alice, bob = desk.client(1), desk.client(2)
    desk.publish(alice, NEWS, "short", ttl=5)
    desk.publish(alice, NEWS, "long", ttl=50)
    desk.clock.advance(6)  # no tick yet: the entry is still in the index
    desk.tell(bob, {"id": 1, "jsonrpc": "2.0", "method": "irn_subscribe", "params": {"topic": NEWS}})
    assert texts([each for each in desk.heard(bob) if "method" in each]) == ["long"]


def test_every_connection_of_a_client_listens_and_one_acknowledgement_is_enough() -> None:
    desk = Desk()
    alice, one, two = desk.client(1), desk.client(2), desk.client(2)
    for connection in (one, two):
        desk.subscribe(connection, NEWS)
    desk.publish(alice, NEWS, "hello")
    [first], [_] = desk.heard(one), desk.heard(two)
    desk.acknowledge(one, first)
    desk.clock.advance(31)
    desk.hub.tick()
    assert desk.heard(two) == []
    assert desk.hub.deliveries.abandoned == 0


def test_a_remembered_subscription_ends_a_day_after_its_client_left() -> None:
    desk = Desk(subscription_seconds=100)
    bob = desk.client(2)
    desk.subscribe(bob, NEWS)
    for _ in range(300):  # while connected it is prolonged
        desk.clock.advance(1)
        desk.hub.tick()
        desk.run()
    assert desk.hub.directory.count == 1
    desk.hub.disconnect(bob)
    for _ in range(101):
        desk.clock.advance(1)
        desk.hub.tick()
        desk.run()
    assert desk.hub.directory.count == 0
    assert desk.disk.scan(durable.SUBSCRIPTIONS) == []


def test_statistics_count_what_happened() -> None:
    desk = Desk()
    alice, bob = desk.client(1), desk.client(2)
    desk.subscribe(bob, NEWS)
    desk.publish(alice, NEWS, "one")
    desk.publish(alice, NEWS, "one")
    desk.publish(alice, "bad", "one")
    desk.acknowledge(bob, *desk.heard(bob))
    found = desk.hub.statistics()
    names = ("connections", "subscriptions", "cached_messages", "published", "repeated", "delivered", "acknowledged")
    assert [found[name] for name in (*names, "requests", "refused")] == [2, 1, 1, 1, 1, 1, 1, 3, 1]


@pytest.mark.parametrize("seed", range(20))
def test_a_cursor_remembers_exactly_what_was_acknowledged_in_any_order(seed: int) -> None:
    """Against a set of all acknowledgements. Some messages are the client's own, and are dealt with without one."""
    random, cache = Random(seed), Cache(Quotas())
    entries = [
        cache.admit(cache.mailbox(NEWS), NEWS, bytes([n]), 1, 10 + n, random.choice(["me", "you", "you"]))
        for n in range(60)
    ]
    for entry in entries:
        entry.live = True
    cursor, acked = Cursor(), set[int]()
    for entry in random.sample([each for each in entries if each.source != "me"], k=30):
        cursor.ack(entry.position, cache.mailbox(NEWS), "me")
        cursor = Cursor(cursor.value)  # as it comes back from disk
        acked.add(entry.position)
        theirs = {each.position for each in entries if each.source != "me"}
        assert {position for position in theirs if cursor.has(position)} == acked


def test_a_message_that_is_never_acknowledged_does_not_make_a_cursor_grow_for_ever() -> None:
    """What has expired behind it is forgotten: it would be kept, and written down every second, for a day."""
    desk = Desk()
    alice, bob = desk.client(1), desk.client(2)
    desk.subscribe(bob, NEWS)
    desk.publish(alice, NEWS, "never acknowledged", ttl=86_400)
    [ignored] = desk.heard(bob)
    for number in range(200):
        desk.publish(alice, NEWS, f"{number}", ttl=1)
        desk.acknowledge(bob, *[each for each in desk.heard(bob) if each["id"] != ignored["id"]])
        desk.clock.advance(2)
        desk.hub.tick()
    value = bob.client.cursors[NEWS].value
    assert value.through == 0
    assert len(value.acked) <= 4
    desk.clock.advance(86_400)
    desk.hub.tick()
    desk.publish(alice, NEWS, "last")
    desk.acknowledge(bob, *desk.heard(bob))
    assert bob.client.cursors[NEWS].value == durable.CursorValue(202, [])
