"""The verdict on a frame. Content (is it a valid frame?) is judged from the bytes alone, in the node as in the lake;
context (does it belong to this publisher, this serial, this object?) from what the node passes in.

Whether a delta can be applied is no matter of the verdict: a frame is kept even where its object cannot be followed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

import msgspec

from syncline.core import limits
from syncline.core.errors import DecodeError
from syncline.core.record import Arrival, Incoming
from syncline.core.verdict import ACCEPT, Outcome, Reason, Verdict, reject
from syncline.protocols.sdsp.content import Content, content_of
from syncline.protocols.sdsp.wire import Frame, decode

PROTOCOL: Final = "sdsp"
KIND: Final = "frame"


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What the node knows when a frame comes, besides the frame itself."""

    publisher: str = ""  # who sent it, as the transport vouches for; empty: nobody vouches
    owner: str = ""  # whom the object is pinned to: its first vouched publisher; empty: nobody yet
    newest: int | None = None  # the highest serial kept of this object
    frozen_at: int | None = None  # the serial of its freeze frame, if kept
    same_id: Content | None = None  # `content_of` the frame kept under this uid and serial, if any


NOTHING_KNOWN: Final = Known()
Lookup = Callable[[Frame], Known]


def frame_id(uid: str, serial: int) -> bytes:
    """The identity of a frame: uid in UTF-8, a zero byte, serial as 8 bytes big-endian. Sorts by serial in a uid."""
    return uid.encode() + b"\0" + serial.to_bytes(8)


def judge(incoming: Incoming, lookup: Lookup) -> Arrival:
    """Decode and judge one message. `lookup` is asked only about frames that are valid by themselves; never raises."""
    try:
        frame = decode(incoming.raw)
    except DecodeError as error:
        return _unreadable(incoming, error.verdict)
    return judge_frame(incoming, frame, lookup(frame))


def judge_frame(incoming: Incoming, frame: Frame, known: Known) -> Arrival:
    """Judge a message that has been decoded already."""
    verdict = judge_context(frame, known)
    return Arrival(
        protocol=incoming.protocol,
        topic=incoming.topic,
        kind=KIND,
        id=frame_id(frame.uid, frame.serial),
        key=frame.uid,
        seq=frame.serial,
        publisher=known.publisher,
        peer=incoming.peer,
        direction=incoming.direction,
        received_at=incoming.received_at,
        raw=incoming.raw,
        verdict=verdict.outcome,
        reason=verdict.reason,
    )


def judge_content(raw: bytes, received_at: int) -> Verdict:
    """The verdict from the bytes alone: the same for ever. `received_at` does not matter to SDSP, which has no time."""
    try:
        decode(raw)
    except DecodeError as error:
        return error.verdict
    return ACCEPT


def judge_context(frame: Frame, known: Known) -> Verdict:
    """The verdict on a valid frame, given what came before it. A repeat is accepted: the journal knows it by its id."""
    if known.owner and known.publisher != known.owner:
        return reject(Reason.PUBLISHER_MISMATCH, f"the object belongs to {known.owner}")
    if known.same_id is not None:
        if known.same_id.same(content_of(frame)):
            return ACCEPT
        return reject(Reason.FORK, f"another frame with serial {frame.serial} is kept")
    if known.frozen_at is not None and frame.serial > known.frozen_at:
        return reject(Reason.FROZEN, f"the object is frozen since serial {known.frozen_at}")
    if frame.frozen and known.newest is not None and frame.serial < known.newest:
        return reject(Reason.OUT_OF_WINDOW, f"a freeze is the last frame, and {known.newest} is kept")
    # the object's own publisher may jump; anybody else could take the object over with a serial nobody can follow
    vouched = bool(known.publisher) and known.publisher == known.owner
    if not vouched and known.newest is not None and frame.serial - known.newest > limits.SDSP_SERIAL_JUMP:
        return reject(Reason.SERIAL_JUMP, f"serial {frame.serial} after {known.newest}")
    return ACCEPT


def _unreadable(incoming: Incoming, verdict: Verdict) -> Arrival:
    """An arrival that names no object: its identity is its bytes."""
    assert verdict.outcome is Outcome.REJECT
    return Arrival(
        protocol=incoming.protocol,
        topic=incoming.topic,
        kind=KIND,
        id=hashlib.sha256(incoming.raw).digest(),
        peer=incoming.peer,
        direction=incoming.direction,
        received_at=incoming.received_at,
        raw=incoming.raw,
        verdict=verdict.outcome,
        reason=verdict.reason,
    )
