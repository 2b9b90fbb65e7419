"""The subscriber's half, one session per object: frames in, the object and its changes out.

It puts frames in order, notices what is missing and says what to fetch; it never holds a wrong object, only an older
one. Fetching, waiting and delivering are the driver's: it calls `receive` for each event, does the actions returned,
and calls again with TimerFired when `deadline` has come.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import msgspec

from syncline.core import limits
from syncline.core.errors import DecodeError
from syncline.protocols.sdsp.content import Content, content_of
from syncline.protocols.sdsp.deltas.base import Delta
from syncline.protocols.sdsp.rebuild import Cause, Problem, State, Status, chain, fold
from syncline.protocols.sdsp.session.events import (
    Action,
    AskHistory,
    DataFailed,
    DataLoaded,
    Emit,
    Error,
    Event,
    Fork,
    FrameReceived,
    Frozen,
    HistoryAnswered,
    HistoryFailed,
    LoadData,
    Ready,
    Resynced,
    Stale,
    TimerFired,
    Update,
    UserEvent,
)
from syncline.protocols.sdsp.session.waiting import WaitingFrames
from syncline.protocols.sdsp.wire import Frame, Kind, resolve


class Following(msgspec.Struct, frozen=True, kw_only=True):
    """How an object is followed."""

    verify: bool = True  # compare checksums where frames carry them
    keep_old: bool = True  # False: deltas change the object, and the frame it came in, in place; Update.old is None
    serial_jump: int | None = limits.SDSP_SERIAL_JUMP  # None: the transport vouches for the publisher
    reorder_frames: int = limits.SDSP_REORDER_FRAMES
    reorder_bytes: int = limits.SDSP_REORDER_BYTES
    reorder_seconds: float = limits.SDSP_REORDER_SECONDS
    history_seconds: float = limits.SDSP_HISTORY_SECONDS
    backoff_first: float = limits.SDSP_BACKOFF_FIRST
    backoff_max: float = limits.SDSP_BACKOFF_MAX


Wait = Literal["", "reorder", "backoff", "history", "data"]


class SubscriberSession:
    """Follows one object.

    Give `state` to go on where an earlier session stopped. `random` returns floats from 0 to 1 and spreads back-off;
    `now` is any steady clock in seconds. Not for several threads at once.
    """

    def __init__(
        self,
        uid: str,
        deltas: Mapping[str, Delta],
        *,
        random: Callable[[], float],
        state: State | None = None,
        following: Following | None = None,
    ) -> None:
        self.uid = uid
        self.status = Status.WAITING if state is None else state.status
        self._deltas = deltas
        self._random = random
        self._following = following or Following()
        self._state = state
        self._waiting = WaitingFrames()  # newer than the state
        self._seen: OrderedDict[int, Content] = OrderedDict()  # of frames already folded
        self._announced = state is not None  # the user has heard Ready
        self._sound = state is not None and state.status is Status.SYNCED  # deltas may build on the state
        self._before: State | None = None  # the last good state while it is rebuilt from history
        self._failed: Frame | None = None  # what could not be folded
        self._asked: Frame | None = None  # what history is being asked about
        self._ask = 0
        self._ask_spent = False  # history was asked and brought nothing new since
        self._spent_at = -1  # the state's serial when it was asked
        self._loading: int | None = None
        self._failures = 0
        self._ask_again_at: float | None = None  # history did not answer: not before this is it asked again
        self._wait: Wait = ""
        self._gap_after = -1  # the serial after which a frame is missing
        self._counts = dict.fromkeys(
            ("frames", "applied", "duplicates", "forks", "refused", "dropped", "asked", "loaded", "stale"), 0
        )

        self.deadline: float | None = None
        """When to call `receive(TimerFired(), now)`; None: no need to."""

    @property
    def state(self) -> State | None:
        """The newest good object, with the serial it belongs to, marked if stale or failed; None before the first."""
        good = self._before or self._state
        marked = self.status in (Status.STALE, Status.FAILED)
        return good.marked(self.status) if good is not None and marked else good

    def statistics(self) -> dict[str, int]:
        """Counters since the start, and how much is waiting now."""
        return {**self._counts, "waiting": len(self._waiting), "waiting_bytes": self._waiting.bytes}

    def receive(self, event: Event, now: float) -> list[Action]:
        """Take in what happened; return what to do about it, in order."""
        actions: list[Action] = []
        match event:
            case FrameReceived(frame, size):
                self._on_frame(frame, size, now, actions)
                self._ask_once_more(now, actions)
            case HistoryAnswered(ask, frames):
                if self._asked is not None and ask == self._ask:
                    self._on_history(frames, now, actions)
            case HistoryFailed(ask, detail):
                if self._asked is not None and ask == self._ask:
                    self._on_silent_history(detail, now, actions)
            case DataLoaded(serial, data):
                self._on_data(serial, data, now, actions)
            case DataFailed(serial, detail):
                self._on_no_data(serial, detail, now, actions)
            case TimerFired():
                self._on_timer(now, actions)
        return actions

    # Events -------------------------------------------------------------------------------------------------------

    def _on_frame(self, frame: Frame, size: int, now: float, actions: list[Action]) -> None:
        self._counts["frames"] += 1
        if frame.uid != self.uid:  # SDSP: several objects may share a transport; others' frames are discarded
            self._counts["dropped"] += 1
            return
        if self._is_known(frame, actions):
            return
        if self.status is Status.FROZEN:
            self._refuse(frame, Cause.FROZEN, "the object is frozen", actions)
            return
        top, jump = self._before or self._state, self._following.serial_jump
        if top is not None and jump is not None and frame.serial - top.serial > jump:
            self._refuse(frame, Cause.SERIAL_JUMP, f"{frame.serial - top.serial} ahead of {top.serial}", actions)
            return
        self._waiting.put(frame, size)
        self._advance(now, actions)
        self._make_room()

    def _on_history(self, frames: Iterable[Frame], now: float, actions: list[Action]) -> None:
        asked = self._asked
        assert asked is not None
        self._asked = None
        self._stop_waiting()
        offered = [frame for frame in frames if frame.uid == self.uid and frame.serial <= asked.serial]
        offered = offered[: limits.SDSP_HISTORY_FRAMES]
        # an unsound past is about to be replaced and contradicts nobody
        fork = next((frame for frame in offered if self._contradicts(frame, past=self._sound)), None)
        if fork is not None:
            self._fork(fork, actions)
            return
        found = self._needed(offered, asked)
        if isinstance(found, Problem):
            self._on_no_history(f"{found.cause} at serial {found.serial}: {found.detail}", actions)
            return
        if not self._sound:  # what was built so far is in doubt: build anew from the full frame
            self._before, self._state = self._state, None
        for frame in found:
            self._waiting.put(frame, 0)
        self._advance(now, actions)

    def _on_no_history(self, detail: str, actions: list[Action]) -> None:
        self._asked = None
        self._stop_waiting()
        serial = 0 if self._state is None else self._state.serial + 1
        self._go_stale(Problem(Cause.HISTORY_UNAVAILABLE, serial, detail), actions)

    def _on_silent_history(self, detail: str, now: float, actions: list[Action]) -> None:
        """Nobody answered, which says nothing about the frames: the next one to come may ask again, after a pause."""
        self._on_no_history(detail, actions)
        self._ask_again_at = now + self._backoff()
        self._failures += 1

    def _ask_once_more(self, now: float, actions: list[Action]) -> None:
        due = self._ask_again_at is not None and now >= self._ask_again_at
        if due and self._asked is None and self._failed is None and self.status is Status.STALE:
            self._ask_history(now, actions)

    def _on_data(self, serial: int, data: bytes, now: float, actions: list[Action]) -> None:
        if serial != self._loading:
            return
        self._loading = None
        self._stop_waiting()
        try:
            self._waiting.put(resolve(self._waiting[serial], data), self._waiting.size(serial))
        except DecodeError as error:
            self._give_up_data(serial, str(error), now, actions)
        else:
            self._counts["loaded"] += 1
        self._advance(now, actions)

    def _on_no_data(self, serial: int, detail: str, now: float, actions: list[Action]) -> None:
        if serial != self._loading:
            return
        self._loading = None
        self._stop_waiting()
        self._give_up_data(serial, detail, now, actions)
        self._advance(now, actions)

    def _on_timer(self, now: float, actions: list[Action]) -> None:
        if self.deadline is None or now < self.deadline:
            return
        match self._wait:
            case "history":
                self._on_silent_history("no answer in time", now, actions)
            case "data" if self._loading is not None:
                self._on_no_data(self._loading, "no answer in time", now, actions)
            case "reorder" | "backoff":
                self._ask_history(now, actions)
            case _:
                self._stop_waiting()

    # Progress -----------------------------------------------------------------------------------------------------

    def _advance(self, now: float, actions: list[Action]) -> None:
        """Fold every waiting frame whose turn it is."""
        while (frame := self._next()) is not None and not frame.unresolved:
            following = self._following
            found = fold(self._state, frame, self._deltas, verify=following.verify, in_place=not following.keep_old)
            if isinstance(found, State):
                self._folded(frame, found, actions)
            else:
                self._failed_to_fold(frame, found, now, actions)
        self._settle(frame, now, actions)

    def _next(self) -> Frame | None:
        """The frame to fold now: the one that follows, else a full one, which needs nothing before it.

        An unresolved one is returned only if there is nothing better to do than to load it.
        """
        if self._state is not None and self._sound:
            if self._state.frozen:
                return None
            following = self._waiting.get(self._state.serial + 1)
            if following is not None and not following.unresolved:
                return following
        return self._waiting.full()

    def _folded(self, frame: Frame, new: State, actions: list[Action]) -> None:
        old = self._state
        if self._announced and self._before is None and self.status in (Status.STALE, Status.FAILED):
            self._before = old
        quiet = not self._announced or self._before is not None
        self._state, self._sound = new, True
        self._counts["applied"] += 1
        self._remember(frame)
        self._drop_until(new.serial)
        if quiet:
            return
        self._failures = 0
        if frame.kind is not Kind.FREEZE:
            before = old.value if old is not None and self._following.keep_old else None
            self._emit(Update(new.serial, before, new.value), actions)

    def _settle(self, unresolved: Frame | None, now: float, actions: list[Action]) -> None:
        """Nothing more can be folded: say where the object stands, and load, wait or ask for what is missing."""
        state = self._state if self._sound else None
        if state is not None:
            self._announce(state, actions)
        if unresolved is not None:
            self._load(unresolved, now, actions)
        elif state is None:
            if self._waiting and self.status in (Status.WAITING, Status.SYNCING):
                self.status = Status.SYNCING
                if self._asked is None:  # SDSP: a subscriber that starts with a delta retrieves the frames before it
                    self._ask_history(now, actions)
        elif state.frozen:
            self._end(state, actions)
        elif not self._waiting:
            self.status = Status.SYNCED
            self._asked = None
            self._stop_waiting()
        elif self._asked is None and not self._ask_spent:
            self._wait_for_order(state.serial, now, actions)

    def _announce(self, state: State, actions: list[Action]) -> None:
        """Tell what was folded silently: the first object, or the one after a time of trouble."""
        if state.serial > self._spent_at:
            self._ask_spent = False
        if not self._announced:
            self._announced = True
            self.status = Status.SYNCING
            self._emit(Ready(state.serial, state.value), actions)
        elif self._before is not None:
            old, self._before = self._before, None
            self._failed = None
            self.status = Status.SYNCING
            self._emit(Resynced(state.serial, old.value, state.value), actions)

    def _end(self, state: State, actions: list[Action]) -> None:
        self.status = Status.FROZEN
        self._emit(Frozen(state.serial, state.value), actions)
        self._asked = None
        self._stop_waiting()
        for frame in self._waiting:
            self._refuse(frame, Cause.FROZEN, "the object is frozen", actions)
        self._drop_until(limits.SDSP_SERIAL_MAX)

    # Trouble ------------------------------------------------------------------------------------------------------

    def _failed_to_fold(self, frame: Frame, problem: Problem, now: float, actions: list[Action]) -> None:
        self._drop(frame.serial)
        self._distrust()
        if problem.cause is Cause.UNKNOWN_ALGORITHM:  # asking again would bring the same frame
            self._ask_spent = True
            self._asked = None
            self._stop_waiting()
            self.status = Status.FAILED
            self._refuse(frame, problem.cause, f"no plug-in for {problem.detail}", actions)
            return
        self._go_stale(problem, actions)
        if not self._ask_spent:
            self._failed = frame
            self._wait, self.deadline = "backoff", now + self._backoff()
            self._failures += 1

    def _give_up_data(self, serial: int, detail: str, now: float, actions: list[Action]) -> None:
        self._failed_to_fold(self._waiting[serial], Problem(Cause.DATA_UNAVAILABLE, serial, detail), now, actions)

    def _go_stale(self, problem: Problem, actions: list[Action]) -> None:
        if self.status in (Status.STALE, Status.FAILED):
            return
        self.status = Status.STALE
        self._counts["stale"] += 1
        self._emit(Stale(problem.serial, problem.cause, problem.detail), actions)

    def _distrust(self) -> None:
        """Nothing may be built on the state until a full frame, or history, replaces it."""
        if self._before is not None:
            self._state, self._before = self._before, None
            self._drop_until(self._state.serial)
        self._sound = False

    def _fork(self, frame: Frame, actions: list[Action]) -> None:
        self._counts["forks"] += 1
        self._emit(Fork(frame.serial, frame), actions)
        if self.status is Status.FROZEN:  # nothing can change it; the contradiction is only reported
            return
        self._drop(frame.serial)  # neither of two unfolded ones is believed
        self._distrust()
        self._ask_spent = True
        self._asked = self._ask_again_at = None
        self._stop_waiting()
        self.status = Status.STALE

    def _refuse(self, frame: Frame, cause: Cause, detail: str, actions: list[Action]) -> None:
        self._counts["refused"] += 1
        self._emit(Error(frame.serial, cause, detail), actions)

    # Waiting ------------------------------------------------------------------------------------------------------

    def _wait_for_order(self, serial: int, now: float, actions: list[Action]) -> None:
        """A frame is missing: give it time to come, unless too many others wait for it."""
        if self.status is Status.SYNCED:
            self.status = Status.SYNCING
        if self._wait != "reorder" or self._gap_after != serial:
            self._wait, self._gap_after = "reorder", serial
            self.deadline = now + self._following.reorder_seconds
        if self._overfull():
            self._ask_history(now, actions)

    def _ask_history(self, now: float, actions: list[Action]) -> None:
        self._ask_again_at = None
        about = self._waiting.newest() or self._failed
        if about is None:
            self._stop_waiting()
            return
        self._ask += 1
        self._asked, self._ask_spent = about, True
        self._spent_at = -1 if self._state is None else self._state.serial
        self._counts["asked"] += 1
        self._wait, self.deadline = "history", now + self._following.history_seconds
        actions.append(AskHistory(self._ask, about, about.history_uri))

    def _load(self, frame: Frame, now: float, actions: list[Action]) -> None:
        if self.status in (Status.WAITING, Status.SYNCED):
            self.status = Status.SYNCING
        if self._loading == frame.serial:
            return
        self._loading = frame.serial
        self._asked = None
        self._wait, self.deadline = "data", now + self._following.history_seconds
        actions.append(LoadData(frame.serial, frame.data_uri, frame.holds))

    def _stop_waiting(self) -> None:
        self._wait, self.deadline = "", None

    def _backoff(self) -> float:
        longest = min(self._following.backoff_first * 2.0 ** min(self._failures, 32), self._following.backoff_max)
        return longest * (0.5 + 0.5 * self._random())

    # Frames kept --------------------------------------------------------------------------------------------------

    def _is_known(self, frame: Frame, actions: list[Action]) -> bool:
        """Whether this serial was seen before; if it said something else then, it is a fork."""
        if self._contradicts(frame):
            self._fork(frame, actions)
            return True
        state = self._before or self._state
        if self._waiting.get(frame.serial) is not None or (state is not None and frame.serial <= state.serial):
            self._counts["duplicates"] += 1
            return True
        return False

    def _contradicts(self, frame: Frame, *, past: bool = True) -> bool:
        waiting = self._waiting.get(frame.serial)
        seen = content_of(waiting) if waiting is not None else self._seen.get(frame.serial) if past else None
        return seen is not None and not seen.same(content_of(frame))

    def _needed(self, offered: list[Frame], asked: Frame) -> list[Frame] | Problem:
        """The frames to fold, out of what history offers and what waits here."""
        have = self._state.serial if self._state is not None and self._sound else -1
        pool = [*offered, *self._waiting]
        if self._waiting.get(asked.serial) is not None:
            return chain(pool, asked, have)
        # the frame asked about could not be used: take history's copy of it instead
        copy = next((frame for frame in offered if frame.serial == asked.serial), None)
        if copy is None:
            return Problem(Cause.GAP, asked.serial, "history does not hold this frame")
        found = chain(pool, copy, have)
        return found if isinstance(found, Problem) else [*found, copy]

    def _drop(self, serial: int) -> None:
        self._waiting.drop(serial)
        if serial == self._loading:
            self._loading = None

    def _drop_until(self, serial: int) -> None:
        self._waiting.drop_until(serial)
        if self._loading is not None and self._loading <= serial:
            self._loading = None

    def _overfull(self) -> bool:
        too_many = len(self._waiting) > self._following.reorder_frames
        return too_many or self._waiting.bytes > self._following.reorder_bytes

    def _make_room(self) -> None:
        """Keep the frames that can still be of use: the oldest while history is fetched, else the newest."""
        while self._overfull():
            hopeless = self.status in (Status.STALE, Status.FAILED) and self._asked is None
            victim = self._waiting.oldest() if hopeless else self._waiting.newest()
            assert victim is not None
            self._drop(victim.serial)
            self._counts["dropped"] += 1

    def _remember(self, frame: Frame) -> None:
        self._seen[frame.serial] = content_of(frame)
        while len(self._seen) > limits.SDSP_REMEMBERED:
            self._seen.popitem(last=False)

    @staticmethod
    def _emit(event: UserEvent, actions: list[Action]) -> None:
        actions.append(Emit(event))
