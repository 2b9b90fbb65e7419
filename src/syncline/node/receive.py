"""Receiving: the node's `Sink`. Judge, append, and only then answer.

One call is one transaction: its messages and the protocol state that belongs to them are kept together or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from syncline.core.errors import ClosedError
from syncline.core.ports import Receipt, StateChange
from syncline.core.record import Incoming
from syncline.journal import Journal
from syncline.node.judge import Judges


class Receiver:
    """Implements `core.ports.Sink` on a journal."""

    def __init__(self, judges: Judges, journal: Journal) -> None:
        self._judges = judges
        self._journal = journal
        self._open = True
        self.verdicts: Counter[tuple[str, str, str]] = Counter()  # (protocol, verdict, reason): bounded by the enums
        self.bytes: Counter[str] = Counter()

    async def receive(self, incoming: Sequence[Incoming], state: Sequence[StateChange] = ()) -> list[Receipt]:
        if not self._open:
            raise ClosedError("the node is shutting down and takes nothing more in")
        arrivals = [self._judges.judge(message) for message in incoming]
        receipts = await self._journal.append(arrivals, state)
        for message, receipt in zip(incoming, receipts, strict=True):
            arrival = receipt.arrival
            self.verdicts[arrival.protocol, arrival.verdict._value_, arrival.reason or ""] += 1  # `value` is slow
            self.bytes[message.protocol] += len(message.raw)
        return receipts

    def close(self) -> None:
        """Take nothing more in; what was taken is still committed."""
        self._open = False
