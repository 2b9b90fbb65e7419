"""The verdict on a frame: from its bytes alone, and from what the node knows."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.core import limits
from syncline.core.record import Arrival, Direction, Incoming
from syncline.core.verdict import ACCEPT, Outcome, Reason
from syncline.journal import Journal
from syncline.protocols.sdsp.content import content_of
from syncline.protocols.sdsp.rules import NOTHING_KNOWN, Known, frame_id, judge, judge_content
from syncline.protocols.sdsp.wire import Frame, decode, delta_frame, encode, freeze_frame, full_frame
from syncline.testing.clock import FakeClock

NOW = 1_700_000_000_000_000


def incoming(raw: bytes) -> Incoming:
    return Incoming(protocol="sdsp", topic="t", raw=raw, peer="peer", received_at=NOW, direction=Direction.IN)


def judged(frame: Frame, known: Known = NOTHING_KNOWN) -> Arrival:
    return judge(incoming(encode(frame)), lambda asked: known)


def verdict(frame: Frame, known: Known) -> tuple[Outcome, Reason | None]:
    arrival = judged(frame, known)
    return arrival.verdict, arrival.reason


def test_a_good_frame_becomes_an_arrival_about_its_object() -> None:
    frame = delta_frame("object-1", 7, 2, "jp", [])
    assert judged(frame, Known(publisher="alice")) == Arrival(
        protocol="sdsp",
        topic="t",
        kind="frame",
        id=b"object-1\x00\x00\x00\x00\x00\x00\x00\x00\x07",
        key="object-1",
        seq=7,
        publisher="alice",
        peer="peer",
        received_at=NOW,
        raw=encode(frame),
        verdict=Outcome.ACCEPT,
    )


def test_bytes_that_are_no_frame_are_rejected_without_asking_anybody() -> None:
    asked: list[Frame] = []

    def lookup(frame: Frame) -> Known:
        asked.append(frame)
        return NOTHING_KNOWN

    arrival = judge(incoming(b'{"uid":"u","serial":0}'), lookup)
    assert (arrival.verdict, arrival.reason, arrival.key, arrival.seq) == (
        Outcome.REJECT,
        Reason.INVALID_FIELD,
        "",
        None,
    )
    assert arrival.raw == b'{"uid":"u","serial":0}'
    assert len(arrival.id) == 32
    assert asked == []


def test_content_is_judged_the_same_way_without_the_node() -> None:
    assert judge_content(encode(full_frame("u", 0, 1)), NOW) == ACCEPT
    refused = judge_content(b"{", NOW)
    assert (refused.outcome, refused.reason) == (Outcome.REJECT, Reason.MALFORMED)
    assert (
        judge_content(b'{"uid":"u","serial":0,"data":"' + b"x" * limits.SDSP_FRAME_MAX, NOW).reason is Reason.OVERSIZE
    )


def test_ids_are_told_apart_and_sort_by_serial() -> None:
    serials = [0, 1, 255, 256, 2**40, 2**63 - 1]
    assert sorted(frame_id("u", serial) for serial in serials) == [frame_id("u", serial) for serial in serials]
    assert frame_id("a", 1) != frame_id("a\u0000"[:1] + "b", 1)


def test_an_object_belongs_to_its_first_vouched_publisher() -> None:
    frame = full_frame("u", 3, 1)
    mine = Known(publisher="alice", owner="alice", newest=2)
    assert verdict(frame, mine) == (Outcome.ACCEPT, None)
    for stranger in ("mallory", ""):
        known = Known(publisher=stranger, owner="alice", newest=2)
        assert verdict(frame, known) == (Outcome.REJECT, Reason.PUBLISHER_MISMATCH)


def test_a_huge_serial_does_not_take_an_object_over() -> None:
    takeover = full_frame("u", 2**62, "mine now")
    assert verdict(takeover, Known(newest=10)) == (Outcome.REJECT, Reason.SERIAL_JUMP)
    at_most = full_frame("u", 10 + limits.SDSP_SERIAL_JUMP, 1)
    one_more = full_frame("u", 11 + limits.SDSP_SERIAL_JUMP, 1)
    assert verdict(at_most, Known(newest=10)) == (Outcome.ACCEPT, None)
    assert verdict(one_more, Known(newest=10)) == (Outcome.REJECT, Reason.SERIAL_JUMP)
    assert verdict(one_more, Known(newest=10, publisher="bob")) == (Outcome.REJECT, Reason.SERIAL_JUMP)
    assert verdict(one_more, Known(newest=10, publisher="bob", owner="bob")) == (Outcome.ACCEPT, None)


def test_an_object_nobody_knows_may_start_anywhere() -> None:
    assert verdict(full_frame("u", 2**62, 1), NOTHING_KNOWN) == (Outcome.ACCEPT, None)


def test_a_frame_after_the_freeze_is_rejected_and_the_freeze_itself_is_not() -> None:
    known = Known(newest=5, frozen_at=5)
    assert verdict(full_frame("u", 6, 1), known) == (Outcome.REJECT, Reason.FROZEN)
    assert verdict(freeze_frame("u", 5, 2), known) == (Outcome.ACCEPT, None)


def test_the_same_content_again_is_left_to_the_journal_and_other_content_is_a_fork() -> None:
    kept = delta_frame("u", 5, 2, "jp", [{"op": "add", "path": "/a", "value": 1}])
    known = Known(newest=5, same_id=content_of(kept))
    republished = decode(
        b'{"historyUri":"x:y","meta":{"by":"relay"},"alg":"jp","serial":5,"ver":2,"uid":"u",'
        b'"delta":[{"value":1.0,"path":"/a","op":"add"}]}'
    )
    assert verdict(republished, known) == (Outcome.ACCEPT, None)
    for other in (
        delta_frame("u", 5, 2, "jp", [{"op": "add", "path": "/a", "value": True}]),
        delta_frame("u", 5, 3, "jp", [{"op": "add", "path": "/a", "value": 1}]),
        delta_frame("u", 5, 2, "X-jp", [{"op": "add", "path": "/a", "value": 1}]),
        delta_frame("u", 5, 2, "jp", [{"op": "add", "path": "/a", "value": 1}], frozen=True),
        full_frame("u", 5, {"a": 1}),
        freeze_frame("u", 5, 2),
    ):
        assert verdict(other, known) == (Outcome.REJECT, Reason.FORK)


def test_an_object_and_its_location_are_the_same_content_unless_the_object_differs() -> None:
    inline, pointing = full_frame("u", 5, {"a": 1}), full_frame("u", 5, None, uri="mem://1")
    assert verdict(pointing, Known(newest=5, same_id=content_of(inline))) == (Outcome.ACCEPT, None)
    assert verdict(inline, Known(newest=5, same_id=content_of(pointing))) == (Outcome.ACCEPT, None)
    assert verdict(full_frame("u", 5, {"a": 2}), Known(newest=5, same_id=content_of(inline))) == (
        Outcome.REJECT,
        Reason.FORK,
    )


@pytest.mark.parametrize("value", [[10**400], {"a": [2**64, -(10**308)]}])
def test_numbers_beyond_any_double_are_compared_as_they_are(value: object) -> None:
    assert content_of(full_frame("u", 0, value)).same(content_of(full_frame("u", 0, value)))


@given(st.binary(max_size=80))
def test_arbitrary_bytes_are_judged_without_raising(raw: bytes) -> None:
    arrival = judge(incoming(raw), lambda frame: NOTHING_KNOWN)
    assert arrival.accepted is judge_content(raw, NOW).accepted
    assert arrival.reason is judge_content(raw, NOW).reason


@pytest.mark.parametrize("letter", ["x", "é", "🛰"])
def test_an_object_with_the_longest_name_makes_a_record_that_the_journal_can_hold(tmp_path: Path, letter: str) -> None:
    arrival = judged(full_frame(letter * limits.TEXT_MAX, limits.SDSP_SERIAL_MAX, 1))
    assert arrival.accepted
    journal = Journal.open(tmp_path / "journal.db", node="node", clock=FakeClock())
    try:
        assert journal.append_sync([arrival])[0].accepted
    finally:
        journal.close()
