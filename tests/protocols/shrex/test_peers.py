"""The peer manager in virtual time: turns, cooldown, blacklists, windows, and the regressions others had."""

from __future__ import annotations

from hashlib import sha256

import pytest

from syncline.core.limits import SHREX_BLACKLISTED_HASHES, SHREX_BLACKLISTED_PEERS, SHREX_NODES, SHREX_POOL_PEERS
from syncline.protocols.shrex.session.peers import Offer, PeerLimits, PeerManager
from syncline.protocols.shrex.session.pool import Pool
from syncline.protocols.shrex.wire.result import Outcome


def root(height: int) -> bytes:
    return sha256(b"%d" % height).digest()


def manager(head: int = 100, **limits: bool) -> PeerManager:
    made = PeerManager(PeerLimits(**limits))
    for height in range(head - 20, head + 1):
        made.header(height, root(height), 0.0)
    return made


def asked(made: PeerManager, height: int, times: int, now: float = 0.0) -> list[str | None]:
    offers = [made.offer(root(height), height, now) for _ in range(times)]
    return [offer.peer if offer is not None else None for offer in offers]


# pools


def test_peers_are_asked_in_turn_and_those_who_rest_are_passed_over() -> None:
    pool = Pool(10)
    assert [pool.add(peer) for peer in ("a", "b", "c", "a")] == [True, True, True, False]
    assert [pool.take(0.0) for _ in range(4)] == ["a", "b", "c", "a"]
    pool.rest("b", 3.0)
    assert [pool.take(1.0) for _ in range(3)] == ["c", "a", "c"]
    assert (pool.resting(1.0), pool.next_rested(1.0)) == (["b"], 3.0)
    assert pool.take(3.0) == "b"
    assert pool.next_rested(3.0) is None
    pool.remove("a")
    assert pool.peers == ["c", "b"]


def test_a_full_pool_takes_nobody_in_and_an_empty_one_offers_nobody() -> None:
    pool = Pool(2)
    assert [pool.add(peer) for peer in "abc"] == [True, True, False]
    assert "c" not in pool
    assert Pool(1).take(0.0) is None


# the manager


def test_who_announced_a_block_is_asked_for_it_first_then_who_announced_others() -> None:
    made = manager()
    made.credit("a", root(100), 100)
    made.credit("b", root(99), 99)
    assert made.offer(root(100), 100, 0.0) == Offer("a", root(100), 100, "pool")
    assert made.offer(root(99), 99, 0.0) == Offer("b", root(99), 99, "pool")
    nodes = made.offer(root(98), 98, 0.0)
    assert nodes is not None
    assert (nodes.peer, nodes.source) == ("a", "nodes")


def test_a_peer_that_could_not_serve_rests_for_three_seconds_where_it_failed() -> None:
    made = manager()
    made.credit("a", root(100), 100)
    made.credit("a", root(99), 99)
    offer = made.offer(root(100), 100, 0.0)
    assert offer is not None
    assert made.done(offer, Outcome.COOLDOWN, 0.0) is False
    fallback = made.offer(root(100), 100, 1.0)
    assert fallback is not None
    assert fallback.source == "nodes"
    made.done(fallback, Outcome.COOLDOWN, 1.0)
    assert made.offer(root(100), 100, 1.0) is None
    assert made.next_change(root(100), 1.0) == 3.0
    assert asked(made, 99, 1, 1.0) == ["a"]
    assert asked(made, 100, 1, 3.0) == ["a"]


def test_a_good_result_changes_nothing() -> None:
    made = manager()
    made.credit("a", root(100), 100)
    offer = made.offer(root(100), 100, 0.0)
    assert offer is not None
    assert made.done(offer, Outcome.NOOP, 0.0) is False
    assert asked(made, 100, 2) == ["a", "a"]


@pytest.mark.parametrize("enabled", [True, False])
def test_blacklisting_removes_a_peer_everywhere_only_if_enabled(enabled: bool) -> None:
    made = manager(blacklist_peers=enabled)
    for height in (98, 99, 100):
        made.credit("bad", root(height), height)
        made.credit("good", root(height), height)
    offer = made.offer(root(100), 100, 0.0)
    assert offer is not None
    assert offer.peer == "bad"
    assert made.done(offer, Outcome.BLACKLIST, 0.0) is enabled
    made.credit("bad", root(100), 100)
    made.discovered("bad")
    found = {peer for height in (98, 99, 100) for peer in asked(made, height, 4)}
    assert found == ({"good"} if enabled else {"good", "bad"})
    assert made.is_blacklisted("bad") is enabled


def test_a_peer_that_left_is_asked_no_more_until_it_announces_again() -> None:
    made = manager()
    made.credit("a", root(100), 100)
    made.left("a")
    assert asked(made, 100, 2) == [None, None]
    made.credit("a", root(100), 100)
    assert asked(made, 100, 1) == ["a"]


def test_discovery_adds_and_removes_nodes() -> None:
    made = manager()
    made.discovered("found")
    assert asked(made, 100, 1) == ["found"]
    made.left("found")
    assert asked(made, 100, 1) == [None]


def test_pools_ten_heights_below_the_newest_header_are_kept_and_older_ones_go() -> None:
    made = manager(100)
    for height in range(80, 101):
        made.credit("a", root(height), height)
    made.collect(30.0)
    assert [pool["height"] for pool in made.pools(30.0)] == [str(height) for height in range(100, 89, -1)]
    for height in range(101, 201):
        made.header(height, root(height), 60.0)
    assert len(made.pools(60.0)) <= 21 + 100  # until the next collection
    made.collect(90.0)
    assert len(made.pools(90.0)) == 11


def test_late_announcers_do_not_bring_back_a_pool_that_is_gone() -> None:
    """A regression others had: the pool was created anew, and later held against everybody in it."""
    made = manager(100)
    made.header(120, root(120), 0.0)
    made.collect(0.0)
    made.credit("late", root(100), 100)
    assert made.pool_peers(root(100)) == []
    assert "late" not in made.nodes
    assert made.offer(root(100), 100, 0.0) is None


def test_a_hash_that_is_not_on_our_chain_is_remembered_and_bounded() -> None:
    made = manager()
    assert made.mismatch("liar", root(7)) is False
    assert made.is_bad_hash(root(7))
    for number in range(SHREX_BLACKLISTED_HASHES):
        made.mismatch("liar", root(1_000 + number))
    assert not made.is_bad_hash(root(7))
    assert made.statistics(0.0)["blacklisted_hashes"] == SHREX_BLACKLISTED_HASHES


def test_everything_the_manager_keeps_is_bounded() -> None:
    made = manager(100, blacklist_peers=True)
    for number in range(5_000):
        made.credit(f"p{number}", root(100), 100)
        made.offer(root(10**6 + number), 10**6 + number, 0.0)
        made.offer(sha256(b"x%d" % number).digest(), 100, 0.0)
        made.mismatch(f"q{number}", root(number))
    found = made.statistics(0.0)
    assert len(made.pool_peers(root(100))) == SHREX_POOL_PEERS
    assert found["nodes"] == SHREX_NODES
    assert found["pools"] <= 21 + 110
    assert found["blacklisted_peers"] == SHREX_BLACKLISTED_PEERS


def test_before_any_header_a_request_may_wait_for_any_block() -> None:
    made = PeerManager()
    assert made.offer(root(7_000_000), 7_000_000, 0.0) is None
    made.credit("a", root(7_000_000), 7_000_000)
    assert asked(made, 7_000_000, 1) == ["a"]


def test_ten_thousand_headers_at_once_leave_a_window_of_pools_and_old_ones_go_while_no_headers_come() -> None:
    made = PeerManager()
    for height in range(1, 10_001):
        made.header(height, root(height), 0.0)
    assert len(made.pools(0.0)) <= 2 * (10 + 100)
    made.tick(29.9)
    assert len(made.pools(29.9)) > 11
    made.tick(30.0)
    assert [pool["height"] for pool in made.pools(30.0)] == [str(height) for height in range(10_000, 9_989, -1)]


def test_blocks_with_the_same_data_share_a_pool_that_lives_as_long_as_the_newest() -> None:
    made = manager(100)
    made.credit("a", root(95), 95)
    made.header(101, root(95), 1.0)
    for height in range(102, 109):
        made.header(height, root(height), 1.0)
    made.collect(30.0)
    assert made.pool_peers(root(95)) == ["a"]
    assert made.offer(root(95), 101, 30.0) == Offer("a", root(95), 101, "pool")
