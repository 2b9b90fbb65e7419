"""What callers hand to the writer thread, and how its answer gets back to them: to threads, trio or asyncio tasks.

The queue is bounded in submissions; who finds it full waits. Nothing here touches the database.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import anyio
import apsw
import sniffio
import trio

from syncline.core import limits
from syncline.core.errors import ClosedError
from syncline.core.ports import StateChange
from syncline.core.record import Arrival
from syncline.journal.rows import Row

Item = tuple[Arrival, Row, bytes]  # an arrival, its columns, its name (see terms.py)
Kept = tuple[Arrival, int | None]  # the final arrival and the lsn it was kept under, if it was


class Gate:
    """Opens once for everybody who waits at it: the tasks of one event loop, or threads.

    Callers whose submissions go into the same commit share a gate, so answering a group costs one crossing per loop.
    """

    __slots__ = ("event", "left", "loop")

    def __init__(self, loop: Any) -> None:
        self.loop = loop  # see `running_loop`; None for threads
        self.event: Any = threading.Event() if loop is None else anyio.Event()
        self.left = 0  # submissions not answered yet


class Submission:
    """One append: all of it is kept, or none."""

    __slots__ = ("error", "first", "gate", "items", "kept", "size", "state")

    def __init__(self, items: Sequence[Item], size: int, state: Sequence[StateChange]) -> None:
        self.items = items
        self.size = size  # of the raw bytes
        self.state = state
        self.gate: Gate
        self.first: int | None = None  # lsn, if all items were kept as they are, one after the other
        self.kept: list[Kept] = []  # if not
        self.error: BaseException | None = None


class Job:
    """Something else for the writer to do between two groups, in a transaction of its own."""

    __slots__ = ("done", "error", "result", "settle", "work")

    def __init__(
        self, work: Callable[[apsw.Connection], Any], settle: Callable[[Any], None] = lambda result: None
    ) -> None:
        self.work = work
        self.settle = settle  # given the result once it is on disk
        self.done = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None


class SubmissionQueue:
    """Submissions in the order they came, taken out in groups by the one writer. Jobs go first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._filled = threading.Condition(self._lock)
        self._pending: deque[Submission] = deque()
        self._gates: dict[Any, Gate] = {}  # of the submissions since the last group was taken, by event loop
        self._outside: dict[Any, Gate] = {}  # where those wait who found the queue full
        self._jobs: deque[Job] = deque()  # bounded by the threads that wait for them
        self._closed = False

    def __len__(self) -> int:
        return len(self._pending)

    def offer(self, submission: Submission, loop: Any) -> tuple[Gate, bool]:
        """The gate to wait at, and whether the submission is queued; if not, offer it again when the gate opens."""
        with self._lock:
            if self._closed:
                raise ClosedError("the journal is closed")
            queued = len(self._pending) < limits.JOURNAL_QUEUE_MAX
            gates = self._gates if queued else self._outside
            gate = gates.get(loop)
            if gate is None:
                gate = gates[loop] = Gate(loop)
            if queued:
                gate.left += 1
                submission.gate = gate
                self._pending.append(submission)
                if len(self._pending) == 1:
                    self._filled.notify()
            return gate, queued

    def assign(self, job: Job) -> None:
        """Have the writer do this next."""
        with self._lock:
            if self._closed:
                raise ClosedError("the journal is closed")
            self._jobs.append(job)
            self._filled.notify()

    def take(self, timeout: float | None = None) -> list[Submission] | Job | None:
        """The next job or group; an empty group after `timeout`; None once closed and empty."""
        with self._lock:
            if not self._pending and not self._jobs and not self._closed:
                self._filled.wait(timeout)
            if self._jobs:
                return self._jobs.popleft()
            if not self._pending:
                return None if self._closed else []
            group: list[Submission] = []
            records = size = 0
            while self._pending:
                first = self._pending[0]
                records += len(first.items) + len(first.state)
                size += first.size
                if group and (records > limits.JOURNAL_COMMIT_RECORDS or size > limits.JOURNAL_COMMIT_BYTES):
                    break
                group.append(self._pending.popleft())
            self._gates = {}
            outside, self._outside = self._outside, {}
        open_gates(outside.values())
        return group

    def close(self) -> None:
        """Refuse further submissions; what is queued can still be taken."""
        with self._lock:
            self._closed = True
            self._filled.notify()
            outside, self._outside = self._outside, {}
        open_gates(outside.values())


def running_loop() -> Any:
    """What runs the caller. anyio's own token says the same and takes as long as half of an append's checks."""
    if sniffio.thread_local.name == "trio":
        return trio.lowlevel.current_trio_token()
    return asyncio.get_running_loop()


def answer(group: Sequence[Submission]) -> None:
    """Open the gates at which nobody's answer is missing any more."""
    ready: list[Gate] = []
    gate, count = group[0].gate, 0
    for submission in group:  # runs of one gate: callers of one loop come together
        if submission.gate is not gate:
            ready += _settled(gate, count)
            gate, count = submission.gate, 0
        count += 1
    open_gates([*ready, *_settled(gate, count)])


def _settled(gate: Gate, count: int) -> list[Gate]:
    gate.left -= count
    return [gate] if gate.left == 0 else []


def open_gates(gates: Iterable[Gate]) -> None:
    """Open gates from the writer's thread, without waiting for their loops; anyio's own way in would block it."""
    for gate in gates:
        loop = gate.loop
        try:
            if loop is None:
                gate.event.set()
            elif hasattr(loop, "run_sync_soon"):
                loop.run_sync_soon(gate.event.set)
            else:
                loop.call_soon_threadsafe(gate.event.set)
        except RuntimeError:  # that loop has ended (trio.RunFinishedError is one too): nobody waits there any more
            pass
