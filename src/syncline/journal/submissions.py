"""What callers hand to the writer thread, and how its answer gets back to them: to threads, trio or asyncio tasks.

The queue is bounded in submissions; who finds it full waits. Nothing here touches the database.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import anyio
from anyio.lowlevel import EventLoopToken, current_token

from syncline.core import limits
from syncline.core.errors import ClosedError
from syncline.core.ports import StateChange
from syncline.core.record import Arrival
from syncline.journal.rows import Row

Kept = tuple[Arrival, int | None]  # the final arrival and the lsn it was kept under, if it was


class Waker(Protocol):
    """Wakes one waiting caller. `wake` runs where `token` says: on that event loop, or at once for threads."""

    token: EventLoopToken | None

    def wake(self) -> None: ...


class TaskWaker:
    """Wakes a task of the event loop it was made on."""

    __slots__ = ("_event", "token")

    def __init__(self) -> None:
        self.token: EventLoopToken | None = current_token()
        self._event = anyio.Event()

    def wake(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()


class ThreadWaker:
    """Wakes a thread."""

    __slots__ = ("_event", "token")

    def __init__(self) -> None:
        self.token: EventLoopToken | None = None
        self._event = threading.Event()

    def wake(self) -> None:
        self._event.set()

    def wait(self) -> None:
        self._event.wait()


class Submission:
    """One append: all of it is kept, or none."""

    __slots__ = ("arrivals", "error", "kept", "rows", "size", "state", "waker")

    def __init__(
        self, arrivals: Sequence[Arrival], rows: Sequence[Row], state: Sequence[StateChange], waker: Waker
    ) -> None:
        self.arrivals = arrivals
        self.rows = rows
        self.state = state
        self.waker = waker
        self.size = sum(len(a.raw) for a in arrivals if a.raw is not None)
        self.kept: list[Kept] = []
        self.error: BaseException | None = None


class SubmissionQueue:
    """Submissions in the order they came, taken out in groups by the one writer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._filled = threading.Condition(self._lock)
        self._pending: deque[Submission] = deque()
        self._outside: deque[Waker] = deque()  # callers who found the queue full; bounded by the number of callers
        self._closed = False

    def __len__(self) -> int:
        return len(self._pending)

    def offer(self, submission: Submission, make_waker: Callable[[], Waker]) -> Waker | None:
        """Enqueue and return None, or return what to wait for before trying again."""
        with self._lock:
            if self._closed:
                raise ClosedError("the journal is closed")
            if len(self._pending) < limits.JOURNAL_QUEUE_MAX:
                self._pending.append(submission)
                if len(self._pending) == 1:
                    self._filled.notify()
                return None
            waker = make_waker()
            self._outside.append(waker)
            return waker

    def take(self, timeout: float | None) -> list[Submission] | None:
        """The next group, an empty one when `timeout` passed, None once closed and empty."""
        with self._lock:
            if not self._pending and not self._closed:
                self._filled.wait(timeout)
            if not self._pending:
                return None if self._closed else []
            group: list[Submission] = []
            records = size = 0
            while self._pending:
                first = self._pending[0]
                records += len(first.rows) + len(first.state)
                size += first.size
                if group and (records > limits.JOURNAL_COMMIT_RECORDS or size > limits.JOURNAL_COMMIT_BYTES):
                    break
                group.append(self._pending.popleft())
            outside, self._outside = self._outside, deque()
        wake_all(outside)
        return group

    def poke(self) -> None:
        """Make `take` return early."""
        with self._lock:
            self._filled.notify()

    def close(self) -> None:
        """Refuse further submissions; what is queued can still be taken."""
        with self._lock:
            self._closed = True
            self._filled.notify()
            outside, self._outside = self._outside, deque()
        wake_all(outside)


def wake_all(wakers: Sequence[Waker] | deque[Waker]) -> None:
    """Wake every caller, with one crossing into each event loop."""
    by_token: dict[Any, list[Waker]] = {}
    for waker in wakers:
        if waker.token is None:
            waker.wake()
        else:
            by_token.setdefault(waker.token.native_token, []).append(waker)
    for token, tasks in by_token.items():
        _soon(token, tasks)


def _soon(token: Any, tasks: list[Waker]) -> None:
    """Run the wake-ups on a loop without waiting for it; anyio's own way back into a loop blocks the thread."""

    def wake() -> None:
        for task in tasks:
            task.wake()

    try:
        if hasattr(token, "run_sync_soon"):
            token.run_sync_soon(wake)
        else:
            token.call_soon_threadsafe(wake)
    except RuntimeError:  # the loop has ended (trio.RunFinishedError is one too): nobody waits any more
        pass
