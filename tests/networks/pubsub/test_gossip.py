"""The GossipSub router alone: events in, what to send out."""

from __future__ import annotations

from random import Random

import pytest

from syncline.core.limits import PUBSUB_CONTROL_PER_HEARTBEAT, PUBSUB_IDS_PER_HEARTBEAT
from syncline.formats.pubsub import Control, Have, Prune
from syncline.networks.pubsub import gossip, score
from syncline.networks.pubsub.gossip import V11, V12, GossipRouter
from syncline.networks.pubsub.router import Router, Send

T = "/t"


def router(peers: int = 0, *, outbound: int = 0, joined: bool = True) -> GossipRouter:
    made = GossipRouter(Random(1))
    if joined:
        made.join(T, 0.0)
    for number in range(peers):
        peer = f"p{number:02}"
        made.add_peer(peer, V12, outbound=number < outbound)
        made.subscribed(peer, T, True, 0.0)
    return made


def told(sends: list[Send], what: str) -> set[str]:
    return {send.peer for send in sends if send.control is not None and getattr(send.control, what)}


def test_joining_grafts_six_and_leaving_prunes_them_with_a_short_backoff() -> None:
    made = router(10, joined=False)
    sends = made.join(T, 0.0)
    assert told(sends, "graft") == made.mesh[T]
    assert len(made.mesh[T]) == gossip.DEGREE
    left = made.leave(T, 1.0)
    assert {send.control.prune for send in left if send.control} == {(Prune(T, 10),)}
    assert len(left) == gossip.DEGREE
    assert T not in made.mesh
    assert len(made.join(T, 2.0)) == 4  # only those that were not just pruned


def test_subscribers_are_grafted_at_once_while_the_mesh_is_thin() -> None:
    made = router()
    for number in range(8):
        made.add_peer(f"p{number}", V12, outbound=False)
        made.subscribed(f"p{number}", T, True, 0.0)
    assert len(made.mesh[T]) == gossip.DEGREE_LOW
    made.subscribed("p0", T, False, 0.0)
    assert "p0" not in made.mesh[T]


def test_a_heartbeat_fills_a_thin_mesh_and_trims_a_fat_one_keeping_some_we_dialled() -> None:
    made = router(30, outbound=5)
    made.heartbeat(1.0)
    for number in range(30):
        made.control(f"p{number:02}", Control(graft=(T,)), (), 1.0)
    assert len(made.mesh[T]) >= gossip.DEGREE_HIGH
    made.mesh[T] |= {f"p{number:02}" for number in range(20)}
    sends = made.heartbeat(2.0)
    assert len(made.mesh[T]) == gossip.DEGREE
    assert len(made.mesh[T] & {f"p{number:02}" for number in range(5)}) >= gossip.DEGREE_OUT
    assert told(sends, "prune").isdisjoint(made.mesh[T])
    assert made.heartbeat(3.0) == []


def test_a_full_mesh_prunes_whoever_grafts_unless_we_dialled_it() -> None:
    made = router(14, outbound=1)
    made.mesh[T] = {f"p{number:02}" for number in range(1, 13)}
    assert made.control("p13", Control(graft=(T,)), (), 0.0) == [Send("p13", Control(prune=(Prune(T, 60),)))]
    assert made.control("p00", Control(graft=(T,)), (), 0.0) == []
    assert "p00" in made.mesh[T]


def test_grafting_during_backoff_is_pruned_again_and_held_against_the_peer() -> None:
    made = router(1)
    made.control("p00", Control(prune=(Prune(T, 60),)), (), 0.0)
    assert made.mesh[T] == set()
    for second in range(8):
        answer = made.control("p00", Control(graft=(T,)), (), float(second))
        assert answer == [Send("p00", Control(prune=(Prune(T, 60),)))]
    assert made.score("p00", 9.0) < score.GOSSIP
    made.heartbeat(10.0)
    assert made.mesh[T] == set()


def test_a_graft_for_a_topic_we_do_not_follow_gets_no_answer() -> None:
    assert router(1).control("p00", Control(graft=("/other",)), (), 0.0) == []


def test_a_backoff_of_years_is_not_believed() -> None:
    made = router(1)
    made.control("p00", Control(prune=(Prune(T, 2**60),)), (), 0.0)
    made.heartbeat(gossip.BACKOFF_MOST + 2.0)
    assert made.mesh[T] == {"p00"}


def test_peers_that_come_and_go_to_be_pruned_are_remembered_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gossip, "PUBSUB_BACKOFFS", 10)
    made = router(0)
    for number in range(30):
        made.add_peer(f"q{number}", V12, outbound=False)
        made.control(f"q{number}", Control(prune=(Prune(T, 3_600),)), (), 0.0)
        made.remove_peer(f"q{number}", 0.0)
    assert list(made._backoff) == [(T, f"q{number}") for number in range(20, 30)]


def test_forwarding_goes_to_the_mesh_except_where_it_came_from_or_is_not_wanted() -> None:
    made = router(4)
    assert made.mesh[T] == {"p00", "p01", "p02", "p03"}
    made.control("p03", Control(unwanted=(b"id",)), (), 0.0)
    assert made.targets_to_forward(T, b"id", ("p00", "author")) == {"p01", "p02"}
    for second in (1.0, 2.0, 3.0):
        made.heartbeat(second)
    assert made.targets_to_forward(T, b"id", ("p00",)) == {"p01", "p02", "p03"}


def test_our_own_messages_are_flooded_to_every_subscriber_that_behaves() -> None:
    made = router(20)
    assert len(made.targets_of_ours(T, 0.0)) == 20
    for _ in range(6):
        made.rejected("p00", T, b"", 0.0)
    assert "p00" not in made.targets_of_ours(T, 0.0)
    assert made.hears("p00", 0.0)
    for _ in range(4):
        made.rejected("p00", T, b"", 0.0)
    assert not made.hears("p00", 0.0)


def test_a_misbehaving_mesh_member_is_dropped_at_the_next_heartbeat() -> None:
    made = router(5)
    made.rejected("p01", T, b"", 0.0)
    sends = made.heartbeat(1.0)
    assert told(sends, "prune") == {"p01"}
    assert "p01" not in made.mesh[T]


def test_a_large_message_makes_us_tell_the_mesh_not_to_send_copies() -> None:
    made = router(3)
    made.add_peer("old", V11, outbound=False)
    made.subscribed("old", T, True, 0.0)
    assert "old" in made.mesh[T]
    sends = made.arrived("p00", T, b"id", gossip.UNWANTED_SIZE, 0.0)
    assert sends == [Send("p01", Control(unwanted=(b"id",))), Send("p02", Control(unwanted=(b"id",)))]
    assert made.arrived("p00", T, b"id2", gossip.UNWANTED_SIZE - 1, 0.0) == []


def test_those_outside_the_mesh_hear_of_messages_and_can_ask_for_them() -> None:
    made = router(9)
    made.accepted(None, T, b"id", b"raw", 0.0)
    sends = made.heartbeat(1.0)
    outside = {f"p{number:02}" for number in range(9)} - made.mesh[T]
    assert told(sends, "have") == outside
    assert made.control("p00", Control(want=(b"id", b"unknown")), (), 1.0) == [Send("p00", None, (b"raw",))]


def test_announced_messages_are_asked_for_once_unless_seen_or_of_another_topic() -> None:
    made = router(2)
    have = Control(have=(Have(T, (b"new", b"seen", b"new")), Have("/other", (b"foreign",))))
    assert made.control("p00", have, {b"seen"}, 0.0) == [Send("p00", Control(want=(b"new",)))]


def test_a_promise_that_is_not_kept_is_held_against_the_peer_and_a_kept_one_is_not() -> None:
    for keeps in (True, False):
        made = router(1)
        for second in range(0, 60, 4):
            id = b"%d" % second
            made.control("p00", Control(have=(Have(T, (id,)),)), (), float(second))
            if keeps:
                made.arrived("p00", T, id, 10, second + 1.0)
            made.heartbeat(second + 4.0)
        assert (made.score("p00", 60.0) >= 0) is keeps


def test_a_promise_that_is_late_because_we_do_not_read_is_held_against_nobody() -> None:
    made = router(1)
    for second in range(0, 60, 4):
        made.control("p00", Control(have=(Have(T, (b"%d" % second,)),)), (), float(second))
        made.excuse("p00")
        made.heartbeat(second + 4.0)
    assert made.score("p00", 60.0) >= 0


def test_control_spam_is_not_heard() -> None:
    made = router(1)
    made.accepted(None, T, b"id", b"raw", 0.0)
    for _ in range(PUBSUB_CONTROL_PER_HEARTBEAT):
        made.control("p00", Control(graft=("/other",)), (), 0.0)
    assert made.control("p00", Control(want=(b"id",)), (), 0.0) == []
    made.heartbeat(1.0)
    assert made.control("p00", Control(want=(b"id",)), (), 1.0) == [Send("p00", None, (b"raw",))]
    assert made.spam == 1


def test_more_ids_than_anybody_needs_are_cut_off() -> None:
    made = router(1)
    ids = tuple(b"%d" % number for number in range(PUBSUB_IDS_PER_HEARTBEAT + 100))
    [send] = made.control("p00", Control(have=(Have(T, ids),)), (), 0.0)
    assert send.control is not None
    assert len(send.control.want) == PUBSUB_IDS_PER_HEARTBEAT
    assert made.control("p00", Control(have=(Have(T, (b"one more",)),)), (), 0.0) == []
    assert made.spam == 0  # not yet more than heartbeats that bunch up bring
    for _ in range(6):
        made.control("p00", Control(have=(Have(T, ids),)), (), 0.0)
    assert made.spam == 4
    assert made.score("p00", 0.0) == 0.0
    for _ in range(3):
        made.control("p00", Control(have=(Have(T, ids),)), (), 0.0)
    assert made.score("p00", 0.0) == -9.0


def test_a_peer_may_say_of_every_large_message_that_it_wants_no_copy() -> None:
    made = router(1)
    for number in range(4_000):
        assert made.control("p00", Control(unwanted=(b"%d" % number,)), (), 0.0) == []
    assert (made.score("p00", 0.0), made.spam) == (0.0, 0)
    assert list(made._unwanted["p00"]) == [b"%d" % number for number in range(4_000 - gossip.UNWANTED_KEPT, 4_000)]
    assert made.targets_to_forward(T, b"3999", ()) == set()
    assert made.targets_to_forward(T, b"4000", ()) == {"p00"}


def test_ids_that_no_message_can_have_are_neither_kept_nor_asked_for() -> None:
    made = router(1)
    giant = bytes(gossip.ID_BYTES + 1)
    assert made.control("p00", Control(have=(Have(T, (giant,)),), unwanted=(giant,)), (), 0.0) == []
    assert not made._unwanted["p00"]


def test_what_is_known_of_a_peer_goes_with_it() -> None:
    made = router(3)
    made.control("p00", Control(have=(Have(T, (b"x",)),), unwanted=(b"y",)), (), 0.0)
    made.remove_peer("p00", 1.0)
    assert "p00" not in made.mesh[T]
    assert made.neighbours(T) == {"p01", "p02"}
    assert (made._promises, made._unwanted) == ({}, {})


def test_flooding_knows_only_who_wants_what() -> None:
    made = Router()
    for peer in "abc":
        made.add_peer(peer, "/floodsub/1.0.0", outbound=False)
        made.subscribed(peer, T, True, 0.0)
    made.subscribed("stranger", T, True, 0.0)
    assert made.targets_of_ours(T, 0.0) == {"a", "b", "c"}
    assert made.targets_to_forward(T, b"", ("a", "c")) == {"b"}
    made.remove_peer("b", 0.0)
    made.subscribed("a", T, False, 0.0)
    assert made.neighbours(T) == {"c"}
    made.subscribed("c", T, False, 0.0)
    made.subscribed("stranger", T, False, 0.0)
    assert made.subscribers == {}
