"""What the SDSP tests share: objects to publish, a published run of frames, and a driver without I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hypothesis import strategies as st

from syncline.protocols.sdsp.deltas import Deltas
from syncline.protocols.sdsp.rebuild import State
from syncline.protocols.sdsp.session import (
    AskHistory,
    DataFailed,
    DataLoaded,
    Draft,
    Emit,
    Event,
    Following,
    FrameReceived,
    HistoryAnswered,
    HistoryFailed,
    LoadData,
    Policy,
    PublisherSession,
    SubscriberSession,
    TimerFired,
    UserEvent,
)
from syncline.protocols.sdsp.wire import Frame, ObjectKind, decode, encode

UID = "0192f000-0000-7000-8000-00000000000a"
DELTAS = Deltas()
ALWAYS_DELTA = Policy(delta_ratio=1e9, cumulative_ratio=1e9, max_ver=1_000)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.one_of(
    st.integers(-(2**63), 2**63), st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([0, 1, 1.0, -0.0])
)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(texts, inner, max_size=5)),
    max_leaves=20,
)
objects = {
    ObjectKind.JSON: json_values,
    ObjectKind.TEXT: st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    ObjectKind.BINARY: st.binary(max_size=200),
}


class Published:
    """A publisher whose every frame and object is remembered."""

    def __init__(self, policy: Policy = ALWAYS_DELTA, uid: str = UID) -> None:
        self.session = PublisherSession(uid, DELTAS, policy)
        self.frames: list[Frame] = []
        self.states: dict[int, State] = {}
        self.objects: dict[str, bytes] = {}

    def do(self, draft: Draft | None) -> Frame | None:
        if draft is None:
            return None
        if draft.store is not None:
            uri = f"mem://{draft.frame.serial}"
            self.objects[uri] = draft.store
            draft = self.session.stored(draft, uri)
        self.session.commit(draft)
        self.frames.append(draft.frame)
        self.states[draft.frame.serial] = draft.state
        return draft.frame

    def create(self, value: Any, kind: ObjectKind | None = None) -> Frame:
        frame = self.do(self.session.create(value, kind))
        assert frame is not None
        return frame

    def update(self, value: Any) -> Frame | None:
        return self.do(self.session.update(value))

    def replace(self, value: Any, kind: ObjectKind | None = None) -> Frame:
        frame = self.do(self.session.replace(value, kind))
        assert frame is not None
        return frame

    def freeze(self) -> Frame:
        frame = self.do(self.session.freeze())
        assert frame is not None
        return frame


class Follower:
    """A subscriber with a driver that answers at once, or as told, and notes every event."""

    def __init__(
        self,
        *,
        history: Callable[[AskHistory], Sequence[Frame] | None] = lambda ask: None,
        objects: dict[str, bytes] | None = None,
        following: Following | None = None,
        state: State | None = None,
        check: Callable[[UserEvent], None] = lambda event: None,
        uid: str = UID,
    ) -> None:
        self.session = SubscriberSession(uid, DELTAS, random=lambda: 0.5, following=following, state=state)
        self.history = history
        self.objects = {} if objects is None else objects
        self.events: list[UserEvent] = []
        self.asked: list[AskHistory] = []
        self.loaded: list[LoadData] = []
        self.now = 0.0
        self._check = check

    def get(self, *frames: Frame) -> list[UserEvent]:
        """Receive these frames; return what users heard."""
        before = len(self.events)
        for frame in frames:
            self._do(FrameReceived(decode(encode(frame)), 100))  # as every receiver gets its own
        return self.events[before:]

    def wait(self, seconds: float) -> list[UserEvent]:
        """Let time pass, firing timers as they come due."""
        before, end = len(self.events), self.now + seconds
        while self.session.deadline is not None and self.session.deadline <= end:
            self.now = max(self.now, self.session.deadline)
            self._do(TimerFired())
        self.now = end
        return self.events[before:]

    def _do(self, event: Event) -> None:
        todo: list[Event] = [event]
        while todo:
            for action in self.session.receive(todo.pop(0), self.now):
                match action:
                    case Emit(heard):
                        self.events.append(heard)
                        self._check(heard)
                    case AskHistory():
                        self.asked.append(action)
                        todo.extend(self._answer(action))
                    case LoadData(serial, uri):
                        self.loaded.append(action)
                        stored = self.objects.get(uri)
                        todo.append(DataFailed(serial, "gone") if stored is None else DataLoaded(serial, stored))

    def _answer(self, ask: AskHistory) -> Iterable[Event]:
        frames = self.history(ask)
        return [
            HistoryFailed(ask.ask, "none")
            if frames is None
            else HistoryAnswered(ask.ask, [decode(encode(frame)) for frame in frames])
        ]
