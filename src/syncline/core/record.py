"""The record: one row for every arrival, good or bad, the same in node, journal, segment and table.

Holds the fields and their names; how they are stored (SQLite, Arrow) belongs to the journal.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

import msgspec

from syncline.core.errors import UsageError
from syncline.core.verdict import Outcome, Reason, Verdict

SEQ_MAX: Final = 2**64 - 1
_ACCEPT: Final = Outcome.ACCEPT  # looking up a member of an enum is slow, and this is asked for every message


class Direction(StrEnum):
    IN = "in"
    OUT = "out"


class Incoming(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Bytes as a network handed them over, before anybody judged them.

    `context` is what the service already knows against the message (a quota, a rate, a repeat). It applies only to
    content that is good: a forged message over quota is forged.
    """

    protocol: str
    topic: str
    raw: bytes
    peer: str
    received_at: int  # microseconds since 1970, as all times here
    direction: Direction = Direction.IN
    context: Verdict | None = None


class Arrival(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A judged message, not stored yet.

    `publisher` wrote it, `peer` handed it to us. `id` is the protocol's own identity of the message (docs/segments.md),
    unique only among live accepted rows of one node. `key` names what the message is about (an object, a satellite).
    """

    protocol: str
    topic: str
    kind: str
    id: bytes
    received_at: int
    verdict: Outcome
    reason: Reason | None = None
    direction: Direction = Direction.IN
    key: str = ""
    publisher: str = ""
    peer: str = ""
    seq: int | None = None
    published_at: int | None = None
    expires_at: int | None = None
    raw: bytes | None = None
    raw_ref: str | None = None

    @property
    def accepted(self) -> bool:
        return self.verdict is _ACCEPT

    def judged(self, verdict: Verdict) -> Arrival:
        """The same arrival under another verdict; an ignored one keeps no raw bytes."""
        kept = verdict.outcome is not Outcome.IGNORE
        return msgspec.structs.replace(
            self,
            verdict=verdict.outcome,
            reason=verdict.reason,
            raw=self.raw if kept else None,
            raw_ref=self.raw_ref if kept else None,
        )


class Record(Arrival, frozen=True, kw_only=True):
    """An arrival the journal has kept. (node, epoch, lsn) is its key everywhere."""

    node: str
    epoch: str
    lsn: int

    @property
    def name(self) -> RecordName:
        return RecordName(self.node, self.epoch, self.lsn)


def kept(a: Arrival, node: str, epoch: str, lsn: int) -> Record:
    """The record an arrival became under this lsn."""
    return Record(
        node=node, epoch=epoch, lsn=lsn, protocol=a.protocol, direction=a.direction, topic=a.topic, kind=a.kind,
        key=a.key, publisher=a.publisher, peer=a.peer, seq=a.seq, id=a.id, published_at=a.published_at,
        received_at=a.received_at, expires_at=a.expires_at, verdict=a.verdict, reason=a.reason, raw_ref=a.raw_ref,
        raw=a.raw,
    )  # fmt: skip


class RecordName(msgspec.Struct, frozen=True, order=True):
    """How a person types or reads a record: node/epoch/lsn."""

    node: str
    epoch: str
    lsn: int

    def __str__(self) -> str:
        return f"{self.node}/{self.epoch}/{self.lsn}"

    @classmethod
    def parse(cls, text: str) -> RecordName:
        match = re.fullmatch(r"([0-9A-Za-z]+)/([0-9a-f]{16})/([0-9]{1,19})", text)
        if match is None:
            raise UsageError(
                f"{text!r} is not a record's name", hint="write node/epoch/lsn, as `syncline tail` prints it"
            )
        return cls(match[1], match[2], int(match[3]))
