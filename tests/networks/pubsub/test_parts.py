"""Seen messages, outboxes, the message cache, fading counts and scores: each with its bound."""

from __future__ import annotations

import pytest

from syncline.formats.framing import Framing
from syncline.formats.pubsub import Control, Have, Prune, Subscribe, decode_rpc
from syncline.networks.decay import Decaying
from syncline.networks.pubsub import cache, score
from syncline.networks.pubsub.cache import MessageCache
from syncline.networks.pubsub.outbox import Outbox, message_frame, together
from syncline.networks.pubsub.score import Scores
from syncline.networks.pubsub.seen import Seen


def test_a_copy_is_a_repeat_and_another_message_under_its_id_is_not() -> None:
    seen = Seen(limit=10, seconds=120.0)
    assert seen.look(b"id", b"signature", 0.0) == "new"
    seen.add(b"id", b"signature", 0.0)
    assert seen.look(b"id", b"signature", 1.0) == "repeat"
    assert seen.look(b"id", b"another", 1.0) == "differs"
    assert seen.look(b"id", b"signature", 120.0) == "new"


def test_what_was_seen_is_bounded_in_number_and_time() -> None:
    seen = Seen(limit=100, seconds=120.0)
    for number in range(1_000):
        seen.add(str(number).encode(), b"", 0.0)
    assert len(seen) == 100
    assert b"999" in seen
    assert b"899" not in seen
    seen.add(b"later", b"", 121.0)
    assert len(seen) == 1


def test_a_message_is_accepted_for_the_first_time_once_and_remembered_from_then_on() -> None:
    seen = Seen(limit=2, seconds=120.0)
    seen.add(b"id", b"signature", 0.0)
    seen.add(b"other", b"", 1.0)
    assert [seen.accept(b"id", 119.0), seen.accept(b"id", 119.5)] == ["first", "again"]
    assert seen.look(b"id", b"signature", 238.0) == "repeat"
    assert seen.look(b"id", b"signature", 239.0) == "new"
    seen.add(b"ours", b"", 120.0, accepted=True)
    assert seen.accept(b"ours", 120.0) == "again"
    assert (b"other" in seen, seen.accept(b"other", 120.0), len(seen)) == (False, "forgotten", 2)


def test_an_outbox_takes_messages_up_to_its_bytes_but_always_one() -> None:
    outbox = Outbox(limit=100)
    assert outbox.offer(bytes(500))
    assert not outbox.offer(b"x")
    assert outbox.take(64) == bytes(500)
    assert outbox.leaving == 1
    outbox.left()
    assert [outbox.offer(bytes(40)) for _ in range(3)] == [True, True, False]
    assert (outbox.bytes, outbox.messages) == (80, 2)
    assert len(outbox.take(50)) == 40
    assert len(outbox.take(50)) == 40
    assert not outbox
    assert (outbox.bytes, outbox.take(50)) == (0, b"")


def test_announcements_and_control_go_before_messages() -> None:
    outbox = Outbox()
    outbox.offer(message_frame(b"message"))
    outbox.tell(Control(graft=("/t",)))
    outbox.announce("/t", True)
    outbox.announce("/u", True)
    outbox.announce("/t", False)
    frames = Framing("varint", 10_000).reader().feed(outbox.take(10_000))
    subscriptions, control, message = map(decode_rpc, frames)
    assert subscriptions.subscriptions == (Subscribe("/t", False), Subscribe("/u", True))
    assert control.control == Control(graft=("/t",))
    assert message.messages == (b"message",)


def test_control_messages_of_one_kind_travel_together_in_their_order() -> None:
    ids = [b"%d" % number for number in range(12)]
    told = [Control(graft=("/t",)), Control(graft=("/u",)), *(Control(unwanted=(id,)) for id in ids)]
    told += [Control(have=(Have("/t", (b"x",)),)), Control(prune=(Prune("/t", 60),)), Control(prune=(Prune("/u", 60),))]
    assert together(told) == [
        Control(graft=("/t", "/u")),
        Control(unwanted=tuple(ids[:10])),
        Control(unwanted=tuple(ids[10:])),
        Control(have=(Have("/t", (b"x",)),)),
        Control(prune=(Prune("/t", 60), Prune("/u", 60))),
    ]


def test_control_messages_beyond_the_bound_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.networks.pubsub.outbox.PUBSUB_OUTBOX_CONTROL", 10)
    outbox = Outbox()
    for number in range(15):
        outbox.tell(Control(want=(b"%d" % number,)))
    assert outbox.dropped_control == 5


def test_recent_messages_can_be_asked_for_three_times_for_five_heartbeats() -> None:
    kept = MessageCache()
    kept.put(b"id", "/t", b"raw")
    assert [kept.ask(b"id", "peer") for _ in range(4)] == [b"raw", b"raw", b"raw", None]
    assert kept.ask(b"id", "other") == b"raw"
    announced = []
    for _ in range(cache.HISTORY):
        announced.append(kept.announced("/t"))
        kept.shift()
    assert announced == [[b"id"]] * cache.GOSSIP + [[]] * (cache.HISTORY - cache.GOSSIP)
    assert (kept.ask(b"id", "third"), kept.bytes) == (None, 0)


def test_the_cache_forgets_the_oldest_beyond_its_bytes() -> None:
    kept = MessageCache(limit=1_000)
    for number in range(100):
        kept.put(b"%d" % number, "/t", bytes(100))
    assert kept.bytes == 1_000
    assert kept.ask(b"89", "peer") is None
    assert kept.ask(b"90", "peer") == bytes(100)
    assert len(kept.announced("/t")) == 10


def test_counts_fade_by_half_in_a_half_life_and_names_are_bounded() -> None:
    counts = Decaying(half_life=10.0, limit=3)
    assert counts.add("a", 8.0, 0.0) == 8.0
    assert counts.at("a", 10.0) == 4.0
    assert counts.add("a", 1.0, 20.0) == 3.0
    for name in "bcd":
        counts.add(name, 1.0, 20.0)
    assert (len(counts), counts.at("a", 20.0)) == (3, 0.0)


def test_bringing_news_raises_a_score_and_invalid_messages_sink_it() -> None:
    scores = Scores()
    assert scores.of("p", 0.0) == 0.0
    for _ in range(20):
        scores.delivered_first("p", 0.0)
    assert scores.of("p", 2.0) == pytest.approx(1.0, rel=0.05)
    for _ in range(4):
        scores.invalid("p", 2.0)
    assert scores.of("p", 2.0) < score.GOSSIP
    for _ in range(6):
        scores.invalid("p", 2.0)
    assert scores.of("p", 2.0) < score.GRAYLIST
    assert scores.of("p", 600.0) == pytest.approx(0.0, abs=0.01)


def test_a_few_slips_are_free_and_time_in_the_mesh_counts_only_while_there() -> None:
    scores = Scores()
    for _ in range(4):
        scores.misbehaved("p", 0.0)
    assert scores.of("p", 0.0) == 0.0
    scores.grafted("q", "/t", 0.0)
    assert scores.of("q", 100.0) == pytest.approx(1.0)
    scores.pruned("q", "/t")
    assert scores.of("q", 101.5) == 0.0
