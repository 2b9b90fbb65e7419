"""The subscriber's half, scene by scene, with the exact events a user hears."""

from __future__ import annotations

import msgspec
import pytest

from syncline.core import limits
from syncline.protocols.sdsp.rebuild import Cause, State, Status
from syncline.protocols.sdsp.session import (
    AskHistory,
    DataFailed,
    DataLoaded,
    Emit,
    Error,
    Following,
    Fork,
    FrameReceived,
    Frozen,
    HistoryAnswered,
    HistoryFailed,
    LoadData,
    Policy,
    Ready,
    Resynced,
    Stale,
    SubscriberSession,
    TimerFired,
    Update,
)
from syncline.protocols.sdsp.wire import Frame, ObjectKind, delta_frame, full_frame
from tests.protocols.sdsp.kit import DELTAS, UID, Follower, Published


def value(n: int) -> dict[str, object]:
    return {"n": n, "log": list(range(n))}


def wrong(frame: Frame) -> Frame:
    """The frame with a delta that does not fit."""
    return msgspec.structs.replace(frame, delta=[{"op": "remove", "path": "/nowhere"}])


def unknown(frame: Frame) -> Frame:
    return msgspec.structs.replace(frame, alg="X-nobody-knows")


def status(follower: Follower) -> Status:
    return follower.session.status


# The ordinary life of an object -----------------------------------------------------------------------------------


def test_an_object_becomes_ready_and_then_changes(published: Published) -> None:
    follower = Follower()
    assert status(follower) is Status.WAITING
    assert follower.get(*published.frames) == [
        Ready(0, value(0)),
        Update(1, value(0), value(1)),
        Update(2, value(1), value(2)),
        Update(3, value(2), value(3)),
        Update(4, value(3), value(4)),
    ]
    assert status(follower) is Status.SYNCED
    assert follower.session.deadline is None


def test_a_frozen_object_says_so_and_refuses_everything_after(published: Published) -> None:
    published.freeze()
    follower = Follower()
    events = follower.get(*published.frames)
    assert events[-2:] == [Update(4, value(3), value(4)), Frozen(5, value(4))]
    assert status(follower) is Status.FROZEN
    assert follower.get(full_frame(UID, 6, "more")) == [Error(6, Cause.FROZEN, "the object is frozen")]
    assert follower.get(published.frames[5]) == []
    assert follower.session.state is not None
    assert follower.session.state.value == value(4)


def test_a_last_change_may_come_with_the_freeze(published: Published) -> None:
    last = delta_frame(UID, 5, 5, "jp", [{"op": "replace", "path": "/n", "value": 5}], frozen=True)
    follower = Follower()
    follower.get(*published.frames)
    changed = {**value(4), "n": 5}
    assert follower.get(last) == [Update(5, value(4), changed), Frozen(5, changed)]


def test_frames_waiting_behind_a_freeze_are_refused(published: Published) -> None:
    frozen = published.freeze()
    follower = Follower()
    follower.get(*published.frames[:5], delta_frame(UID, 6, 6, "jp", []))
    assert follower.get(frozen) == [Frozen(5, value(4)), Error(6, Cause.FROZEN, "the object is frozen")]
    assert follower.session.statistics()["waiting"] == 0


def test_a_full_frame_replaces_the_object_and_jumps_any_gap(published: Published) -> None:
    follower = Follower()
    follower.get(*published.frames[:2])
    assert follower.get(full_frame(UID, 500, "text", ObjectKind.TEXT)) == [Update(500, value(1), "text")]
    assert status(follower) is Status.SYNCED


def test_repeats_and_old_frames_are_dropped(published: Published) -> None:
    follower = Follower()
    follower.get(*published.frames)
    assert follower.get(*published.frames, *published.frames[::-1]) == []
    assert follower.session.statistics()["duplicates"] == 10


def test_frames_of_other_objects_are_discarded(published: Published) -> None:
    follower = Follower()
    assert follower.get(full_frame("other", 0, 1), published.frames[0]) == [Ready(0, value(0))]


def test_the_old_object_need_not_be_kept(published: Published) -> None:
    follower = Follower(following=Following(keep_old=False))
    assert follower.get(*published.frames[:2])[-1] == Update(1, None, value(1))


def test_a_subscriber_goes_on_from_a_state_after_a_restart(published: Published) -> None:
    state = State.from_bytes(published.states[2].to_bytes())
    follower = Follower(state=state)
    assert status(follower) is Status.SYNCED
    assert follower.get(*published.frames) == [Update(3, value(2), value(3)), Update(4, value(3), value(4))]
    frozen = Follower(state=state.marked(Status.FROZEN))
    assert frozen.get(published.frames[3]) == [Error(3, Cause.FROZEN, "the object is frozen")]


def test_a_stale_state_from_before_a_restart_waits_for_a_full_frame(published: Published) -> None:
    follower = Follower(state=published.states[2].marked(Status.STALE))
    assert follower.get(*published.frames[3:]) == []
    assert status(follower) is Status.STALE
    assert follower.get(published.replace({"n": "new"})) == [Resynced(5, value(2), {"n": "new"})]


# Out of order -----------------------------------------------------------------------------------------------------


def test_reordered_frames_are_put_in_order(published: Published) -> None:
    zero, one, two, three, four = published.frames
    follower = Follower()
    follower.get(zero)
    assert follower.get(three, two) == []
    assert status(follower) is Status.SYNCING
    assert [event.serial for event in follower.get(one)] == [1, 2, 3]
    assert status(follower) is Status.SYNCED
    assert follower.session.deadline is None
    assert follower.get(four) == [Update(4, value(3), value(4))]
    assert follower.asked == []


def test_a_missing_frame_is_given_five_seconds_then_history_is_asked(published: Published) -> None:
    zero, one, _, three, four = published.frames
    follower = Follower(history=lambda ask: published.frames)
    follower.get(zero, one, three)
    assert follower.wait(4.9) == []
    follower.get(four)
    assert follower.asked == []
    assert [event.serial for event in follower.wait(0.2)] == [2, 3, 4]
    assert [(ask.frame, ask.uri) for ask in follower.asked] == [(four, "")]  # the newest frame is asked about
    assert status(follower) is Status.SYNCED


def test_too_many_waiting_frames_do_not_wait_for_the_time_to_pass() -> None:
    published = Published()
    published.create(value(0))
    for n in range(1, 9):
        published.update(value(n))
    follower = Follower(history=lambda ask: published.frames, following=Following(reorder_frames=4))
    follower.get(published.frames[0], *published.frames[2:6])
    assert follower.asked == []
    assert [event.serial for event in follower.get(published.frames[6])] == [1, 2, 3, 4, 5, 6]
    assert len(follower.asked) == 1


def test_waiting_frames_are_bounded_in_number_and_bytes() -> None:
    session = SubscriberSession(UID, DELTAS, random=lambda: 0.5)
    session.receive(FrameReceived(full_frame(UID, 0, {}), 10), 0.0)
    for serial in range(2, 3_000):
        session.receive(FrameReceived(delta_frame(UID, serial, serial, "jp", []), 10), 0.0)
        assert session.statistics()["waiting"] <= limits.SDSP_REORDER_FRAMES
    heavy = SubscriberSession(UID, DELTAS, random=lambda: 0.5, following=Following(reorder_bytes=1_000))
    heavy.receive(FrameReceived(full_frame(UID, 0, {}), 10), 0.0)
    for serial in range(2, 100):
        heavy.receive(FrameReceived(delta_frame(UID, serial, serial, "jp", []), 300), 0.0)
        assert heavy.statistics()["waiting_bytes"] <= 1_000


def test_a_gap_that_fills_late_is_still_used(published: Published) -> None:
    zero, one, two, three, _ = published.frames
    follower = Follower()
    follower.get(zero, two)
    assert follower.wait(6.0) == [Stale(1, Cause.HISTORY_UNAVAILABLE, "none")]
    assert status(follower) is Status.STALE
    assert follower.get(one) == [Resynced(2, value(0), value(2))]
    assert status(follower) is Status.SYNCED
    assert follower.get(three) == [Update(3, value(2), value(3))]


def test_a_history_that_did_not_help_is_not_asked_again_while_the_same_frame_is_missing(published: Published) -> None:
    follower = Follower(history=lambda ask: [])
    follower.get(published.frames[0], published.frames[2])
    follower.wait(6.0)
    assert follower.get(*published.frames[3:]) == []
    assert follower.wait(600.0) == []
    assert len(follower.asked) == 1


def test_a_history_that_was_silent_is_asked_again_with_a_later_frame_but_not_before_a_pause(
    published: Published,
) -> None:
    follower = Follower()
    follower.get(published.frames[0], published.frames[2])
    follower.wait(5.0)
    assert status(follower) is Status.STALE
    follower.get(published.frames[3])  # at once: too early
    assert follower.wait(600.0) == []
    assert len(follower.asked) == 1  # and never by itself
    follower.history = lambda ask: published.frames
    assert follower.get(published.frames[3]) == [Resynced(3, value(0), value(3))]  # seen before, but a sign of life
    assert len(follower.asked) == 2
    assert status(follower) is Status.SYNCED


def test_another_gap_is_another_question(published: Published) -> None:
    published.update(value(5))
    follower = Follower(history=lambda ask: published.frames)
    follower.get(published.frames[0], published.frames[2])
    follower.wait(6.0)
    follower.get(published.frames[4])
    follower.wait(6.0)
    assert [ask.frame.serial for ask in follower.asked] == [2, 4]
    assert status(follower) is Status.SYNCED


def test_a_history_that_never_answers_counts_as_failed(published: Published) -> None:
    session = SubscriberSession(UID, DELTAS, random=lambda: 0.5)
    (action,) = session.receive(FrameReceived(published.frames[3], 10), 0.0)
    assert isinstance(action, AskHistory)
    assert session.deadline == limits.SDSP_HISTORY_SECONDS
    assert session.receive(TimerFired(), 59.9) == []
    assert session.receive(TimerFired(), 60.0) == [Emit(Stale(0, Cause.HISTORY_UNAVAILABLE, "no answer in time"))]
    assert session.receive(HistoryAnswered(action.ask, published.frames), 61.0) == []
    assert session.status is Status.STALE


# Late joiners -----------------------------------------------------------------------------------------------------


def test_a_late_joiner_starts_at_a_full_frame_at_once(published: Published) -> None:
    follower = Follower()
    assert follower.get(published.replace({"n": "new"})) == [Ready(5, {"n": "new"})]
    assert follower.asked == []


def test_a_late_joiner_that_hears_a_delta_first_asks_history_at_once(published: Published) -> None:
    follower = Follower(history=lambda ask: published.frames[::-1])
    last = msgspec.structs.replace(published.frames[4], history_uri="https://example.org/h")
    assert follower.get(last) == [Ready(4, value(4))]
    assert [(ask.frame.serial, ask.uri) for ask in follower.asked] == [(4, "https://example.org/h")]


def test_a_late_joiner_without_history_waits_for_the_next_full_frame(published: Published) -> None:
    follower = Follower()
    assert follower.get(published.frames[3]) == [Stale(0, Cause.HISTORY_UNAVAILABLE, "none")]
    assert follower.get(published.frames[4]) == []
    assert follower.session.state is None
    assert len(follower.asked) == 1
    assert follower.get(published.replace({"n": "new"})) == [Ready(5, {"n": "new"})]


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_history_with_a_hole_is_no_history(published: Published, missing: int) -> None:
    offered = [frame for frame in published.frames if frame.serial != missing]
    follower = Follower(history=lambda ask: offered)
    (event,) = follower.get(published.frames[4])
    assert event == Stale(0, Cause.HISTORY_UNAVAILABLE, f"gap at serial {missing}: history does not hold this frame")


def test_frames_that_come_while_history_is_asked_are_not_lost(published: Published) -> None:
    session = SubscriberSession(UID, DELTAS, random=lambda: 0.5)
    (ask,) = session.receive(FrameReceived(published.frames[2], 10), 0.0)
    assert session.receive(FrameReceived(published.frames[3], 10), 0.0) == []
    assert session.receive(FrameReceived(published.frames[4], 10), 0.0) == []
    assert isinstance(ask, AskHistory)
    heard = session.receive(HistoryAnswered(ask.ask, published.frames[:2]), 1.0)
    assert heard == [Emit(Ready(4, value(4)))]
    assert session.status is Status.SYNCED


def test_a_full_frame_makes_a_pending_question_pointless(published: Published) -> None:
    session = SubscriberSession(UID, DELTAS, random=lambda: 0.5)
    (ask,) = session.receive(FrameReceived(published.frames[2], 10), 0.0)
    assert isinstance(ask, AskHistory)
    assert session.receive(FrameReceived(full_frame(UID, 9, "new"), 10), 0.0) == [Emit(Ready(9, "new"))]
    assert session.deadline is None
    assert session.receive(HistoryAnswered(ask.ask, published.frames), 1.0) == []
    assert session.receive(HistoryFailed(ask.ask), 1.0) == []
    assert session.status is Status.SYNCED


# Objects elsewhere ------------------------------------------------------------------------------------------------


def large() -> Published:
    published = Published(Policy(max_payload=200, delta_ratio=1e9, cumulative_ratio=1e9))
    published.create({"n": 0, "padding": "x" * 500})
    published.update({"n": 1, "padding": "x" * 500})
    return published


def test_an_object_in_storage_is_loaded_before_it_is_ready() -> None:
    published = large()
    follower = Follower(objects=published.objects)
    assert follower.get(*published.frames) == [
        Ready(0, {"n": 0, "padding": "x" * 500}),
        Update(1, {"n": 0, "padding": "x" * 500}, {"n": 1, "padding": "x" * 500}),
    ]
    assert follower.loaded == [LoadData(0, "mem://0", ObjectKind.JSON)]


def test_deltas_wait_while_the_object_is_loaded() -> None:
    published = large()
    session = SubscriberSession(UID, DELTAS, random=lambda: 0.5)
    assert session.receive(FrameReceived(published.frames[0], 10), 0.0) == [LoadData(0, "mem://0", ObjectKind.JSON)]
    assert session.receive(FrameReceived(published.frames[1], 10), 0.0) == []
    assert session.status is Status.SYNCING
    assert session.receive(DataLoaded(7, b"{}"), 0.0) == []  # nobody asked for that
    heard = session.receive(DataLoaded(0, published.objects["mem://0"]), 1.0)
    assert heard == [Emit(Ready(1, {"n": 1, "padding": "x" * 500}))]
    assert session.deadline is None


@pytest.mark.parametrize("objects", [{}, {"mem://0": b"not json"}])
def test_an_object_that_cannot_be_loaded_leaves_the_subscriber_waiting(objects: dict[str, bytes]) -> None:
    published = large()
    follower = Follower(objects=objects)
    (event,) = follower.get(published.frames[0])
    assert isinstance(event, Stale)
    assert (event.serial, event.cause) == (0, Cause.DATA_UNAVAILABLE)
    assert follower.wait(60.0) == []
    assert len(follower.asked) == 1  # history may hold the object itself
    assert follower.get(full_frame(UID, 5, "new")) == [Ready(5, "new")]


def test_history_may_hold_an_object_that_storage_has_lost() -> None:
    published = large()
    inlined = full_frame(UID, 0, {"n": 0, "padding": "x" * 500})
    follower = Follower(history=lambda ask: [inlined])
    (stale,) = follower.get(published.frames[0])
    assert isinstance(stale, Stale)
    assert follower.wait(60.0) == [Ready(0, {"n": 0, "padding": "x" * 500})]
    assert follower.get(published.frames[1])[0].serial == 1


def test_a_load_that_never_ends_counts_as_failed() -> None:
    session = SubscriberSession(UID, DELTAS, random=lambda: 0.5)
    session.receive(FrameReceived(full_frame(UID, 0, None, uri="mem://0"), 10), 0.0)
    assert session.deadline == limits.SDSP_HISTORY_SECONDS
    (action,) = session.receive(TimerFired(), 60.0)
    assert action == Emit(Stale(0, Cause.DATA_UNAVAILABLE, "no answer in time"))


def test_a_newer_object_makes_a_load_pointless() -> None:
    session = SubscriberSession(UID, DELTAS, random=lambda: 0.5)
    session.receive(FrameReceived(full_frame(UID, 0, None, uri="mem://0"), 10), 0.0)
    assert session.receive(FrameReceived(full_frame(UID, 1, "new"), 10), 0.0) == [Emit(Ready(1, "new"))]
    assert session.receive(DataFailed(0, "gone"), 0.0) == []
    assert session.receive(DataLoaded(0, b"1"), 0.0) == []
    assert (session.status, session.deadline) == (Status.SYNCED, None)


def test_data_wins_over_its_location() -> None:
    follower = Follower()
    both = msgspec.structs.replace(full_frame(UID, 0, "here"), data_uri="mem://0")
    assert follower.get(both) == [Ready(0, "here")]
    assert follower.loaded == []


# Trouble ----------------------------------------------------------------------------------------------------------


def test_a_corrupted_delta_makes_the_object_stale_and_history_mends_it_once(published: Published) -> None:
    follower = Follower(history=lambda ask: published.frames)
    follower.get(*published.frames[:3])
    (stale,) = follower.get(wrong(published.frames[3]))
    assert stale == Stale(3, Cause.DELTA_FAILED, "the patch points at 'nowhere', which is not there")
    assert status(follower) is Status.STALE
    assert follower.session.state is not None
    assert follower.session.state.to_bytes() == published.states[2].marked(Status.STALE).to_bytes()
    assert follower.asked == []  # not at once: everybody noticed at the same moment
    assert follower.session.deadline == pytest.approx(limits.SDSP_BACKOFF_FIRST * 0.75)
    assert follower.wait(1.0) == [Resynced(3, value(2), value(3))]
    assert status(follower) is Status.SYNCED
    assert follower.get(published.frames[4]) == [Update(4, value(3), value(4))]


def test_a_corrupted_delta_without_history_waits_for_the_next_full_frame(published: Published) -> None:
    follower = Follower()
    follower.get(*published.frames[:3], wrong(published.frames[3]))
    assert follower.wait(600.0) == []
    assert follower.get(published.frames[4]) == []
    assert follower.wait(600.0) == []
    assert len(follower.asked) == 1  # asked once, and never again
    assert status(follower) is Status.STALE
    assert follower.get(published.replace({"n": "new"})) == [Resynced(5, value(2), {"n": "new"})]


def test_a_delta_that_is_broken_in_history_too_is_not_asked_for_again(published: Published) -> None:
    broken = [*published.frames[:3], wrong(published.frames[3])]
    follower = Follower(history=lambda ask: broken)
    (_, _, _, stale) = follower.get(*broken)
    assert isinstance(stale, Stale)
    assert follower.wait(3_600.0) == []
    assert len(follower.asked) == 1
    assert follower.session.state is not None
    assert follower.session.state.value == value(2)


def test_history_overrules_a_past_that_turned_out_wrong(published: Published) -> None:
    slipped_in = msgspec.structs.replace(published.frames[1], delta=[{"op": "add", "path": "/m", "value": 1}])
    follower = Follower(history=lambda ask: published.frames)
    follower.get(published.frames[0], slipped_in)
    (stale,) = follower.get(wrong(published.frames[2]))
    assert isinstance(stale, Stale)
    assert follower.wait(1.0) == [Resynced(2, {**value(0), "m": 1}, value(2))]


def test_a_wrong_checksum_is_a_corrupted_delta() -> None:
    published = Published(Policy(delta_ratio=1e9, cumulative_ratio=1e9, checksum_every=1))
    published.create(value(0))
    good = published.update(value(1))
    assert good is not None
    bad = msgspec.structs.replace(good, delta=[{"op": "replace", "path": "/n", "value": 666}])
    follower = Follower(history=lambda ask: published.frames)
    follower.get(published.frames[0])
    assert follower.get(bad) == [Stale(1, Cause.WRONG_CHECKSUM, "the delta makes another object than the publisher's")]
    assert follower.wait(1.0) == [Resynced(1, value(0), value(1))]
    careless = Follower(following=Following(verify=False))
    careless.get(published.frames[0])
    assert careless.get(bad) == [Update(1, value(0), {"n": 666, "log": []})]


def test_back_off_grows_while_nothing_works_and_is_forgotten_when_it_does(published: Published) -> None:
    for n in range(5, 12):
        published.update(value(n))
    follower = Follower(history=lambda ask: published.frames)
    follower.get(*published.frames[:3])
    waits = []
    for serial in (3, 4, 5):
        follower.get(wrong(published.frames[serial]))
        assert follower.session.deadline is not None
        waits.append(follower.session.deadline - follower.now)
        follower.wait(10.0)
    assert waits == pytest.approx([0.375, 0.75, 1.5])
    follower.get(published.frames[6])
    follower.get(wrong(published.frames[7]))
    assert follower.session.deadline is not None
    assert follower.session.deadline - follower.now == pytest.approx(0.375)


def test_an_unknown_algorithm_fails_the_object_until_the_next_full_frame(published: Published) -> None:
    follower = Follower(history=lambda ask: published.frames)
    follower.get(*published.frames[:3])
    assert follower.get(unknown(published.frames[3])) == [
        Error(3, Cause.UNKNOWN_ALGORITHM, "no plug-in for X-nobody-knows")
    ]
    assert status(follower) is Status.FAILED
    assert follower.get(published.frames[4]) == []
    assert follower.wait(3_600.0) == []
    assert follower.asked == []  # it would bring the same frame
    assert follower.get(published.replace({"n": "new"})) == [Resynced(5, value(2), {"n": "new"})]
    assert status(follower) is Status.SYNCED


def test_an_unknown_algorithm_ends_the_wait_for_an_earlier_frame(published: Published) -> None:
    follower = Follower(history=lambda ask: published.frames)
    follower.get(*published.frames[:2], published.frames[4])
    (event,) = follower.get(unknown(published.frames[2]))
    assert isinstance(event, Error)
    assert follower.session.deadline is None
    assert follower.wait(600.0) == []
    assert follower.asked == []


def test_an_unknown_algorithm_in_the_history_fails_a_late_joiner(published: Published) -> None:
    offered = [*published.frames[:2], unknown(published.frames[2]), *published.frames[3:]]
    follower = Follower(history=lambda ask: offered)
    assert follower.get(published.frames[4]) == [Error(2, Cause.UNKNOWN_ALGORITHM, "no plug-in for X-nobody-knows")]
    assert status(follower) is Status.FAILED
    assert follower.session.state is not None
    assert follower.session.state.serial == 1  # as far as it could be built, though nobody was told
    (event,) = follower.get(published.replace({"n": "new"}))
    assert event == Ready(5, {"n": "new"})


def test_a_fork_is_reported_put_aside_and_mended_by_the_next_full_frame(published: Published) -> None:
    follower = Follower(history=lambda ask: published.frames)
    follower.get(*published.frames[:4])
    other = msgspec.structs.replace(published.frames[3], delta=[{"op": "replace", "path": "/n", "value": "fork"}])
    assert follower.get(other) == [Fork(3, other)]
    assert status(follower) is Status.STALE
    assert follower.session.state is not None
    assert follower.session.state.value == value(3)
    assert follower.get(published.frames[4]) == []
    assert follower.wait(3_600.0) == []
    assert follower.asked == []
    assert follower.get(published.replace({"n": "new"})) == [Resynced(5, value(3), {"n": "new"})]


def test_a_fork_among_waiting_frames_believes_neither(published: Published) -> None:
    follower = Follower()
    follower.get(published.frames[0], published.frames[2])
    other = msgspec.structs.replace(published.frames[2], delta=[])
    assert follower.get(other) == [Fork(2, other)]
    assert follower.get(published.frames[1]) == []
    assert status(follower) is Status.STALE
    assert follower.session.state is not None
    assert follower.session.state.value == value(0)


def test_a_full_frame_below_a_fork_does_not_bring_either_side_back(published: Published) -> None:
    follower = Follower()
    follower.get(published.frames[0], published.frames[2], msgspec.structs.replace(published.frames[2], delta=[]))
    assert follower.get(full_frame(UID, 1, "new")) == [Resynced(1, value(0), "new")]
    assert status(follower) is Status.SYNCED


def test_a_history_that_contradicts_what_was_heard_is_a_fork(published: Published) -> None:
    other = msgspec.structs.replace(published.frames[1], delta=[{"op": "replace", "path": "/n", "value": "fork"}])
    follower = Follower(history=lambda ask: [published.frames[0], other, *published.frames[2:]])
    follower.get(*published.frames[:2], published.frames[3])
    assert follower.wait(6.0) == [Fork(1, other)]
    assert status(follower) is Status.STALE


def test_a_republished_frame_is_no_fork(published: Published) -> None:
    follower = Follower()
    follower.get(*published.frames)
    routed = msgspec.structs.replace(published.frames[2], history_uri="x:y", meta={"by": "relay"}, extras={"X-hop": 1})
    assert follower.get(routed) == []
    assert status(follower) is Status.SYNCED


def test_a_fork_of_a_frozen_object_is_only_reported(published: Published) -> None:
    published.freeze()
    follower = Follower()
    follower.get(*published.frames)
    other = delta_frame(UID, 5, 5, "jp", [])
    assert follower.get(other) == [Fork(5, other)]
    assert status(follower) is Status.FROZEN


def test_a_huge_serial_does_not_take_the_object_over(published: Published) -> None:
    follower = Follower()
    follower.get(*published.frames)
    takeover = full_frame(UID, 2**62, "mine now")
    (event,) = follower.get(takeover)
    assert event == Error(2**62, Cause.SERIAL_JUMP, f"{2**62 - 4} ahead of 4")
    assert follower.get(delta_frame(UID, 2**62, 1, "jp", [])) == [event]
    assert status(follower) is Status.SYNCED
    assert follower.get(published.replace({"n": "new"}))[0] == Update(5, value(4), {"n": "new"})
    trusting = Follower(following=Following(serial_jump=None))
    trusting.get(*published.frames[:5])
    assert trusting.get(takeover) == [Update(2**62, value(4), "mine now")]


def test_a_chain_that_breaks_is_asked_about(published: Published) -> None:
    follower = Follower(history=lambda ask: published.frames)
    follower.get(*published.frames[:3])
    odd = delta_frame(UID, 3, 1, "jp", [])
    assert follower.get(odd) == [Stale(3, Cause.BROKEN_CHAIN, "ver 1 after ver 2")]
    assert follower.wait(1.0) == [Resynced(3, value(2), value(3))]


def test_only_so_many_past_frames_are_remembered() -> None:
    follower = Follower()
    follower.get(full_frame(UID, 0, {"n": 0}))
    for n in range(1, limits.SDSP_REMEMBERED + 10):
        follower.get(delta_frame(UID, n, n, "jp", []))
    assert follower.get(full_frame(UID, 0, "long ago")) == []  # too old to tell: dropped
    recent = delta_frame(UID, limits.SDSP_REMEMBERED, limits.SDSP_REMEMBERED, "X-other", 1)
    assert follower.get(recent) == [Fork(limits.SDSP_REMEMBERED, recent)]


def test_statistics_count_what_happened(published: Published) -> None:
    follower = Follower(history=lambda ask: published.frames)
    follower.get(published.frames[0], published.frames[0], full_frame("other", 0, 1), published.frames[3])
    assert follower.session.statistics() == {
        "frames": 4,
        "applied": 1,
        "duplicates": 1,
        "forks": 0,
        "refused": 0,
        "dropped": 1,
        "asked": 0,
        "loaded": 0,
        "stale": 0,
        "waiting": 1,
        "waiting_bytes": 100,
    }
    follower.wait(6.0)
    statistics = follower.session.statistics()
    assert (statistics["applied"], statistics["asked"], statistics["waiting_bytes"]) == (4, 1, 0)
