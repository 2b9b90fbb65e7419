"""Frames of one object that came before their turn. Keeps them by serial and knows how much they weigh; how many may
wait, and for how long, is the subscriber's business.
"""

from __future__ import annotations

from collections.abc import Iterator

from syncline.protocols.sdsp.wire import Frame, Kind


class WaitingFrames:
    """At most one frame for each serial. Iterates in ascending order."""

    __slots__ = ("_by_serial", "_fulls", "_sizes", "bytes")

    def __init__(self) -> None:
        self.bytes = 0
        self._by_serial: dict[int, Frame] = {}
        self._fulls: set[int] = set()
        self._sizes: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._by_serial)

    def __iter__(self) -> Iterator[Frame]:
        return iter([self._by_serial[serial] for serial in sorted(self._by_serial)])

    def __getitem__(self, serial: int) -> Frame:
        return self._by_serial[serial]

    def get(self, serial: int) -> Frame | None:
        return self._by_serial.get(serial)

    def size(self, serial: int) -> int:
        return self._sizes[serial]

    def oldest(self) -> Frame | None:
        return self._by_serial[min(self._by_serial)] if self._by_serial else None

    def newest(self) -> Frame | None:
        return self._by_serial[max(self._by_serial)] if self._by_serial else None

    def full(self) -> Frame | None:
        """The oldest full frame that is at hand, so that no update is skipped; else the newest that must be loaded."""
        if not self._fulls:
            return None
        ready = [serial for serial in self._fulls if not self._by_serial[serial].unresolved]
        return self._by_serial[min(ready) if ready else max(self._fulls)]

    def put(self, frame: Frame, size: int) -> None:
        self.drop(frame.serial)
        self._by_serial[frame.serial] = frame
        self._sizes[frame.serial] = size
        self.bytes += size
        if frame.kind is Kind.FULL:
            self._fulls.add(frame.serial)

    def drop(self, serial: int) -> None:
        if self._by_serial.pop(serial, None) is not None:
            self.bytes -= self._sizes.pop(serial)
            self._fulls.discard(serial)

    def drop_until(self, serial: int) -> None:
        """Drop every frame up to this serial."""
        for passed in [waiting for waiting in self._by_serial if waiting <= serial]:
            self.drop(passed)
