"""What waits to be committed: messages and state of many conversations, each with what to do when it is on disk.

A batch is one append to the journal. Answers and fan-out happen in `done`, which runs only after the commit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from syncline.core.limits import RELAY_BACKLOG_BYTES, RELAY_BATCH_RECORDS
from syncline.core.ports import Receipt, StateChange
from syncline.core.record import Incoming


class Step(Protocol):
    """What one conversation does about its part of a batch."""

    def done(self, receipts: Sequence[Receipt]) -> None: ...

    def failed(self, error: Exception) -> None: ...


class Work:
    """One conversation's part of a batch."""

    __slots__ = ("incoming", "size", "state", "step")

    def __init__(self, incoming: Sequence[Incoming], state: Sequence[StateChange], step: Step | None) -> None:
        self.incoming = incoming
        self.state = state
        self.step = step
        self.size = sum(len(message.raw) for message in incoming)


class Batch:
    """Works that are committed together."""

    __slots__ = ("_works", "incoming", "state")

    def __init__(self, works: Sequence[Work]) -> None:
        self._works = works
        self.incoming: list[Incoming] = [message for work in works for message in work.incoming]
        self.state: list[StateChange] = [change for work in works for change in work.state]

    def __len__(self) -> int:
        return len(self._works)

    def done(self, receipts: Sequence[Receipt]) -> None:
        """Let every conversation go on; `receipts` are those of `incoming`."""
        start = 0
        for work in self._works:
            stop = start + len(work.incoming)
            if work.step is not None:
                work.step.done(receipts[start:stop])
            start = stop

    def failed(self, error: Exception) -> None:
        for work in self._works:
            if work.step is not None:
                work.step.failed(error)


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

    def put(self, incoming: Sequence[Incoming], state: Sequence[StateChange] = (), step: Step | None = None) -> None:
        work = Work(incoming, state, step)
        self.bytes += work.size
        self._works.append(work)

    def take(self) -> Batch | None:
        """The next batch, if anything waits."""
        works: list[Work] = []
        records = 0
        while self._works and (not works or records + len(self._works[0].incoming) <= RELAY_BATCH_RECORDS):
            work = self._works.popleft()
            self.bytes -= work.size
            records += len(work.incoming) + len(work.state)
            works.append(work)
        return Batch(works) if works else None
