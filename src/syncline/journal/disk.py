"""How much room the disk has left, and what the journal therefore still takes in."""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path

from syncline.core import limits
from syncline.core.clock import Clock
from syncline.core.settings import JournalSettings

FreeSpace = Callable[[Path], int]


class Intake(IntEnum):
    """What is taken in."""

    ALL = 0
    ACCEPTED_ONLY = 1  # rejects and ignores are counted, not kept
    NOTHING = 2


def free_bytes(folder: Path) -> int:
    """Bytes an unprivileged process may still write there."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


class Watermark:
    """Asks the disk now and then and remembers the answer."""

    def __init__(self, folder: Path, settings: JournalSettings, clock: Clock, probe: FreeSpace = free_bytes) -> None:
        self._folder = folder
        self._settings = settings
        self._clock = clock
        self._probe = probe
        self._asked_at = -float("inf")
        self.free = 0
        self.intake = Intake.ALL

    def look(self) -> Intake:
        """The state of the disk, at most DISK_PROBE_SECONDS old."""
        now = self._clock.monotonic()
        if now - self._asked_at >= limits.DISK_PROBE_SECONDS:
            self._asked_at = now
            self.free = self._probe(self._folder)
            if self.free < self._settings.disk_free_all:
                self.intake = Intake.NOTHING
            elif self.free < self._settings.disk_free_rejects:
                self.intake = Intake.ACCEPTED_ONLY
            else:
                self.intake = Intake.ALL
        return self.intake
