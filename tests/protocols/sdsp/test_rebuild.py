"""The fold: what follows from what, in every order, and states that are compared byte for byte."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.core import limits
from syncline.core.errors import CorruptionError
from syncline.protocols.sdsp.rebuild import (
    CHUNK,
    Cause,
    Problem,
    State,
    Status,
    chain,
    fold,
    object_at,
    rebuild,
    rebuild_sorted,
    same_content,
)
from syncline.protocols.sdsp.wire import (
    Checksum,
    Frame,
    ObjectKind,
    delta_frame,
    encode,
    freeze_frame,
    full_frame,
    resolve,
)
from tests.protocols.sdsp.kit import DELTAS, Published, json_values, objects


def folded(state: State | None, *frames: Frame, in_place: bool = False) -> State:
    for frame in frames:
        found = fold(state, frame, DELTAS, in_place=in_place)
        assert isinstance(found, State), found
        state = found
    assert state is not None
    return state


def problem(state: State | None, frame: Frame, **options: Any) -> Problem:
    found = fold(state, frame, DELTAS, **options)
    assert isinstance(found, Problem)
    return found


def replace(serial: int, ver: int, path: str, value: Any, **more: Any) -> Frame:
    return delta_frame("u", serial, ver, "jp", [{"op": "replace", "path": path, "value": value}], **more)


FAULTS: dict[str, dict[str, Any]] = {
    "broken": {"delta": "nonsense"},
    "unknown": {"alg": "X-none"},
    "checksum": {"checksum": Checksum("00", "MD5")},
    "version": {"ver": 99},
}
START = full_frame("u", 3, {"n": 0})


def test_a_full_frame_starts_an_object_at_any_serial_and_jumps_any_gap() -> None:
    first = folded(None, START)
    assert (first.serial, first.ver, first.value, first.kind, first.status) == (
        3,
        0,
        {"n": 0},
        ObjectKind.JSON,
        Status.SYNCED,
    )
    later = folded(first, full_frame("u", 900, "text", ObjectKind.TEXT))
    assert (later.serial, later.value, later.kind) == (900, "text", ObjectKind.TEXT)


def test_deltas_follow_by_serial_and_ver() -> None:
    state = folded(None, START, replace(4, 1, "/n", 1), replace(5, 2, "/n", 2))
    assert (state.serial, state.ver, state.value) == (5, 2, {"n": 2})
    assert problem(state, replace(7, 4, "/n", 4)) == Problem(Cause.GAP, 7)
    assert problem(state, replace(6, 1, "/n", 4)) == Problem(Cause.BROKEN_CHAIN, 6, "ver 1 after ver 2")
    assert problem(state, replace(5, 2, "/n", 2)) == Problem(Cause.OUTDATED, 5)
    assert problem(state, START) == Problem(Cause.OUTDATED, 3)
    assert problem(None, replace(5, 2, "/n", 2)) == Problem(Cause.GAP, 5)


def test_a_freeze_keeps_the_object_and_ends_it() -> None:
    frozen = folded(None, START, freeze_frame("u", 4, 1))
    assert (frozen.serial, frozen.ver, frozen.value, frozen.frozen) == (4, 1, {"n": 0}, True)
    assert problem(frozen, full_frame("u", 5, 1)) == Problem(Cause.FROZEN, 5, "frozen at serial 4")
    with_change = folded(None, START, replace(4, 1, "/n", 1, frozen=True))
    assert (with_change.value, with_change.frozen) == ({"n": 1}, True)


def test_what_cannot_be_applied_is_said_and_changes_nothing() -> None:
    for in_place in (True, False):
        state = folded(None, full_frame("u", 3, {"n": 0}))
        assert problem(state, delta_frame("u", 4, 1, "X-none", 1), in_place=in_place) == Problem(
            Cause.UNKNOWN_ALGORITHM, 4, "X-none"
        )
        wrong_kind = problem(state, delta_frame("u", 4, 1, "X-vcdiff", b""), in_place=in_place)
        assert wrong_kind == Problem(Cause.DELTA_FAILED, 4, "X-vcdiff does not change json objects")
        assert problem(state, replace(4, 1, "/m", 1), in_place=in_place).cause is Cause.DELTA_FAILED
        bad_sum = replace(4, 1, "/n", 1, checksum=Checksum("00", "MD5"))
        assert problem(state, bad_sum, in_place=in_place).cause is Cause.WRONG_CHECKSUM
        assert state.value == {"n": 0}
        assert folded(state, msgspec.structs.replace(bad_sum, checksum=Checksum("x", "SHA-9"))).value == {"n": 1}
        assert isinstance(fold(state, bad_sum, DELTAS, verify=False), State)


def test_a_full_frame_may_carry_a_checksum_too() -> None:
    assert problem(None, full_frame("u", 0, {}, checksum=Checksum("00", "MD5"))).cause is Cause.WRONG_CHECKSUM
    assert (
        folded(None, full_frame("u", 0, {}, checksum=Checksum("99914b932bd37a50b983c5e7c90ae93b", "MD5"))).value == {}
    )


def test_an_object_that_is_elsewhere_must_be_loaded_first() -> None:
    assert problem(None, full_frame("u", 0, None, uri="mem://1")) == Problem(Cause.UNRESOLVED, 0, "mem://1")


def test_without_in_place_the_old_object_stays_as_it_was() -> None:
    old = folded(None, full_frame("u", 0, {"a": [1], "b": {}}))
    new = folded(old, delta_frame("u", 1, 1, "jp", [{"op": "add", "path": "/a/-", "value": 2}]))
    assert (old.value, new.value) == ({"a": [1], "b": {}}, {"a": [1, 2], "b": {}})
    changed = folded(old, delta_frame("u", 1, 1, "jp", [{"op": "add", "path": "/a/-", "value": 2}]), in_place=True)
    assert changed.value is old.value


def test_an_object_cannot_grow_past_the_limit_over_many_frames() -> None:
    state = folded(None, full_frame("u", 0, {"a": "x" * 1_000_000}))
    serial = 0
    while True:
        serial += 1
        copying = [{"op": "copy", "from": "/a", "path": f"/{serial}"}]
        found = fold(state, delta_frame("u", serial, serial, "jp", copying), DELTAS, in_place=True)
        if isinstance(found, Problem):
            break
        state = found
        assert serial < 100
    assert found.cause is Cause.OVERSIZE
    assert 40 < serial < 70


def test_an_object_that_is_rewritten_for_ever_does_not_run_out_of_room() -> None:
    state = folded(None, full_frame("u", 0, {"a": ""}))
    large = "x" * (4 * limits.MIB)
    for serial in range(1, 40):
        state = folded(state, replace(serial, serial, "/a", large + str(serial)), in_place=True)
    assert state.value == {"a": large + "39"}


def test_an_object_measured_near_the_limit_takes_no_more_deltas() -> None:
    for size, fits in [(50 * limits.MIB, True), (57 * limits.MIB, False)]:
        pointing = full_frame("u", 0, None, uri="mem://1")  # its size is not known before it is measured
        state = folded(None, resolve(pointing, msgspec.json.encode({"a": "x" * size, "n": 0})))
        found = fold(state, replace(1, 1, "/n", 1), DELTAS)
        assert isinstance(found, State) is fits
        assert fits or found == Problem(Cause.OVERSIZE, 1, "the object is as large as one may be")


def test_equal_states_have_equal_bytes_and_come_back() -> None:
    one = State("u", 5, 2, ObjectKind.JSON, {"b": 1, "a": [1.0, True, None]}, Status.STALE, 10)
    other = State("u", 5, 2, ObjectKind.JSON, {"a": [1.0, True, None], "b": 1}, Status.STALE, 99)
    assert one.to_bytes() == other.to_bytes() == b'[1,"u",5,2,"json","stale",{"a":[1.0,true,null],"b":1}]'
    assert State.from_bytes(one.to_bytes()).to_bytes() == one.to_bytes()
    for value in (1, 1.0, True, -0.0):
        changed = msgspec.structs.replace(one, value=value)
        assert State.from_bytes(changed.to_bytes()).to_bytes() == changed.to_bytes()
    assert len({msgspec.structs.replace(one, value=value).to_bytes() for value in (1, 1.0, True)}) == 3


def test_binary_and_text_states_come_back() -> None:
    for kind, value in [(ObjectKind.BINARY, b"\x00\xff"), (ObjectKind.TEXT, "é😀")]:
        state = State("u", 5, 2, kind, value, Status.FROZEN)
        back = State.from_bytes(state.to_bytes())
        assert (back.value, back.kind, back.frozen) == (value, kind, True)


@pytest.mark.parametrize(
    "stored", [b"", b"[]", b'[2,"u",5,2,"json","stale",1]', b'[1,"u",5,2,"yaml","stale",1]', b"\xff"]
)
def test_a_damaged_state_is_loud(stored: bytes) -> None:
    with pytest.raises(CorruptionError):
        State.from_bytes(stored)


def test_frames_are_rebuilt_in_any_order_and_repeated(published: Published) -> None:
    frames = [*published.frames[::-1], published.frames[2]]
    done = rebuild(None, frames, DELTAS)
    assert done.state is not None
    assert done.state.to_bytes() == published.states[4].to_bytes()
    assert (done.pending, done.problems) == ([], [])


def test_frames_behind_a_gap_wait_and_are_taken_up_later(published: Published) -> None:
    zero, one, two, three, four = published.frames
    first = rebuild(None, [zero, one, three, four], DELTAS)
    assert first.state is not None
    assert (first.state.serial, first.state.status, first.pending) == (1, Status.SYNCED, [three, four])
    second = rebuild(first.state, [two, *first.pending], DELTAS)
    assert second.state is not None
    assert second.state.to_bytes() == published.states[4].to_bytes()
    nothing_yet = rebuild(None, [one], DELTAS)
    assert (nothing_yet.state, nothing_yet.pending) == (None, [one])


def test_after_an_unusable_frame_only_a_full_one_mends_the_object() -> None:
    bad, unknown = replace(4, 1, "/missing", 1), delta_frame("u", 4, 1, "X-none", 1)
    stale = rebuild(None, [START, bad, replace(5, 2, "/n", 2)], DELTAS)
    assert stale.state == folded(None, START).marked(Status.STALE)
    assert [(p.serial, p.cause) for p in stale.problems] == [(4, Cause.DELTA_FAILED), (5, Cause.GAP)]
    failed = rebuild(None, [START, unknown], DELTAS)
    assert failed.state == folded(None, START).marked(Status.FAILED)
    mended = rebuild(stale.state, [full_frame("u", 6, {"n": 6}), replace(7, 1, "/n", 7)], DELTAS)
    assert mended.state is not None
    assert (mended.state.value, mended.state.status) == ({"n": 7}, Status.SYNCED)


def test_a_fork_makes_the_object_stale_whichever_frame_comes_first() -> None:
    one, other = replace(4, 1, "/n", 1), replace(4, 1, "/n", 2)
    states = set()
    for frames in ([START, one, other], [START, other, one]):
        done = rebuild(None, frames, DELTAS, in_place=True)
        assert done.state is not None
        states.add(done.state.to_bytes())
        assert [p.cause for p in done.problems] == [Cause.FORK]
    assert states == {folded(None, START).marked(Status.STALE).to_bytes()}
    assert not same_content(one, other)


def test_an_object_can_be_had_at_any_serial(published: Published) -> None:
    published.replace({"n": "new"})
    published.update({"n": "newer"})
    for serial, expected in published.states.items():
        found = object_at(serial, published.frames[::-1], DELTAS)
        assert isinstance(found, State)
        assert found.to_bytes() == expected.to_bytes()
    assert object_at(99, published.frames, DELTAS) == Problem(Cause.GAP, 99, "no such frame")
    missing = object_at(4, published.frames[1:], DELTAS)
    assert missing == Problem(Cause.GAP, 0, "history does not hold this frame")


def test_history_must_reach_back_to_the_full_frame_one_by_one(published: Published) -> None:
    frames, last = published.frames, published.frames[4]
    assert chain(frames, last) == frames[:4]
    assert chain(frames, last, have=1) == frames[2:4]
    assert chain([*frames[:2], *frames[3:]], last) == Problem(Cause.GAP, 2, "history does not hold this frame")
    other_base = delta_frame(frames[0].uid, 3, 1, "jp", [])
    broken = chain([*frames[:3], other_base], last)
    assert broken == Problem(Cause.BROKEN_CHAIN, 3, "ver 1 where 3 is due")
    forked = chain([*frames, msgspec.structs.replace(frames[2], delta=[])], last)
    assert forked == Problem(Cause.FORK, 2, "history holds two frames with this serial")
    elsewhere = msgspec.structs.replace(frames[2], uid="other")
    assert chain([*frames, elsewhere], last) == frames[:4]


def test_many_objects_are_rebuilt_from_sorted_bytes() -> None:
    raws, expected = [], []
    for number in range(5):
        run = Published(uid=f"object-{number}")
        run.create({"n": 0, "list": []})
        for n in range(1, 30):
            run.update({"n": n, "list": list(range(n % 7))})
        raws += [encode(frame) for frame in run.frames]
        expected.append(run.states[29].to_bytes())
    done = list(rebuild_sorted([*raws, b"not a frame"], DELTAS))
    assert [found.state.to_bytes() for found in done if found.state] == expected
    assert all(found.pending == [] and found.problems == [] for found in done)
    half = {found.state.uid: found.state for found in rebuild_sorted(raws[:15], DELTAS) if found.state}
    rest = list(rebuild_sorted(raws[15:], DELTAS, half.get))
    assert [found.state.to_bytes() for found in rest if found.state] == expected
    assert list(rebuild_sorted([], DELTAS)) == []


def test_an_object_with_more_frames_than_are_held_at_a_time_is_rebuilt() -> None:
    lost = CHUNK - 3  # so that frames wait across the border
    deltas = [replace(serial, serial, "/n", serial) for serial in range(1, CHUNK + 50) if serial != lost]
    start, end = full_frame("u", 0, {"n": 0}), full_frame("u", CHUNK + 50, {"n": "end"})
    raws = [encode(frame) for frame in [start, *deltas]]
    (waiting,) = rebuild_sorted(raws, DELTAS)
    assert waiting.state is not None
    assert (waiting.state.serial, len(waiting.pending)) == (lost - 1, 52)
    nothing = encode(full_frame("t", 0, None, uri="mem://1"))
    unresolved, whole, other = rebuild_sorted([nothing, *raws, encode(end), encode(full_frame("v", 0, 1))], DELTAS)
    assert [problem.cause for problem in unresolved.problems] == [Cause.UNRESOLVED]
    assert unresolved.state is None
    assert whole.state is not None
    assert (whole.state.value, whole.pending) == ({"n": "end"}, [])
    assert other.state is not None
    assert other.state.uid == "v"


@settings(max_examples=150)
@given(data=st.data())
def test_the_fast_lane_gives_what_the_fold_gives_frame_by_frame(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(ObjectKind))
    run = Published()
    run.create(data.draw(objects[kind]), kind)
    for value in data.draw(st.lists(objects[kind], max_size=8)):
        run.update(value)
    if data.draw(st.booleans()):
        run.freeze()
    frames = list(run.frames)
    if len(frames) > 1 and data.draw(st.booleans()):  # something goes wrong somewhere
        place = data.draw(st.integers(1, len(frames) - 1))
        fault = data.draw(st.sampled_from(["lost", *FAULTS]))
        if fault == "lost":
            del frames[place]
        elif not frames[place].frozen:
            frames[place] = msgspec.structs.replace(frames[place], **FAULTS[fault])
    slow = rebuild(None, copy.deepcopy(frames), DELTAS)
    fast = rebuild(None, copy.deepcopy(frames), DELTAS, in_place=True)
    assert (slow.state is None) == (fast.state is None)
    if slow.state is not None and fast.state is not None:
        assert slow.state.to_bytes() == fast.state.to_bytes()
    assert (slow.pending, slow.problems) == (fast.pending, fast.problems)


@given(st.lists(st.builds(lambda v, s: full_frame("u", s, v), json_values, st.integers(0, 5)), max_size=6))
def test_any_full_frames_in_any_order_end_in_the_newest_or_a_fork(frames: list[Frame]) -> None:
    done = rebuild(None, frames, DELTAS)
    if not done.problems and frames:
        assert done.state is not None
        assert done.state.serial == max(frame.serial for frame in frames)
