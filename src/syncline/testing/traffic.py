"""Seeded SDSP traffic with its truth: what publishers did, what each node received, and therefore what every table must
hold. The truth comes from editing plain Python values, never from the code under test.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from syncline.core.record import Arrival, Incoming, Record
from syncline.core.verdict import Reason, ignore
from syncline.protocols.sdsp.rules import NOTHING_KNOWN, PROTOCOL, judge
from syncline.protocols.sdsp.wire import Frame, delta_frame, encode, freeze_frame, full_frame
from syncline.testing.segments import DAY_ZERO, FakeJournal, in_pieces, write_segments

TOPIC: Final = "objects"
GARBAGE: Final = (b"", b"{", b'{"uid": "x"}', b"\xff\xfe", b'{"uid":"x","serial":1,"delta":[],"data":1}')


class Published(msgspec.Struct, frozen=True):
    """One frame as its publisher sent it, and the object as it then was."""

    frame: Frame
    raw: bytes
    value: Any


class Truth(msgspec.Struct):
    """What the tables must hold once everything has landed."""

    published: dict[tuple[str, int], Published] = msgspec.field(default_factory=dict)
    records: dict[str, Record] = msgspec.field(default_factory=dict)

    def newest(self) -> dict[str, Published]:
        """The last frame of every object."""
        return {uid: each for (uid, _), each in sorted(self.published.items())}

    def names(self) -> set[str]:
        return set(self.records)

    def rejected(self) -> set[str]:
        return {name for name, record in self.records.items() if record.verdict == "reject"}


class Traffic:
    """Objects being edited, and nodes that hear of it."""

    def __init__(self, seed: int, *, objects: int = 10, prefix: str = "object") -> None:
        self._random = random.Random(seed)
        self._alive = [f"{prefix}-{seed}-{number}" for number in range(objects)]  # not frozen
        self._values: dict[str, Any] = {}
        self._frames: dict[str, Frame] = {}
        self._now = DAY_ZERO
        self.truth = Truth()

    def publish(self, count: int) -> list[Published]:
        """The next `count` frames: an object is born, edited, replaced, in the end perhaps frozen."""
        sent = []
        for _ in range(count):
            sent.append(self._publish(self._random.choice(self._alive)))
            if sent[-1].frame.frozen:
                self._alive.remove(sent[-1].frame.uid)
        return sent

    def receive(
        self,
        journal: FakeJournal,
        sent: Sequence[Published],
        *,
        disorder: int = 0,
        repeats: float = 0.0,
        garbage: float = 0.0,
        step: int = 1_000_000,
    ) -> list[Record]:
        """What a node keeps of these frames: in about their order, some twice (ignored), with garbage in between
        (rejected). `step` is the time between arrivals in microseconds.
        """
        order = sorted(range(len(sent)), key=lambda index: index + self._random.random() * disorder)
        arrivals: list[Arrival] = []
        for index in order:
            arrivals.append(self._arrive(sent[index].raw, step))
            if self._random.random() < repeats:
                again = self._arrive(sent[self._random.choice(order)].raw, step)
                arrivals.append(again.judged(ignore(Reason.DUPLICATE)))
            if self._random.random() < garbage:
                arrivals.append(self._arrive(self._random.choice(GARBAGE), step))
        records = journal.keep(arrivals)
        self.truth.records.update({str(record.name): record for record in records})
        return records

    def _publish(self, uid: str) -> Published:
        previous = self._frames.get(uid)
        roll = self._random.random()
        if previous is None or roll < 0.05:
            self._values[uid] = {"n": 0, "name": uid, "tags": [], "deep": {"x": {"y": [1, 2, 3]}}}
            frame = full_frame(uid, previous.serial + 1 if previous else 0, copy.deepcopy(self._values[uid]))
        elif roll > 0.997:
            frame = freeze_frame(uid, previous.serial + 1, previous.ver + 1)
        else:
            frame = delta_frame(uid, previous.serial + 1, previous.ver + 1, "jp", self._edit(self._values[uid]))
        self._frames[uid] = frame
        published = Published(frame, encode(frame), copy.deepcopy(self._values[uid]))
        self.truth.published[uid, frame.serial] = published
        return published

    def _edit(self, value: Any) -> list[Mapping[str, Any]]:
        """Change the value in some ways, and say so in JSON Patch."""
        value["n"] += 1
        operations: list[Mapping[str, Any]] = [{"op": "replace", "path": "/n", "value": value["n"]}]
        kind = self._random.randrange(4)
        if kind == 0:
            value["tags"].append(f"tag {value['n']} é😀")
            operations.append({"op": "add", "path": "/tags/-", "value": value["tags"][-1]})
        elif kind == 1 and value["tags"]:
            del value["tags"][0]
            operations.append({"op": "remove", "path": "/tags/0"})
        elif kind == 2:
            value["deep"]["x"]["y"][1] = value["n"] / 4
            operations.append({"op": "replace", "path": "/deep/x/y/1", "value": value["n"] / 4})
        return operations

    def _arrive(self, raw: bytes, step: int) -> Arrival:
        self._now += step
        incoming = Incoming(protocol=PROTOCOL, topic=TOPIC, raw=raw, peer="neighbour", received_at=self._now)
        return judge(incoming, lambda frame: NOTHING_KNOWN)


def seal(folder: Path, records: Iterable[Record], size: int = 50) -> list[Path]:
    """Seal one node's records as its drainer would, `size` at a time."""
    return [path for piece in in_pieces(list(records), size) for path in write_segments(folder, piece)]
