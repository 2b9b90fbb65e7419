"""What a node remembers of each object in the journal's state: its tip, and the frames that must outlive the journal.

Small, durable and written in the same transaction as the frames it tells of. States and followers are in `shelf`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from syncline.core.limits import SDSP_PAGE_FRAMES
from syncline.core.ports import Ground, RecordQuery, StateChange
from syncline.core.verdict import Outcome
from syncline.protocols.sdsp.rebuild import content_of
from syncline.protocols.sdsp.rules import PROTOCOL, Known, frame_id
from syncline.protocols.sdsp.session import Head
from syncline.protocols.sdsp.wire import Frame, Kind, ObjectKind, decode

TIPS: Final = "sdsp.object"  # key: uid; value: Tip
KEPT: Final = "sdsp.frame"  # key: frame_id; value: the frame's bytes


class Tip(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Enough to judge the next frame of an object and to find its newest ones, whatever happens."""

    serial: int  # the newest
    base: int  # the full frame it builds on
    topic: str
    kind: ObjectKind = ObjectKind.JSON
    owner: str = ""  # the publisher the object is pinned to; empty: to nobody
    frozen_at: int | None = None
    since: int = 0  # when the full frame came
    floor: int = 0  # its record comes after this lsn, so that it is found without reading all before
    kept: int = -1  # frames from `base` to here have been copied into state, because their records will be removed
    head: Head | None = None  # of the publisher session, if this node makes the frames

    def after(self, frame: Frame, floor: int, now: int) -> Tip:
        """The tip once `frame` is there too, behind record `floor`; frames may come out of order."""
        frozen_at = frame.serial if frame.frozen else self.frozen_at
        if frame.serial <= self.serial:
            return msgspec.structs.replace(self, frozen_at=frozen_at, floor=min(self.floor, floor))
        moved = msgspec.structs.replace(self, serial=frame.serial, base=frame.base, frozen_at=frozen_at, head=None)
        if frame.base == self.base:
            return moved
        kind = frame.holds if frame.kind is Kind.FULL else self.kind
        return msgspec.structs.replace(moved, kind=kind, since=now, floor=floor, kept=-1)


def first_tip(frame: Frame, topic: str, owner: str, floor: int, now: int) -> Tip:
    """The tip of an object whose first frame, here, this is."""
    return Tip(
        serial=frame.serial,
        base=frame.base,
        topic=topic,
        kind=frame.holds,
        owner=owner,
        frozen_at=frame.serial if frame.frozen else None,
        since=now,
        floor=floor,
    )


def changes(uid: str, old: Tip | None, new: Tip, expect: bytes | None) -> list[StateChange]:
    """The new tip, if nobody has changed it meanwhile, without the copies of frames it no longer builds on."""
    outdated = range(old.base, old.kept + 1) if old is not None and old.base != new.base else range(0)
    return [
        StateChange(space=TIPS, key=uid.encode(), value=msgspec.json.encode(new), expect=expect),
        *(StateChange(space=KEPT, key=frame_id(uid, serial), value=None) for serial in outdated),
    ]


class Tips:
    """What is kept of objects, as the journal knows it: enough to judge frames by."""

    def __init__(self, ground: Ground) -> None:
        self._state = ground.state
        self._records = ground.records

    def get(self, uid: str) -> tuple[Tip | None, bytes | None]:
        """The tip of an object, and its stored form to compare with when it is changed."""
        stored = self._state.get_state(TIPS, uid.encode())
        return (None, None) if stored is None else (msgspec.json.decode(stored, type=Tip), stored)

    def known(self, frame: Frame, publisher: str) -> Known:
        """What the rules want to know when a frame comes."""
        tip, _ = self.get(frame.uid)
        if tip is None:
            return Known(publisher=publisher)
        same = self.same(frame) if frame.serial <= tip.serial else None
        return Known(
            publisher=publisher,
            owner=tip.owner,
            newest=tip.serial,
            frozen_at=tip.frozen_at,
            same_id=None if same is None else content_of(same),
        )

    def same(self, frame: Frame) -> Frame | None:
        """The accepted frame of the same uid and serial, if there is one."""
        name = frame_id(frame.uid, frame.serial)
        found = self._records.read(RecordQuery(id=name, protocol=PROTOCOL, verdict=Outcome.ACCEPT, limit=1))
        raw = found[0].raw if found else self._state.get_state(KEPT, name)  # copies outlive the records
        return None if raw is None else decode(raw)

    def kept(self, uid: str, first: int, last: int) -> dict[int, bytes]:
        """Copied frames by their serials, as many as one answer may hold."""
        found = {}
        for serial in range(first, min(last + 1, first + SDSP_PAGE_FRAMES)):
            if (raw := self._state.get_state(KEPT, frame_id(uid, serial))) is not None:
                found[serial] = raw
        return found

    def listed(self, limit: int) -> list[tuple[str, Tip]]:
        """Objects in the order of their names."""
        found = self._state.scan_state(TIPS, b"", limit)
        return [(key.decode(), msgspec.json.decode(stored, type=Tip)) for key, stored in found]

    def every(self, prefix: bytes = b"", limit: int = SDSP_PAGE_FRAMES) -> Iterator[tuple[str, Tip]]:
        """All objects, however many, in short reads: what does not fit one is asked for by longer beginnings."""
        found = self._state.scan_state(TIPS, prefix, limit)
        if len(found) < limit:
            yield from ((key.decode(), msgspec.json.decode(stored, type=Tip)) for key, stored in found)
            return
        if (exact := self._state.get_state(TIPS, prefix)) is not None:
            yield prefix.decode(), msgspec.json.decode(exact, type=Tip)
        for byte in range(256):
            yield from self.every(prefix + bytes([byte]), limit)
