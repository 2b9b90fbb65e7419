"""Settings of the Python interpreter that a long-running node needs, set once by whoever starts one."""

from __future__ import annotations

import gc
import sys
from typing import Final

import pyarrow as pa

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
    _spare_pandas()


def _spare_pandas() -> None:
    """Let pyarrow look for pandas now and not find it.

    It looks when it first makes an array of Python values, which here is when the first segment is sealed: half a second
    of imports beside the event loop, and 50 MB, for what a node never uses. Whoever asks for pandas itself still gets it.
    """
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas)
        try:
            pa.array([0])
        finally:
            sys.meta_path.remove(_NoPandas)


class _NoPandas:
    """A finder of modules that knows one thing."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("a node does without pandas", name=name)
