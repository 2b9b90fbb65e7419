"""What waits to be committed: messages and state of many conversations, each with what to do when it is on disk.

A batch is one append to the journal. Answers and fan-out happen in `done`, which runs only after the commit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from syncline.core.limits import RELAY_BACKLOG_BYTES, RELAY_BATCH_RECORDS
from syncline.core.ports import ANY, Receipt, StateChange
from syncline.core.record import Incoming
from syncline.protocols.relay.session.cache import Entry
from syncline.protocols.relay.session.durable import messages_changes


class Step(Protocol):
    """What one conversation does about its part of a batch."""

    def done(self, receipts: Sequence[Receipt]) -> None: ...

    def failed(self, error: Exception) -> None: ...


class Work(msgspec.Struct, eq=False, gc=False):
    """One conversation's part of a batch."""

    incoming: Sequence[Incoming]
    state: Sequence[StateChange]
    step: Any  # a Step, or None
    entries: Sequence[Entry]  # the places in the cache that these messages have been given
    size: int


class Batch:
    """Works that are committed together."""

    __slots__ = ("_works", "faults", "incoming", "state")

    def __init__(self, works: Sequence[Work]) -> None:
        self._works = works
        self.faults: list[Exception] = []
        self.incoming: list[Incoming] = [message for work in works for message in work.incoming]
        self.state: list[StateChange] = [change for work in works for change in work.state]
        entries = [entry for work in works for entry in work.entries]
        if entries:
            self.state += messages_changes(entries)

    def __len__(self) -> int:
        return len(self._works)

    def apart(self) -> list[Batch]:
        """Each work as a batch of its own."""
        return [Batch([work]) for work in self._works]

    def done(self, receipts: Sequence[Receipt]) -> None:
        """Let every conversation go on; `receipts` are those of `incoming`."""
        start = 0
        for work in self._works:
            count = len(work.incoming)
            if work.step is not None:
                try:
                    work.step.done(receipts[start : start + count] if count else ())
                except Exception as error:  # a fault of ours in one conversation must not stop the others
                    self.faults.append(error)
            start += count

    def failed(self, error: Exception) -> None:
        """Let every conversation know."""
        for work in self._works:
            if work.step is not None:
                try:
                    work.step.failed(error)
                except Exception as fault:  # as above
                    self.faults.append(fault)


class CommitQueue:
    """Works in the order they came. Batches are committed one after the other, so this is also the order on disk."""

    def __init__(self) -> None:
        self._works: deque[Work] = deque()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._works)

    @property
    def is_full(self) -> bool:
        """Whether the driver should stop reading for a while."""
        return self.bytes > RELAY_BACKLOG_BYTES

    def put(
        self,
        incoming: Sequence[Incoming],
        state: Sequence[StateChange] = (),
        step: Step | None = None,
        entries: Sequence[Entry] = (),
    ) -> None:
        """`entries` are the places in the cache that these messages have been given."""
        size = len(incoming[0].raw) if len(incoming) == 1 else sum(len(message.raw) for message in incoming)
        self.bytes += size
        self._works.append(Work(incoming, state, step, entries, size))

    def take(self) -> Batch | None:
        """The next batch, if anything waits."""
        works: list[Work] = []
        records = 0
        while self._works:
            work = self._works[0]
            records += len(work.incoming)
            alone = bool(work.state) and _is_alone(work.state)
            if works and (alone or records > RELAY_BATCH_RECORDS):
                break
            works.append(self._works.popleft())
            self.bytes -= work.size
            if alone:
                break
        return Batch(works) if works else None


def _is_alone(state: Sequence[StateChange]) -> bool:
    """Whether these changes may meet a conflict, which must not be others' too."""
    return any(change.expect is not ANY for change in state)
