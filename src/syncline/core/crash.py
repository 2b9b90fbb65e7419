"""Named points at which tests may kill the process, to prove that nothing acknowledged is lost there.

A point is armed only by the variable SYNCLINE_CRASH_AT=name or name:n (die at its n-th passing). Unarmed, passing one
costs a comparison. What must hold after the crash is stated by the tests, not here.
"""

from __future__ import annotations

import os
import signal
from typing import Final

VARIABLE: Final = "SYNCLINE_CRASH_AT"


class _Armed:
    """The one point of this process that is armed, and how many passings it still survives."""

    def __init__(self, text: str) -> None:
        self.name, _, count = text.partition(":")
        self.left = int(count) if count else 1


_armed = _Armed(os.environ.get(VARIABLE, ""))


def crash_point(name: str) -> None:
    """Die here, as by kill -9, if this point is armed and its turn has come."""
    if name != _armed.name:
        return
    _armed.left -= 1
    if _armed.left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
