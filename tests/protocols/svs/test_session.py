"""A member's conversation: announcing, mapping, fetching, retrying, refusing, delivering."""

from __future__ import annotations

import pytest

from syncline.core.errors import OverloadedError
from syncline.core.limits import (
    SVS_HINTS_PER_NODE,
    SVS_JOBS_PER_NODE,
    SVS_PIGGYBACK_BYTES,
    SVS_SUBSCRIPTIONS,
    SVS_UNDELIVERED,
    SVS_WINDOW,
)
from syncline.core.verdict import Reason, ignore
from syncline.formats.ndn import names
from syncline.formats.ndn.packets import encode_data
from syncline.formats.ndn.signing import Digest, Hmac
from syncline.protocols.svs import wire
from syncline.protocols.svs.rules import Judged, Keys, Trust
from syncline.protocols.svs.session import Deliver, Publication
from syncline.protocols.svs.session.conversation import Session
from syncline.protocols.svs.wire.mapping import MappingEntry, encode_mapping, timestamp_block
from tests.protocols.svs.conftest import ALICE, BOB, GROUP, WALL, Desk, entry, mapping, outers

ME = names.parse("/me")


# announcing


def test_a_publication_is_announced_with_its_mapping() -> None:
    desk = Desk()
    desk.session.published(ME, entry(1, "/chat/1"), desk.now)
    desk.session.published(ME, entry(2, "/chat/2"), desk.now)
    desk.tick()
    told = wire.MappingData(ME, (entry(1, "/chat/1"), entry(2, "/chat/2")))
    assert desk.announced() == [({"/me": 2}, told)]
    desk.tick(40)
    assert desk.announced() == [({"/me": 2}, None)]  # the periodic one has no news


def test_each_node_of_a_member_has_numbers_of_its_own() -> None:
    desk = Desk()
    other = names.parse("/me/too")
    desk.session.join(other, 7)
    desk.session.published(ME, entry(1, "/a"), desk.now)
    desk.session.published(other, entry(8, "/b"), desk.now)
    desk.tick()
    first, second = desk.announced()
    assert first == ({"/me": 1, "/me/too": 8}, wire.MappingData(ME, (entry(1, "/a"),)))
    assert second == ({"/me": 1, "/me/too": 8}, wire.MappingData(other, (entry(8, "/b"),)))
    assert (desk.session.last(ME), desk.session.last(other)) == (1, 8)


def test_mapping_data_in_an_announcement_is_bounded_and_keeps_the_newest() -> None:
    desk = Desk()
    for seq in range(1, 201):
        desk.session.published(ME, MappingEntry(seq, names.generic(bytes(100))), desk.now)
    desk.tick()
    [(_, told)] = desk.announced()
    assert told is not None
    assert len(encode_mapping(ME, told.entries)) <= SVS_PIGGYBACK_BYTES + 20
    assert told.entries[-1].seq == 200
    assert 30 < len(told.entries) < 40


def test_a_member_that_forgot_its_numbers_takes_them_from_the_group() -> None:
    desk = Desk(last=2)
    desk.hear(me=9)
    assert desk.session.last(ME) == 9
    assert desk.session.vector == {ME: 9}
    desk.hear(me=4)
    assert desk.session.last(ME) == 9


def test_a_publication_kept_while_the_group_told_us_more_does_not_turn_our_numbers_back() -> None:
    desk = Desk()
    desk.hear(me=9)  # while number 1 was being kept
    desk.session.published(ME, entry(1, "/chat/1"), desk.now)
    assert (desk.session.last(ME), desk.session.vector[ME]) == (9, 9)


# mapping and fetching


def test_without_subscriptions_nothing_is_fetched() -> None:
    desk = Desk(backlog=2)
    desk.hear(alice=3)
    desk.hear(alice=7)
    assert (desk.names(), desk.session.vector[ALICE]) == ([], 7)
    desk.session.subscribe(names.parse("/chat"))
    desk.tick()
    assert desk.names() == ["/alice/group/MAPPING/%06/%07"]  # the backlog waits for the first subscription


def test_a_node_nobody_subscribed_to_is_not_fetched_from() -> None:
    desk = Desk()
    desk.session.subscribe_to_producer(names.parse("/bob"))
    desk.hear(alice=3)
    assert desk.names() == []
    desk.session.subscribe(names.parse("/chat"))
    desk.hear(alice=4)
    assert desk.names() == ["/alice/group/MAPPING/%04/%04"]  # from then on


def test_a_topic_subscription_fetches_the_mapping_and_then_what_matches() -> None:
    desk = Desk()
    number = desk.session.subscribe(names.parse("/chat"))
    desk.hear(alice=2)
    [query] = desk.asks()
    assert (names.text(query.name), query.can_be_prefix, query.lifetime) == ("/alice/group/MAPPING/%01/%02", False, 2.0)
    desk.answer(query, mapping(1, 2, entry(1, "/chat/hello"), entry(2, "/news/x")))
    [ask] = desk.asks()
    assert (names.text(ask.name), ask.can_be_prefix) == ("/alice/group/%01", True)
    desk.answer(ask, outers(1, "/chat/hello")[0])
    assert desk.deliveries() == [("/alice", 1, "/chat/hello", b"hi", (number,))]
    assert desk.session.settled() == {ALICE: 2}
    assert desk.names() == []


def test_a_prefix_matches_whole_components() -> None:
    desk = Desk()
    desk.session.subscribe(names.parse("/chat"))
    desk.hear(alice=3)
    [query] = desk.asks()
    desk.answer(query, mapping(1, 3, entry(1, "/chatter/x"), entry(2, "/chat"), entry(3, "/other/chat")))
    assert desk.names() == ["/alice/group/%02*"]


def test_a_producer_subscription_fetches_without_mapping() -> None:
    desk = Desk()
    number = desk.session.subscribe_to_producer(names.parse("/alice"))
    desk.hear(alice=1, bob=1)
    [ask] = desk.asks()
    assert names.text(ask.name) == "/alice/group/%01"
    desk.answer(ask, outers(1, "/anything")[0])
    assert desk.deliveries() == [("/alice", 1, "/anything", b"hi", (number,))]


def test_the_mapping_is_fetched_only_of_producers_that_are_not_subscribed_to() -> None:
    desk = Desk()
    topic = desk.session.subscribe(names.parse("/chat"))
    producer = desk.session.subscribe_to_producer(names.parse("/alice"))
    desk.hear(alice=1, bob=1)
    asks = {names.text(ask.name): ask for ask in desk.asks()}
    assert sorted(asks) == ["/alice/group/%01", "/bob/group/MAPPING/%01/%01"]
    desk.answer(asks["/alice/group/%01"], outers(1, "/chat/x")[0])
    assert desk.deliveries() == [("/alice", 1, "/chat/x", b"hi", (topic, producer))]  # both tables count


def test_a_cancelled_subscription_gets_nothing_more() -> None:
    desk = Desk()
    number = desk.session.subscribe(names.parse("/chat"))
    desk.hear(alice=1)
    [query] = desk.asks()
    desk.session.unsubscribe(number)
    desk.answer(query, mapping(1, 1, entry(1, "/chat/x")))
    assert (desk.names(), desk.deliveries()) == ([], [])


def test_mappings_are_asked_for_ten_at_a_time() -> None:
    desk = Desk()
    desk.session.subscribe(names.parse("/chat"))
    desk.hear(alice=1)
    desk.answer(desk.asks()[0], mapping(1, 1, entry(1, "/x")))
    desk.hear(alice=26)
    assert desk.names() == [
        "/alice/group/MAPPING/%02/%0B",
        "/alice/group/MAPPING/%0C/%15",
        "/alice/group/MAPPING/%16/%1A",
    ]


def test_a_mapping_that_came_with_the_sync_interest_saves_the_query() -> None:
    desk = Desk()
    desk.session.subscribe(names.parse("/chat"))
    told = wire.MappingData(ALICE, (entry(2, "/chat/2"), entry(3, "/news/3")))
    desk.hear(told, alice=3)
    assert sorted(desk.names()) == ["/alice/group/%02*"]  # the first one's was not told, and waits its turn
    desk = Desk()
    desk.session.subscribe(names.parse("/chat"))
    desk.hear(wire.MappingData(ALICE, (entry(1, "/chat/1"), entry(2, "/news/2"))), alice=2)
    assert desk.names() == ["/alice/group/%01*"]
    assert desk.session.settled() == {}


def test_news_whose_name_is_known_need_not_wait_for_the_backlog() -> None:
    desk = Desk(backlog=None)
    desk.session.subscribe(names.parse("/chat"))
    desk.hear(alice=1)
    desk.answer(desk.asks()[0], mapping(1, 1, entry(1, "/x")))
    desk.hear(alice=30)
    queries = desk.asks()
    assert len(queries) == 3
    desk.hear(wire.MappingData(ALICE, (entry(32, "/chat/32"), entry(33, "/x"))), alice=33)
    asks = {names.text(ask.name): ask for ask in desk.asks()}
    assert sorted(asks) == ["/alice/group/%20", "/alice/group/MAPPING/%1F/%1F"]
    desk.answer(asks["/alice/group/%20"], outers(32, "/chat/32")[0])
    assert [each[1] for each in desk.deliveries()] == [32]
    assert desk.session.settled() == {ALICE: 1}
    desk.answer(asks["/alice/group/MAPPING/%1F/%1F"], mapping(31, 31, entry(31, "/x")))
    for query, (low, high) in zip(queries, ((2, 11), (12, 21), (22, 30)), strict=True):
        desk.answer(query, mapping(low, high, *(entry(seq, "/x") for seq in range(low, high + 1))))
    assert (desk.session.settled(), desk.names()) == ({ALICE: 33}, [])


def test_mappings_of_a_node_that_is_not_believed_are_not_kept() -> None:
    desk = Desk()
    desk.session.subscribe(names.parse("/chat"))
    desk.hear(wire.MappingData(BOB, (entry(1, "/chat/1"),)), alice=1)
    desk.hear(bob=1)
    assert desk.names() == ["/alice/group/MAPPING/%01/%01", "/bob/group/MAPPING/%01/%01"]


def test_mappings_kept_for_later_are_bounded() -> None:
    desk = Desk()
    desk.session.subscribe(names.parse("/chat"))
    desk.hear(alice=1)
    feed = desk.session._fetching.feeds[ALICE]
    for seq in range(1, 1_000):
        feed.hint(entry(seq, "/x"))
    assert len(feed.hints) == SVS_HINTS_PER_NODE
    assert 1 not in feed.hints


def test_a_number_without_a_mapping_is_reported() -> None:
    desk = Desk()
    desk.session.subscribe(names.parse("/chat"))
    desk.hear(alice=3)
    desk.answer(desk.asks()[0], mapping(1, 3))
    assert desk.failures() == [("/alice", 1, 3, "mapping", "", True)]
    assert (desk.names(), desk.session.statistics()["fetching"]) == ([], 0)


# segments


def fetched(desk: Desk, packets: list[bytes]) -> None:
    """Answer everything that is asked of one publication."""
    while asks := desk.asks():
        for ask in asks:
            name = names.text(ask.name)
            index = int(name.rpartition("seg=")[2]) if "seg=" in name else 0
            desk.answer(ask, packets[index])


def test_all_segments_up_to_the_last_are_fetched_and_put_together_in_order() -> None:
    desk = Desk()
    desk.session.subscribe_to_producer(ALICE)
    desk.hear(alice=1)
    payload = bytes(number % 253 for number in range(20_000))
    packets = outers(1, "/big", payload)
    assert len(packets) == 3
    [first] = desk.asks()
    desk.answer(first, packets[0])
    rest = desk.asks()
    assert [names.text(ask.name) for ask in rest] == ["/alice/group/%01/v=0/seg=1", "/alice/group/%01/v=0/seg=2"]
    assert not any(ask.can_be_prefix for ask in rest)
    desk.answer(rest[1], packets[2])
    assert desk.deliveries() == []
    desk.answer(rest[0], packets[1])
    [(_, _, topic, got, _)] = desk.deliveries()
    assert (topic, got) == ("/big", payload)


def test_the_first_answer_may_be_any_segment() -> None:
    desk = Desk()
    desk.session.subscribe_to_producer(ALICE)
    desk.hear(alice=1)
    packets = outers(1, "/big", bytes(20_000))
    [first] = desk.asks()
    desk.answer(first, packets[1])
    assert [names.text(ask.name)[-5:] for ask in desk.asks()] == ["seg=0", "seg=2"]


def test_a_single_segment_is_whole() -> None:
    desk = Desk()
    desk.session.subscribe_to_producer(ALICE)
    desk.hear(alice=1)
    final = names.parse("/seg=0")
    inner = encode_data(names.parse("/chat/x/v=0/seg=0"), b"whole", Digest(), final_block=final)
    outer = encode_data(
        wire.outer_name(ALICE, GROUP, 1, 0), inner, Digest(), content_type=6, freshness=1, final_block=final
    )
    desk.answer(desk.asks()[0], outer)
    assert [each[2:4] for each in desk.deliveries()] == [("/chat/x", b"whole")]
    assert desk.names() == []


def test_the_window_bounds_what_is_under_way() -> None:
    desk = Desk(window=8, backlog=None)
    desk.session.subscribe_to_producer(ALICE)
    desk.hear(alice=1)
    desk.answer(desk.asks()[0], outers(1, "/x")[0])
    desk.hear(alice=100)
    asks = desk.asks()
    assert len(asks) == 8
    desk.answer(asks[0], outers(2, "/x")[0])
    assert len(desk.asks()) == 1


def test_segments_share_the_window() -> None:
    desk = Desk(window=8)
    desk.session.subscribe_to_producer(ALICE)
    desk.hear(alice=1)
    packets = outers(1, "/big", bytes(200_000))
    desk.answer(desk.asks()[0], packets[0])
    assert len(desk.asks()) == 8


def test_segments_that_contradict_each_other_are_refused() -> None:
    desk = Desk()
    desk.session.subscribe_to_producer(ALICE)
    for seq, (name, size) in enumerate([("/other", 20_000), ("/big", 30_000)], 1):
        desk.hear(alice=seq)
        desk.answer(desk.asks()[0], outers(seq, "/big", bytes(20_000))[0])
        ask, _ = desk.asks()
        desk.answer(ask, outers(seq, name, bytes(size))[1])
        assert desk.failures() == [("/alice", seq, seq, "outer", "invalid_field", True)]
        assert desk.deliveries() == []
    assert desk.session.settled() == {ALICE: 2}


def test_a_publication_with_another_name_than_its_mapping_says_is_refused() -> None:
    desk = Desk()
    desk.session.subscribe(names.parse("/chat"))
    desk.hear(alice=1)
    desk.answer(desk.asks()[0], mapping(1, 1, entry(1, "/chat/hello")))
    desk.answer(desk.asks()[0], outers(1, "/chat/goodbye")[0])
    assert desk.failures() == [("/alice", 1, 1, "outer", "invalid_field", True)]
    assert desk.deliveries() == []


def test_a_false_name_that_came_with_a_sync_interest_costs_a_query_and_not_the_publication() -> None:
    desk = Desk()
    number = desk.session.subscribe(names.parse("/chat"))
    desk.hear(wire.MappingData(ALICE, (entry(1, "/chat/lie"),)), alice=1)
    [ask] = desk.asks()
    desk.answer(ask, outers(1, "/chat/true")[0])
    [query] = desk.asks()
    assert (names.text(query.name), desk.deliveries(), desk.failures()) == ("/alice/group/MAPPING/%01/%01", [], [])
    desk.answer(query, mapping(1, 1, entry(1, "/chat/true")))
    [ask] = desk.asks()
    desk.answer(ask, outers(1, "/chat/true")[0])
    assert desk.deliveries() == [("/alice", 1, "/chat/true", b"hi", (number,))]
    assert desk.session.settled() == {ALICE: 1}


def test_names_are_asked_for_fresh_and_packets_from_wherever_they_are() -> None:
    desk = Desk()
    desk.session.subscribe(names.parse("/chat"))
    desk.hear(alice=1)
    [query] = desk.asks()
    desk.answer(query, mapping(1, 1, entry(1, "/chat/1")))
    [ask] = desk.asks()
    assert (query.must_be_fresh, ask.must_be_fresh) == (True, False)  # an old answer may lack what was published since


def test_a_packet_of_another_publication_is_refused() -> None:
    desk = Desk()
    desk.session.subscribe_to_producer(ALICE)
    desk.hear(alice=2)
    desk.answer(desk.asks()[0], outers(2, "/x")[0])
    assert desk.failures() == [("/alice", 1, 1, "outer", "invalid_field", True)]


def test_a_mapping_instead_of_a_packet_is_refused() -> None:
    desk = Desk(refetches=0)
    desk.session.subscribe_to_producer(ALICE)
    desk.hear(alice=1)
    desk.answer(desk.asks()[0], mapping(1, 1))
    assert desk.failures() == [("/alice", 1, 1, "outer", "invalid_field", True)]


# retries


def test_a_request_that_times_out_is_repeated_with_growing_pauses_and_then_given_up() -> None:
    desk = Desk(retries=2)
    desk.session.subscribe_to_producer(ALICE)
    desk.hear(alice=1)
    [ask] = desk.asks()
    desk.answer(ask, None)
    assert desk.asks() == []
    desk.tick(0.9)
    assert desk.asks() == []
    desk.tick(0.2)
    [again] = desk.asks()
    assert again.name == ask.name
    desk.answer(again, None)
    desk.tick(1.9)
    assert desk.asks() == []
    desk.tick(0.2)
    [last] = desk.asks()
    assert desk.failures() == []
    desk.answer(last, None)
    assert desk.failures() == [("/alice", 1, 1, "outer", "", True)]
    desk.tick(100)
    assert desk.asks() == []


def test_a_request_may_be_repeated_for_ever() -> None:
    desk = Desk(retries=None)
    desk.session.subscribe_to_producer(ALICE)
    desk.hear(alice=1)
    for _ in range(50):
        [ask] = desk.asks()
        desk.answer(ask, None)
        assert desk.session.deadline <= desk.now + 8.0
        desk.tick(8.1)
    assert desk.failures() == []
    desk.answer(desk.asks()[0], outers(1, "/late")[0])
    assert len(desk.deliveries()) == 1


def test_names_missing_from_an_answer_are_asked_for_again() -> None:
    desk = Desk()
    desk.session.subscribe(names.parse("/"))
    desk.hear(alice=6)
    [query] = desk.asks()
    desk.answer(query, mapping(1, 6, entry(2, "/b"), entry(3, "/c")))  # as many as its packet took
    asked = {names.text(ask.name): ask for ask in desk.asks()}
    assert sorted(asked) == [
        "/alice/group/%02",
        "/alice/group/%03",
        "/alice/group/MAPPING/%01/%01",
        "/alice/group/MAPPING/%04/%06",
    ]
    desk.answer(asked["/alice/group/MAPPING/%04/%06"], mapping(4, 6, *(entry(seq, "/x") for seq in (4, 5, 6))))
    assert [ask.name for ask in desk.asks()] == [wire.outer_name(ALICE, GROUP, seq) for seq in (4, 5, 6)]
    assert desk.failures() == []
    desk.answer(asked["/alice/group/MAPPING/%01/%01"], mapping(1, 1))
    assert desk.failures() == [("/alice", 1, 1, "mapping", "", True)]
    assert (desk.asks(), desk.session.settled()) == ([], {ALICE: 1})


def test_a_packet_our_own_side_had_no_room_for_is_fetched_until_there_is() -> None:
    desk = Desk(refetches=0, retries=0)
    number = desk.session.subscribe_to_producer(ALICE)
    desk.hear(alice=1)
    for _ in range(5):
        [ask] = desk.asks()
        desk.session.answered(ask.token, outers(1, "/a")[0], 0, desk.now)
        desk.session.judged(ask.token, Judged(ignore(Reason.OVERLOADED, "the disk is full")), desk.now)
        desk.session.take()
        desk.tick(10.0)
    [ask] = desk.asks()
    desk.answer(ask, outers(1, "/a")[0])
    assert desk.deliveries() == [("/alice", 1, "/a", b"hi", (number,))]
    assert desk.failures() == []


def test_a_mapping_that_times_out_is_repeated_and_given_up_for_its_whole_range() -> None:
    desk = Desk(retries=1)
    desk.session.subscribe(names.parse("/chat"))
    desk.hear(alice=3)
    desk.answer(desk.asks()[0], None)
    desk.tick(2)
    desk.answer(desk.asks()[0], None)
    assert desk.failures() == [("/alice", 1, 3, "mapping", "", True)]


def test_a_lost_segment_fails_the_publication_once() -> None:
    desk = Desk(retries=0)
    desk.session.subscribe_to_producer(ALICE)
    desk.hear(alice=1)
    packets = outers(1, "/big", bytes(30_000))
    desk.answer(desk.asks()[0], packets[0])
    one, two, three = desk.asks()
    desk.answer(one, None)
    assert desk.failures() == [("/alice", 1, 1, "segments", "", True)]
    desk.answer(two, packets[2])
    desk.answer(three, None)
    assert (desk.failures(), desk.deliveries(), desk.names()) == ([], [], [])
    assert desk.session.statistics()["reassembly_bytes"] == 0


# refusing


WRONG = Hmac(b"wrong")
RIGHT = Hmac(b"right")
KEYS = Keys([RIGHT])
STRICT = Trust(outer=KEYS, inner=KEYS, mapping=KEYS)


def test_the_application_is_told_of_a_packet_that_does_not_validate_and_it_is_fetched_again() -> None:
    desk = Desk(trust=STRICT, refetches=1)
    desk.session.subscribe_to_producer(ALICE)
    desk.hear(alice=1)
    desk.answer(desk.asks()[0], outers(1, "/x", outer=WRONG, inner=RIGHT)[0])
    assert desk.failures() == [("/alice", 1, 1, "outer", "invalid_signature", False)]
    desk.tick(2)
    desk.answer(desk.asks()[0], outers(1, "/x", outer=RIGHT, inner=RIGHT)[0])
    assert len(desk.deliveries()) == 1


@pytest.mark.parametrize(
    ("outer", "inner", "step"), [(WRONG, RIGHT, "outer"), (RIGHT, WRONG, "inner"), (WRONG, WRONG, "outer")]
)
def test_a_wrong_key_is_refused_at_its_own_step(outer: Hmac, inner: Hmac, step: str) -> None:
    desk = Desk(trust=STRICT, refetches=0)
    desk.session.subscribe_to_producer(ALICE)
    desk.hear(alice=1)
    desk.answer(desk.asks()[0], outers(1, "/x", outer=outer, inner=inner)[0])
    assert desk.failures() == [("/alice", 1, 1, step, "invalid_signature", True)]
    assert (desk.deliveries(), desk.names()) == ([], [])


def test_a_mapping_with_a_wrong_key_is_refused_and_told() -> None:
    desk = Desk(trust=STRICT, refetches=1)
    desk.session.subscribe(names.parse("/chat"))
    desk.hear(alice=2)
    for final in (False, True):
        desk.answer(desk.asks()[0], mapping(1, 2, entry(1, "/chat/1"), signer=WRONG))
        assert desk.failures() == [("/alice", 1, 2, "mapping", "invalid_signature", final)]
        desk.tick(2)
    assert (desk.deliveries(), desk.names()) == ([], [])


def test_one_bad_segment_spoils_the_publication() -> None:
    desk = Desk(trust=STRICT, refetches=0)
    desk.session.subscribe_to_producer(ALICE)
    desk.hear(alice=1)
    good = outers(1, "/big", bytes(20_000), outer=RIGHT, inner=RIGHT)
    bad = outers(1, "/big", bytes(20_000), outer=RIGHT, inner=WRONG)
    desk.answer(desk.asks()[0], good[0])
    one, two = desk.asks()
    desk.answer(one, bad[1])
    desk.answer(two, good[2])
    assert desk.failures() == [("/alice", 1, 1, "inner", "invalid_signature", True)]
    assert desk.deliveries() == []


# choosing


def test_a_filter_sees_the_mapping_and_decides_before_anything_is_fetched() -> None:
    desk = Desk()
    seen: list[MappingEntry] = []

    def only_even(found: MappingEntry) -> bool:
        seen.append(found)
        return found.seq % 2 == 0

    desk.session.subscribe(names.parse("/chat"), only_even)
    desk.hear(alice=3)
    extra = timestamp_block(5)
    desk.answer(desk.asks()[0], mapping(1, 3, *(entry(seq, "/chat/x", extra) for seq in (1, 2, 3))))
    assert desk.names() == ["/alice/group/%02*"]
    assert [(each.seq, each.timestamp) for each in seen] == [(1, 5), (2, 5), (3, 5)]


def test_a_filter_on_a_producer_needs_the_mapping() -> None:
    desk = Desk()
    desk.session.subscribe_to_producer(ALICE, lambda found: found.seq > 1)
    desk.hear(alice=2)
    desk.answer(desk.asks()[0], mapping(1, 2, entry(1, "/a"), entry(2, "/b")))
    assert desk.names() == ["/alice/group/%02*"]


def test_a_filter_on_a_topic_is_not_passed_by_because_the_producer_is_subscribed_to() -> None:
    desk = Desk()
    every = desk.session.subscribe_to_producer(ALICE)
    picky = desk.session.subscribe(names.parse("/chat"), lambda found: found.seq > 1)
    desk.hear(alice=2)
    [query] = desk.asks()
    desk.answer(query, mapping(1, 2, entry(1, "/chat/1"), entry(2, "/chat/2")))
    for ask, packet in zip(desk.asks(), (outers(1, "/chat/1"), outers(2, "/chat/2")), strict=True):
        desk.answer(ask, packet[0])
    assert [(seq, numbers) for _, seq, _, _, numbers in desk.deliveries()] == [(1, (every,)), (2, (picky, every))]


def test_old_publications_are_not_fetched() -> None:
    desk = Desk(max_age=60.0)
    desk.session.subscribe(names.parse("/chat"))
    desk.tick(10)
    desk.hear(alice=3)
    now = WALL + 10_000_000
    told = [
        entry(1, "/chat/1", timestamp_block(now - 61_000_000)),
        entry(2, "/chat/2", timestamp_block(now - 59_000_000)),
        entry(3, "/chat/3"),  # without a time, age is not a reason
    ]
    desk.answer(desk.asks()[0], mapping(1, 3, *told))
    assert desk.names() == ["/alice/group/%02*", "/alice/group/%03*"]
    assert desk.skipped() == [(1, 1, "max_age")]


def test_age_counts_for_mappings_that_came_with_the_sync_interest_too() -> None:
    desk = Desk(max_age=60.0)
    desk.session.subscribe_to_producer(ALICE)
    told = (entry(1, "/chat/1", timestamp_block(WALL - 61_000_000)), entry(2, "/chat/2", timestamp_block(WALL)))
    desk.hear(wire.MappingData(ALICE, told), alice=2)
    assert desk.names() == ["/alice/group/%02*"]


def test_a_late_joiner_fetches_at_most_the_backlog() -> None:
    desk = Desk(backlog=5)
    desk.session.subscribe_to_producer(ALICE)
    desk.hear(alice=100)
    assert desk.skipped() == [(1, 95, "backlog")]
    assert desk.names() == ["/alice/group/%60*"]


def test_the_backlog_does_not_cut_what_is_published_while_we_listen() -> None:
    desk = Desk(backlog=5)
    desk.session.subscribe_to_producer(ALICE)
    desk.hear(alice=1)
    desk.answer(desk.asks()[0], outers(1, "/x")[0])
    desk.hear(alice=50)
    assert (desk.skipped(), len(desk.asks())) == ([], 49)


def test_from_now_on_means_nothing_that_was_there_when_we_joined() -> None:
    desk = Desk(from_now=True)
    desk.session.subscribe_to_producer(b"")
    desk.tick(0.5)
    desk.hear(alice=7)
    assert (desk.skipped(), desk.names()) == ([(1, 7, "from_now")], [])
    desk.hear(alice=8)
    assert desk.names() == ["/alice/group/%08*"]
    desk.tick(1.0)
    desk.hear(alice=8, bob=1)  # a node that appears later is new
    assert desk.names() == ["/bob/group/%01*"]


def test_a_restarted_member_goes_on_after_what_it_had_settled() -> None:
    desk = Desk(backlog=1)
    desk.session.resume(ALICE, 40)
    desk.session.subscribe_to_producer(ALICE)
    desk.hear(alice=40)
    assert desk.names() == []
    desk.hear(alice=43)
    assert (desk.names(), desk.skipped()) == (
        ["/alice/group/%29*", "/alice/group/%2A*", "/alice/group/%2B*"],
        [],
    )


def test_what_is_settled_is_what_lies_below_everything_open() -> None:
    desk = Desk()
    desk.session.subscribe_to_producer(ALICE)
    desk.hear(alice=1)
    desk.answer(desk.asks()[0], outers(1, "/x")[0])
    desk.hear(alice=4)
    two, three, four = desk.asks()
    desk.answer(three, outers(3, "/x")[0])
    desk.answer(four, outers(4, "/x")[0])
    assert desk.session.settled() == {ALICE: 1}
    desk.answer(two, outers(2, "/x")[0])
    assert desk.session.settled() == {ALICE: 4}


# bounds


def test_nothing_new_is_fetched_while_the_application_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.protocols.svs.session.fetching.SVS_UNDELIVERED", 3)
    desk = Desk(backlog=None)
    desk.session.subscribe_to_producer(ALICE)
    desk.hear(alice=1)
    desk.answer(desk.asks()[0], outers(1, "/x")[0])
    desk.hear(alice=100)
    window = desk.asks()
    assert len(window) == 64
    for seq, ask in enumerate(window, 2):
        desk.answer(ask, outers(seq, "/x")[0])
    assert len(desk.take(Deliver)) == 65
    assert len(desk.asks()) == 1  # asked for while there was still room
    desk.session.delivered(desk.now)
    desk.tick()
    assert desk.asks() == []
    for _ in range(64):
        desk.session.delivered(desk.now)
    desk.tick()
    assert len(desk.asks()) == 100 - 66
    assert SVS_UNDELIVERED > SVS_WINDOW


def test_publications_of_one_node_under_way_are_bounded() -> None:
    desk = Desk(window=10_000, backlog=None)
    desk.session.subscribe_to_producer(ALICE)
    desk.hear(alice=1)
    desk.answer(desk.asks()[0], outers(1, "/x")[0])
    desk.hear(alice=900)
    assert len(desk.asks()) == SVS_JOBS_PER_NODE


def test_segments_waiting_for_others_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.protocols.svs.session.fetching.SVS_REASSEMBLY_BYTES", 40_000)
    desk = Desk(retries=None)
    desk.session.subscribe_to_producer(b"")

    def fetch_all_but_one(node: bytes) -> None:
        packets = outers(1, "/big", bytes(50_000), node=node)
        desk.answer(desk.asks()[0], packets[0])
        for ask in desk.asks()[1:]:  # the second segment never comes
            desk.answer(ask, packets[int(names.text(ask.name).rpartition("seg=")[2])])

    desk.hear(alice=1)
    fetch_all_but_one(ALICE)
    assert (desk.session.statistics()["reassembly_bytes"], desk.failures()) == (42_000, [])
    desk.hear(bob=1)
    assert desk.asks() == []  # nothing new is begun
    desk.session._fetching.bytes -= 10_000
    desk.hear(bob=1)
    desk.tick()
    fetch_all_but_one(BOB)
    assert desk.failures() == [("/bob", 1, 1, "segments", "overloaded", True)]
    assert desk.session.statistics()["reassembly_bytes"] == 32_000


def test_a_publication_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.protocols.svs.session.fetching.SVS_PUBLICATION_BYTES", 15_000)
    desk = Desk()
    desk.session.subscribe_to_producer(ALICE)
    desk.hear(alice=1)
    fetched(desk, outers(1, "/big", bytes(24_000)))
    assert desk.failures() == [("/alice", 1, 1, "segments", "oversize", True)]


def test_subscriptions_are_bounded() -> None:
    desk = Desk()
    for _ in range(SVS_SUBSCRIPTIONS):
        desk.session.subscribe(names.parse("/x"))
    with pytest.raises(OverloadedError):
        desk.session.subscribe(names.parse("/x"))


def test_answers_nobody_waits_for_are_ignored() -> None:
    desk = Desk()
    session: Session = desk.session
    session.answered(99, b"x", 0, desk.now)
    assert session.take() == []


def test_a_publication_reads_well() -> None:
    found = Publication(
        group=GROUP,
        publisher=ALICE,
        seq=3,
        name=names.parse("/chat/hello"),
        payload=b"hi",
        entry=entry(3, "/chat/hello", timestamp_block(7)),
    )
    assert (found.topic, found.node, found.published_at) == ("/chat/hello", "/alice", 7)
