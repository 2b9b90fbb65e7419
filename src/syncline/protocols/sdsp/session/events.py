"""The words of a subscriber's conversation: what its driver tells it, what it asks of the driver, what users hear."""

from __future__ import annotations

from typing import Any

import msgspec

from syncline.protocols.sdsp.rebuild import Cause
from syncline.protocols.sdsp.wire import Frame, ObjectKind

# What the driver tells the session --------------------------------------------------------------------------------


class FrameReceived(msgspec.Struct, frozen=True):
    """A frame came, from the transport or as the last published one. `size` is the number of its bytes."""

    frame: Frame
    size: int = 0


class HistoryAnswered(msgspec.Struct, frozen=True):
    """The answer to `AskHistory`: frames in any order, with repeats and other objects; undecodable ones left out."""

    ask: int
    frames: list[Frame]


class HistoryFailed(msgspec.Struct, frozen=True):
    """There is no history to ask, or it did not answer, after whatever tries the driver makes."""

    ask: int
    detail: str = ""


class DataLoaded(msgspec.Struct, frozen=True):
    """The bytes that `LoadData` asked for."""

    serial: int
    data: bytes


class DataFailed(msgspec.Struct, frozen=True):
    """They could not be had, or the address was refused."""

    serial: int
    detail: str = ""


class TimerFired(msgspec.Struct, frozen=True):
    """The session's `deadline` has come. Harmless if it has not."""


Event = FrameReceived | HistoryAnswered | HistoryFailed | DataLoaded | DataFailed | TimerFired

# What users hear --------------------------------------------------------------------------------------------------


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The object is there for the first time."""

    serial: int
    value: Any


class Update(msgspec.Struct, frozen=True, tag="update"):
    """The object changed. `old` and `new` may share parts: treat both as read-only.

    `old` is None if the subscriber was told not to keep it (`Following.keep_old`).
    """

    serial: int
    old: Any
    new: Any


class Frozen(msgspec.Struct, frozen=True, tag="frozen"):
    """The object will not change any more."""

    serial: int
    value: Any


class Stale(msgspec.Struct, frozen=True, tag="stale"):
    """The object can no longer be followed, why, and from which frame on. The last good one stays available."""

    serial: int
    cause: Cause
    detail: str = ""


class Resynced(msgspec.Struct, frozen=True, tag="resynced"):
    """After `Stale`, `Fork` or an unknown algorithm: it is followed again. `old` is the last good object, if any."""

    serial: int
    old: Any
    new: Any


class Fork(msgspec.Struct, frozen=True, tag="fork"):
    """Two frames with one serial say different things. `frame` is the later one, which is put aside, not applied."""

    serial: int
    frame: Frame


class Error(msgspec.Struct, frozen=True, tag="error"):
    """A frame was refused: the object is frozen, the serial is not believed, or the algorithm is not known."""

    serial: int
    cause: Cause
    detail: str = ""


UserEvent = Ready | Update | Frozen | Stale | Resynced | Fork | Error

# What the session asks of the driver ------------------------------------------------------------------------------


class Emit(msgspec.Struct, frozen=True):
    """Tell the user."""

    event: UserEvent


class AskHistory(msgspec.Struct, frozen=True):
    """Get the frames before `frame`: from `uri` if there is one, else from the history plug-in, which is given `frame`.

    Needed are the serials `frame.base` to `frame.serial`. Answer with HistoryAnswered or HistoryFailed and this `ask`.
    """

    ask: int
    frame: Frame
    uri: str


class LoadData(msgspec.Struct, frozen=True):
    """Load the object that frame `serial` points at; answer with DataLoaded or DataFailed."""

    serial: int
    uri: str
    kind: ObjectKind


Action = Emit | AskHistory | LoadData
