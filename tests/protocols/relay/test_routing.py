"""Routing: who wants what, by which way, and what lies are refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from syncline.core.errors import RefusedError
from syncline.core.verdict import Reason
from syncline.protocols.relay.session.quotas import Quotas
from syncline.protocols.relay.session.routing import FORGET_SECONDS, Routing
from syncline.protocols.relay.wire.links import Interest
from tests.relays import topic_of

ONE, TWO = topic_of("one"), topic_of("two")


def told(server: str, **changes: Any) -> Interest:
    fields = {"server": server, "epoch": 1, "seq": 1, "base": None, "links": [], "add": [], "drop": []}
    return Interest(**{**fields, **changes})


def routing(**quotas: Any) -> Routing:
    """We are `m`, linked with `a` and `b`."""
    found = Routing("m", 1, Quotas(**quotas))
    found.own_change([], [], frozenset({"a", "b"}))
    found.find_ways(0)
    return found


def test_a_neighbour_that_wants_a_topic_is_the_way_to_it() -> None:
    r = routing()
    learned = r.learn(told("a", links=["m"], add=[ONE]), "a")
    assert (learned.added, learned.dropped) == ({ONE}, set())
    assert list(r.ways(ONE)) == ["a"]
    assert list(r.ways(TWO)) == []


def test_a_server_behind_a_neighbour_is_reached_through_it() -> None:
    r = routing()
    r.learn(told("a", links=["m", "z"]), "a")
    r.learn(told("z", links=["a"], add=[ONE]), "a")
    assert r.find_ways(0) == {"z": (None, "a")}
    assert list(r.ways(ONE)) == ["a"]


def test_a_link_only_one_end_tells_of_is_no_way() -> None:
    r = routing()
    r.learn(told("a", links=["m", "z"]), "a")
    r.learn(told("z", links=[], add=[ONE]), "a")
    assert r.find_ways(0) == {}
    assert list(r.ways(ONE)) == []


def test_the_shorter_way_is_taken_and_the_longer_when_it_breaks() -> None:
    r = routing()
    r.learn(told("a", links=["m", "y"]), "a")
    r.learn(told("y", links=["a", "z"]), "a")
    r.learn(told("b", links=["m", "z"]), "b")
    r.learn(told("z", links=["y", "b"], add=[ONE]), "b")
    r.find_ways(0)
    assert list(r.ways(ONE)) == ["b"]
    r.own_change([], [], frozenset({"a"}))
    assert r.find_ways(0)["z"] == ("b", "a")
    assert list(r.ways(ONE)) == ["a"]


def test_an_old_or_repeated_word_changes_nothing() -> None:
    r = routing()
    r.learn(told("a", seq=5, add=[ONE]), "a")
    for old in (told("a", seq=5, add=[TWO]), told("a", seq=4, add=[TWO]), told("a", epoch=0, seq=9, add=[TWO])):
        learned = r.learn(old, "b")
        assert not learned.news
    assert list(r.ways(TWO)) == []


def test_changes_build_on_each_other_and_a_gap_is_noticed() -> None:
    r = routing()
    r.learn(told("a", links=["m"], add=[ONE]), "a")
    assert r.learn(told("a", seq=2, base=1, links=["m"], add=[TWO], drop=[ONE]), "a").dropped == {ONE}
    assert list(r.ways(TWO)) == ["a"]
    gap = r.learn(told("a", seq=9, base=8, links=["m"], drop=[TWO]), "a")
    assert gap.has_gap
    assert list(r.ways(TWO)) == ["a"]


def test_a_restarted_server_replaces_what_was_known_of_it() -> None:
    r = routing()
    r.learn(told("a", seq=7, links=["m"], add=[ONE]), "a")
    learned = r.learn(told("a", epoch=2, seq=0, links=["m"], add=[TWO]), "a")
    assert (learned.added, learned.dropped) == ({TWO}, {ONE})


def test_when_others_remember_a_later_us_we_begin_after_it() -> None:
    r = routing()
    assert r.learn(told("m", epoch=5, seq=3), "a").reborn
    assert (r.me.epoch, r.me.seq) == (6, 0)
    assert not r.learn(told("m", epoch=5, seq=3), "a").reborn


def test_a_large_change_comes_in_parts_and_counts_when_it_is_whole() -> None:
    sender, r = Routing("a", 1, Quotas()), routing()
    topics = [topic_of(str(number)) for number in range(2_500)]
    parts = sender.own_change(topics, [], frozenset({"m"}))
    assert [len(part.add) for part in parts] == [1_000, 1_000, 500]
    snapshot = sender.snapshot("a")
    assert not r.learn(snapshot[0], "a").news
    assert not r.learn(snapshot[1], "a").news
    assert list(r.ways(topics[0])) == []
    assert list(r.learn(snapshot[2], "a").news) == snapshot
    assert list(r.ways(topics[0])) == ["a"]


def test_a_missing_part_is_asked_for_again() -> None:
    sender, r = Routing("a", 1, Quotas()), routing()
    sender.own_change([topic_of(str(number)) for number in range(2_500)], [], frozenset({"m"}))
    first, _, third = sender.snapshot("a")
    r.learn(first, "a")
    assert r.learn(third, "a").has_gap


def test_what_comes_by_one_link_is_capped() -> None:
    r = routing(interest=3)
    r.learn(told("a", add=[topic_of(str(n)) for n in range(2)]), "a")
    with pytest.raises(RefusedError, match="3 topics") as raised:
        r.learn(told("z", add=[topic_of(str(n)) for n in range(2)]), "a")
    assert raised.value.reason is Reason.QUOTA_EXCEEDED
    r.learn(told("z", add=[topic_of(str(n)) for n in range(2)]), "b")
    r.learn(told("a", seq=2, add=[ONE]), "a")
    r.learn(told("y", add=[ONE, TWO]), "a")


def test_a_federation_has_so_many_servers() -> None:
    r = routing(servers=3)
    r.learn(told("x"), "a")
    r.learn(told("y"), "a")
    with pytest.raises(RefusedError, match="3 servers"):
        r.learn(told("z"), "a")


@pytest.mark.parametrize(
    "lie",
    [
        {"add": ["news"]},
        {"drop": [ONE.upper()]},
        {"epoch": -1},
        {"seq": -1},
        {"part": 1},
        {"part": -1, "parts": 2},
        {"parts": 20_000},
        {"server": ""},
        {"server": "x" * 65},
        {"links": ["x" * 65]},
        {"add": [ONE] * 1_001},
    ],
)
def test_nonsense_is_refused(lie: dict[str, Any]) -> None:
    with pytest.raises(RefusedError):
        routing().learn(msgspec.structs.replace(told("a"), **lie), "a")


def test_a_server_out_of_reach_is_forgotten_after_a_while() -> None:
    r = routing()
    r.learn(told("a", links=["m"], add=[ONE]), "a")
    r.own_change([], [], frozenset({"b"}))
    r.find_ways(100)
    r.forget_lost(100 + FORGET_SECONDS)
    assert r.server("a") is not None
    r.forget_lost(101 + FORGET_SECONDS)
    assert r.server("a") is None
    r.learn(told("a", links=["m"], add=[ONE]), "b")
    assert r.server("a") is not None
