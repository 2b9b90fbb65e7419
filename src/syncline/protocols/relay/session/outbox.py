"""What a session wants done, collected until its driver comes by: frames to send, ends to make, bodies to read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from syncline.protocols.relay.session.cache import Entry


class Port:
    """One open WebSocket, as the session sees it: frames wait here for the driver, in order."""

    __slots__ = ("_outbox", "end", "frames", "in_flight", "waiting_bytes")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self.frames: list[tuple[bool, bytes]] = []  # (is text, payload)
        self.waiting_bytes = 0
        self.in_flight = 0  # requests not answered yet
        self.end: tuple[int, str] | None = None  # close code and reason, once it is over

    def text(self, payload: bytes) -> None:
        if self.end is None:
            self.frames.append((True, payload))
            self.waiting_bytes += len(payload)
            self._outbox.ready[self] = None

    def binary(self, payload: bytes) -> None:
        if self.end is None:
            self.frames.append((False, payload))
            self.waiting_bytes += len(payload)
            self._outbox.ready[self] = None

    def close(self, code: int, reason: str) -> None:
        """End it after what is waiting has been sent."""
        if self.end is None:
            self.end = (code, reason)
            self._outbox.ready[self] = None

    def take(self) -> list[tuple[bool, bytes]]:
        """What to send now."""
        frames, self.frames = self.frames, []
        self.waiting_bytes = 0
        return frames


class Load:
    """Bodies to read from the journal; `then` gets one per entry, None where it is gone."""

    __slots__ = ("entries", "then")

    def __init__(self, entries: Sequence[Entry], then: Callable[[Sequence[bytes | None]], None]) -> None:
        self.entries = entries
        self.then = then


class Outbox:
    """Everything that waits for the driver."""

    def __init__(self) -> None:
        self.ready: dict[Port, None] = {}  # ports with frames or an end, in order
        self.loads: list[Load] = []

    def take_ready(self) -> Iterable[Port]:
        ready, self.ready = self.ready, {}
        return ready

    def take_loads(self) -> list[Load]:
        loads, self.loads = self.loads, []
        return loads
