"""Random edits through a publisher, a transport that loses, repeats, reorders and corrupts, and a subscriber.

Whatever happens, the subscriber holds an object the publisher had at that serial, or none; and it is in a named state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.protocols.sdsp.deltas import vcdiff
from syncline.protocols.sdsp.rebuild import Status
from syncline.protocols.sdsp.session import AskHistory, Following, Policy, Ready, Resynced, Update, UserEvent
from syncline.protocols.sdsp.wire import Frame, Kind, ObjectKind
from tests.protocols.sdsp.kit import Follower, Published, json_values, objects

POLICIES = st.sampled_from(
    [
        Policy(delta_ratio=1e9, cumulative_ratio=1e9, max_ver=1_000, checksum_every=1),
        Policy(delta_ratio=1e9, cumulative_ratio=1e9, max_ver=3, checksum_every=1),
        Policy(delta_ratio=1e9, cumulative_ratio=1e9, max_ver=3, max_payload=120, checksum_every=1),
        Policy(checksum_every=1),
    ]
)


WRONG: dict[str, Any] = {
    "jp": [{"op": "add", "path": "", "value": {"wrong": True}}],
    "md": "+wrong",
    "X-vcdiff": vcdiff.encode(b"", b"wrong"),
}


def encoded(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def corrupted(frame: Frame) -> Frame:
    """The same frame with another delta, as a broken transport would deliver it."""
    return msgspec.structs.replace(frame, delta=WRONG[frame.alg])


def unknown(frame: Frame) -> Frame:
    """The same frame by an algorithm nobody here knows."""
    return msgspec.structs.replace(frame, alg="X-nobody-knows")


def published_run(data: st.DataObject, *, least: int = 0) -> Published:
    """A publisher that has published a random object of a random kind, and random changes of it."""
    kind = data.draw(st.sampled_from(ObjectKind))
    published = Published(data.draw(POLICIES))
    published.create(data.draw(objects[kind]), kind)
    for value in data.draw(st.lists(objects[kind], min_size=least, max_size=8)):
        published.update(value)
    return published


@settings(max_examples=300)
@given(data=st.data())
def test_a_subscriber_never_holds_a_wrong_object(data: st.DataObject) -> None:
    published = published_run(data)
    if data.draw(st.booleans()):
        published.freeze()
    last = len(published.frames) - 1

    def check(event: UserEvent) -> None:
        if isinstance(event, (Ready, Update, Resynced)):
            value = event.value if isinstance(event, Ready) else event.new
            assert encoded(value) == encoded(published.states[event.serial].value)

    answers = data.draw(st.sampled_from(["all", "none", "broken", "part"]))

    def history(ask: AskHistory) -> Sequence[Frame] | None:
        if answers == "none":
            return None
        offered = list(published.frames)
        if answers == "broken":
            offered = [corrupted(frame) if frame.kind is Kind.DELTA else frame for frame in offered]
        return offered if answers != "part" else offered[:: data.draw(st.integers(1, 3))]

    follower = Follower(
        history=history,
        objects=published.objects if data.draw(st.booleans()) else {},
        following=Following(reorder_frames=4, keep_old=data.draw(st.booleans())),
        check=check,
    )
    faults = st.sampled_from([None, None, None, None, corrupted, unknown])
    steps = st.tuples(st.integers(0, last), faults, st.sampled_from([0.0, 0.0, 6.0]))
    for index, fault, pause in data.draw(st.lists(steps, max_size=20)):
        frame = published.frames[index]
        follower.get(fault(frame) if fault is not None and frame.kind is Kind.DELTA else frame)
        follower.wait(pause)
        state = follower.session.state
        if state is not None:
            assert encoded(state.value) == encoded(published.states[state.serial].value)
        assert follower.session.statistics()["waiting"] <= 4 + len(published.frames)
    follower.wait(600.0)
    assert follower.session.status in set(Status)
    assert follower.session.deadline is None
    if follower.session.status is Status.SYNCED:
        assert follower.session.state is not None


@settings(max_examples=150)
@given(data=st.data())
def test_with_history_and_without_corruption_a_subscriber_always_catches_up(data: st.DataObject) -> None:
    published = published_run(data, least=1)
    follower = Follower(history=lambda ask: published.frames, objects=published.objects)
    indexes = st.integers(0, len(published.frames) - 1)
    for index in data.draw(st.lists(indexes, max_size=12)):
        follower.get(published.frames[index])
        follower.wait(data.draw(st.sampled_from([0.0, 6.0])))
    follower.get(published.frames[-1])
    follower.wait(600.0)
    assert follower.session.status is Status.SYNCED
    assert follower.session.state is not None
    assert follower.session.state.to_bytes() == published.states[len(published.frames) - 1].to_bytes()


@settings(max_examples=100)
@given(data=st.data())
def test_the_next_full_frame_mends_everything(data: st.DataObject) -> None:
    published = published_run(data)
    follower = Follower(objects=published.objects)
    for index in data.draw(st.lists(st.integers(0, len(published.frames) - 1), max_size=12)):
        frame = published.frames[index]
        follower.get(corrupted(frame) if frame.kind is Kind.DELTA and data.draw(st.booleans()) else frame)
        follower.wait(data.draw(st.sampled_from([0.0, 6.0])))
    follower.get(published.replace(data.draw(json_values), ObjectKind.JSON))
    assert follower.session.status is Status.SYNCED
    assert follower.session.state is not None
    assert follower.session.state.to_bytes() == published.states[len(published.frames) - 1].to_bytes()
