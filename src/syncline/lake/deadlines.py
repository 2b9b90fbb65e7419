"""Stops what takes too long. One thread watches all deadlines, because a thread for each would cost a short query more
than its own work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_LOOK_SECONDS: Final = 0.05


class Deadline:
    """One piece of work under watch."""

    def __init__(self, at: float, stop: Callable[[], None]) -> None:
        self.at = at
        self.passed = False
        self._stop = stop

    def expire(self) -> None:
        self.passed = True
        self._stop()


class Deadlines:
    """Watches until closed. A deadline is noticed at most a twentieth of a second late."""

    def __init__(self) -> None:
        self._watched: set[Deadline] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="deadlines", daemon=True)
        self._thread.start()

    @contextmanager
    def within(self, seconds: float, stop: Callable[[], None]) -> Iterator[Deadline]:
        """Call `stop`, from another thread, if the block takes longer."""
        deadline = Deadline(time.monotonic() + seconds, stop)
        with self._lock:
            self._watched.add(deadline)
        try:
            yield deadline
        finally:
            with self._lock:
                self._watched.discard(deadline)

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._closed.wait(_LOOK_SECONDS):
            now = time.monotonic()
            with self._lock:
                late = [deadline for deadline in self._watched if deadline.at <= now]
                self._watched.difference_update(late)
                for deadline in late:  # under the lock: nothing is stopped after its block was left
                    deadline.expire()
