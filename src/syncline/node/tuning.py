"""Settings of the Python interpreter that a long-running node needs, set once by whoever starts one."""

from __future__ import annotations

import gc
import sys
from typing import Final

SWITCH_SECONDS: Final = 0.0005
YOUNG_OBJECTS: Final = 50_000


def tune() -> None:
    """For a process that runs a node.

    A loop busy in 1 ms slices starves the journal's writer thread for seconds at the default switch interval of 5 ms.
    Every message makes a handful of containers that live until its commit; at the default threshold of 700 the cycle
    collector walks them again and again, which cost a relay one message in six.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(YOUNG_OBJECTS, 20, 50)
