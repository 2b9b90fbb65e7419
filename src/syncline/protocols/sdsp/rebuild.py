"""The fold: frames in order → the object. The live subscriber, the lake and "the object at serial n" all use it, so
that their states can be compared byte for byte. It decides what follows from what; waiting, asking and loading is done
elsewhere (session, lake).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec import UNSET

from syncline.core import limits
from syncline.core.errors import CorruptionError, DecodeError, DeltaError
from syncline.core.verdict import Reason
from syncline.protocols.sdsp import checksums
from syncline.protocols.sdsp.content import content_of as content_of
from syncline.protocols.sdsp.content import same_content as same_content
from syncline.protocols.sdsp.deltas.base import Budget, Delta, measure
from syncline.protocols.sdsp.wire import Frame, Kind, ObjectKind, decode

STATE_FORMAT: Final = 1
CHUNK: Final = 10_000  # frames of one object folded at a time


class Status(StrEnum):
    """Where an object stands. A `State` is synced, stale, failed or frozen; the rest are a subscriber's beginnings."""

    WAITING = "waiting"  # nothing seen yet
    SYNCING = "syncing"  # frames are there, an earlier one or the object itself is being fetched
    SYNCED = "synced"
    STALE = "stale"  # the last good object is kept; the next full frame mends it
    FAILED = "failed"  # an algorithm nobody here knows; the next full frame mends it
    FROZEN = "frozen"  # the end: no frame can change it any more


class Cause(StrEnum):
    """Why a frame could not be folded, or an object went stale."""

    GAP = "gap"  # an earlier frame is missing
    BROKEN_CHAIN = "broken_chain"  # serial follows, ver does not
    OUTDATED = "outdated"  # not newer than what is there
    FROZEN = "frozen"  # the object takes no more frames
    UNRESOLVED = "unresolved"  # the object must be loaded from dataUri first
    UNKNOWN_ALGORITHM = "unknown_algorithm"
    DELTA_FAILED = "delta_failed"  # the delta is broken or does not fit the object
    WRONG_CHECKSUM = "wrong_checksum"  # it fits, but makes another object than the publisher's
    OVERSIZE = "oversize"  # the object would grow past what one may be
    FORK = "fork"  # two frames with one serial and different content
    SERIAL_JUMP = "serial_jump"  # a serial further ahead than is believed
    HISTORY_UNAVAILABLE = "history_unavailable"
    DATA_UNAVAILABLE = "data_unavailable"


class Problem(msgspec.Struct, frozen=True):
    """A frame that could not be folded."""

    cause: Cause
    serial: int
    detail: str = ""


class State(msgspec.Struct, frozen=True):
    """An object as it is after the frame `serial`.

    `value` is shared, not copied: treat it as read-only. `size` is an upper estimate of its bytes as JSON, text or
    binary, kept to notice objects that grow too large; it is no part of the state's identity.
    """

    uid: str
    serial: int
    ver: int
    kind: ObjectKind
    value: Any
    status: Status = Status.SYNCED
    size: int = limits.SDSP_OBJECT_MAX

    @property
    def frozen(self) -> bool:
        return self.status is Status.FROZEN

    def marked(self, status: Status) -> State:
        """The same object under another status."""
        return msgspec.structs.replace(self, status=status)

    def to_bytes(self) -> bytes:
        """The state as bytes: equal states give equal bytes, in the node as in the lake."""
        return _ENCODER.encode([STATE_FORMAT, self.uid, self.serial, self.ver, self.kind, self.status, self.value])

    @classmethod
    def from_bytes(cls, stored: bytes) -> State:
        """What `to_bytes` wrote. Raises CorruptionError for anything else."""
        try:
            version, uid, serial, ver, kind, status, value = _STORED.decode(stored)
            if version != STATE_FORMAT:
                raise ValueError(f"format {version}")
            if kind is ObjectKind.BINARY:
                value = msgspec.convert(value, bytes, strict=False)
        except (msgspec.DecodeError, ValueError) as error:
            raise CorruptionError(f"a stored SDSP state cannot be read: {error}") from None
        return cls(uid, serial, ver, kind, value, status)


class Rebuilt(msgspec.Struct, frozen=True):
    """What became of a set of frames: the state, the frames that wait for a missing one, the ones that failed."""

    state: State | None
    pending: list[Frame]
    problems: list[Problem]


def fold(
    state: State | None, frame: Frame, deltas: Mapping[str, Delta], *, verify: bool = True, in_place: bool = False
) -> State | Problem:
    """The state after `frame`, or why there is none. Never raises for a bad frame.

    With `in_place`, the value of `state` may be changed and must not be used again, unless a Problem is returned: then
    it is untouched. `verify=False` skips checksums.
    """
    if state is not None:
        assert state.uid == frame.uid, "frames of one object only"
        if frame.serial <= state.serial:
            return Problem(Cause.OUTDATED, frame.serial)
        if state.status is Status.FROZEN:  # SDSP: a frozen object will no longer be updated
            return Problem(Cause.FROZEN, frame.serial, f"frozen at serial {state.serial}")
    if frame.delta is UNSET and not frame.frozen:
        return _start(frame, verify)
    if state is None or frame.serial != state.serial + 1:  # SDSP: applied to the object at the previous serial
        return Problem(Cause.GAP, frame.serial)
    if state.status is not Status.SYNCED:
        return Problem(Cause.GAP, frame.serial, f"{state.status}: waits for a full frame")
    if frame.ver != state.ver + 1:
        return Problem(Cause.BROKEN_CHAIN, frame.serial, f"ver {frame.ver} after ver {state.ver}")
    return _step(state, frame, deltas, verify, in_place)


def rebuild(
    state: State | None,
    frames: Iterable[Frame],
    deltas: Mapping[str, Delta],
    *,
    verify: bool = True,
    in_place: bool = False,
) -> Rebuilt:
    """Fold the frames of one object, which may come in any order, repeated or with some missing, into `state`.

    Frames that come after a gap are pending: give them again together with later ones. After a frame that cannot be
    applied the state is stale or failed and only a later full frame mends it.
    """
    problems: list[Problem] = []
    pending: list[Frame] = []
    ordered, forked = _in_order(frames)
    at = 0
    while at < len(ordered):
        if in_place and state is not None and not forked:
            state, at = _run_plain(state, ordered, at, deltas, verify)
            if at == len(ordered):
                break
        frame = ordered[at]
        at += 1
        if frame.serial in forked and (state is None or frame.serial > state.serial):
            problems.append(Problem(Cause.FORK, frame.serial, "two frames with this serial and different content"))
            state = _after(state, problems[-1])
            continue
        found = fold(state, frame, deltas, verify=verify, in_place=in_place)
        if isinstance(found, State):
            state, pending = found, []
        elif found.cause is Cause.GAP and (state is None or state.status is Status.SYNCED):
            pending.append(frame)
        elif found.cause is not Cause.OUTDATED:
            problems.append(found)
            state = _after(state, found)
    return Rebuilt(state, pending, problems)


def rebuild_sorted(
    raws: Iterable[bytes], deltas: Mapping[str, Delta], states: Callable[[str], State | None] = lambda uid: None
) -> Iterator[Rebuilt]:
    """Fold the frames of many objects, sorted by uid and serial, as a partition of the lake has them.

    `states` gives what is known of an object from before. Undecodable bytes are passed over: they were rejected. At
    most `CHUNK` frames, and those that wait for a missing one, are held at a time.
    """
    done: Rebuilt | None = None
    uid = ""
    for frames in _chunks(raws):
        if done is not None and frames[0].uid != uid:
            yield done
            done = None
        uid = frames[0].uid
        before = done or Rebuilt(states(uid), [], [])
        after = rebuild(before.state, [*before.pending, *frames], deltas, in_place=True)
        done = Rebuilt(after.state, after.pending, before.problems + after.problems)
    if done is not None:
        yield done


def _chunks(raws: Iterable[bytes]) -> Iterator[list[Frame]]:
    """Neighbouring frames of one object, not too many at a time."""
    frames: list[Frame] = []
    for raw in raws:
        try:
            frame = decode(raw)
        except DecodeError:
            continue
        if frames and (frame.uid != frames[0].uid or len(frames) >= CHUNK):
            yield frames
            frames = []
        frames.append(frame)
    if frames:
        yield frames


def object_at(serial: int, frames: Iterable[Frame], deltas: Mapping[str, Delta]) -> State | Problem:
    """The object as it was after `serial`, from any collection of its frames that reaches back to a full one."""
    upto = {frame.serial: frame for frame in frames if frame.serial <= serial}
    if serial not in upto:
        return Problem(Cause.GAP, serial, "no such frame")
    found = chain(upto.values(), upto[serial])
    if isinstance(found, Problem):
        return found
    state: State | None = None
    for frame in [*found, upto[serial]]:
        folded = fold(state, frame, deltas)
        if isinstance(folded, Problem):
            return folded
        state = folded
    assert state is not None
    return state


def chain(frames: Iterable[Frame], last: Frame, have: int = -1) -> list[Frame] | Problem:
    """What must be folded before `last`: the frames below it, back to the full one it builds on, in ascending order.

    `frames` is a history answer: in any order, with repeats, other objects and newer frames in it. With `have`, frames
    up to that serial are known already and need not be there.
    """
    # SDSP: sort by serial, remove duplicates, discard what is not below the last published frame
    below: dict[int, Frame] = {}
    for frame in frames:
        if frame.uid == last.uid and last.base <= frame.serial < last.serial:
            known = below.setdefault(frame.serial, frame)
            if known is not frame and not same_content(known, frame):
                return Problem(Cause.FORK, frame.serial, "history holds two frames with this serial")
    found: list[Frame] = []
    # SDSP: ver and serial decrease by one until ver 0 is reached
    for serial in range(last.serial - 1, max(last.base - 1, have), -1):
        previous = below.get(serial)
        if previous is None:
            return Problem(Cause.GAP, serial, "history does not hold this frame")
        if previous.base != last.base:
            return Problem(Cause.BROKEN_CHAIN, serial, f"ver {previous.ver} where {serial - last.base} is due")
        if previous.ver == 0 and previous.kind is not Kind.FULL:
            return Problem(Cause.BROKEN_CHAIN, serial, "ver 0 without an object")
        found.append(previous)
    return found[::-1]


_ENCODER: Final = msgspec.json.Encoder(order="sorted")
_STORED: Final = msgspec.json.Decoder(tuple[int, str, int, int, ObjectKind, Status, Any])
_ROOMY: Final = limits.SDSP_OBJECT_MAX * 7 // 8  # measured above this, an object is as large as it may get


def _in_order(frames: Iterable[Frame]) -> tuple[list[Frame], set[int]]:
    """Frames by ascending serial, each once, and the serials that two different frames claim."""
    by_serial: dict[int, Frame] = {}
    forked: set[int] = set()
    for frame in frames:
        known = by_serial.setdefault(frame.serial, frame)
        if known is not frame and not same_content(known, frame):
            forked.add(frame.serial)
    return [by_serial[serial] for serial in sorted(by_serial)], forked


def _run_plain(
    state: State, frames: list[Frame], at: int, deltas: Mapping[str, Delta], verify: bool
) -> tuple[State, int]:
    """Fold deltas that follow one another without anything special, from `at` on, and say where that ends.

    Does what `fold` does, frame after frame, but makes one state for all of them; it stops before whatever it cannot do.
    """
    algorithm = deltas.get(frames[at].alg)
    if algorithm is None or state.kind not in algorithm.kinds or state.status is not Status.SYNCED:
        return state, at
    first, base, value = at, state.serial - state.ver, state.value
    serial = state.serial
    budget = Budget(limits.SDSP_OBJECT_MAX - state.size)
    try:
        for at in range(first, len(frames)):
            frame = frames[at]
            if (
                frame.serial != serial + 1
                or frame.serial - frame.ver != base
                or frame.alg != algorithm.code
                or frame.frozen
                or (verify and frame.checksum is not None)
            ):
                break
            budget.work = limits.SDSP_DELTA_WORK
            value = algorithm.apply(value, frame.delta, budget, in_place=True)
            serial += 1
        else:
            at += 1
    except DeltaError:
        pass  # the value is untouched, and `fold` will say what is wrong
    if at == first:
        return state, at
    done = State(state.uid, serial, serial - base, state.kind, value, Status.SYNCED, state.size + budget.grown)
    return done, at


def _start(frame: Frame, verify: bool) -> State | Problem:
    if frame.data is UNSET:
        return Problem(Cause.UNRESOLVED, frame.serial, frame.data_uri)
    kind = frame.holds
    if verify and _mismatch(frame, kind, frame.data):
        return Problem(Cause.WRONG_CHECKSUM, frame.serial, "the object is not what its checksum says")
    if kind is not ObjectKind.JSON:
        size = len(frame.data)
    else:  # not measured, but no larger than what it came in
        size = limits.SDSP_OBJECT_MAX if frame.data_uri else limits.SDSP_FRAME_MAX
    return State(frame.uid, frame.serial, 0, kind, frame.data, Status.SYNCED, size)


def _step(state: State, frame: Frame, deltas: Mapping[str, Delta], verify: bool, in_place: bool) -> State | Problem:
    value, size = state.value, state.size
    if frame.delta is not UNSET:
        delta = deltas.get(frame.alg)
        if delta is None:
            return Problem(Cause.UNKNOWN_ALGORITHM, frame.serial, frame.alg)
        if state.kind not in delta.kinds:
            return Problem(Cause.DELTA_FAILED, frame.serial, f"{frame.alg} does not change {state.kind} objects")
        keep = in_place and not (verify and frame.checksum is not None)  # a wrong checksum must leave no trace
        try:
            value, size = _apply(state, frame.delta, delta, keep)
        except DeltaError as error:
            cause = Cause.OVERSIZE if error.reason is Reason.OVERSIZE else Cause.DELTA_FAILED
            return Problem(cause, frame.serial, str(error))
        if verify and _mismatch(frame, state.kind, value):
            return Problem(Cause.WRONG_CHECKSUM, frame.serial, "the delta makes another object than the publisher's")
    status = Status.FROZEN if frame.frozen else Status.SYNCED
    return State(state.uid, frame.serial, frame.ver, state.kind, value, status, size)


def _apply(state: State, delta: Any, algorithm: Delta, in_place: bool) -> tuple[Any, int]:
    """The new object and an upper estimate of its size; when the estimate gets too high, the object is measured."""
    budget = Budget(limits.SDSP_OBJECT_MAX - state.size)
    try:
        return algorithm.apply(state.value, delta, budget, in_place=in_place), state.size + budget.grown
    except DeltaError as error:
        if error.reason is not Reason.OVERSIZE:
            raise
    size = len(state.value) if state.kind is not ObjectKind.JSON else measure(state.value, Budget()).size
    if size > _ROOMY:
        raise DeltaError("the object is as large as one may be", reason=Reason.OVERSIZE)
    budget = Budget(limits.SDSP_OBJECT_MAX - size)
    return algorithm.apply(state.value, delta, budget, in_place=in_place), size + budget.grown


def _mismatch(frame: Frame, kind: ObjectKind, value: Any) -> bool:
    return frame.checksum is not None and checksums.matches(value, kind, frame.checksum) is False


def _after(state: State | None, problem: Problem) -> State | None:
    """The state once a frame of its future turned out to be unusable."""
    if state is None or state.status is not Status.SYNCED or problem.cause in (Cause.FROZEN, Cause.GAP):
        return state
    return state.marked(Status.FAILED if problem.cause is Cause.UNKNOWN_ALGORITHM else Status.STALE)
