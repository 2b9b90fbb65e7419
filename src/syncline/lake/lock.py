"""One pipeline per lake at a time, on this machine. A courtesy that saves work and gives a clear message: what keeps
the tables right even without it is that every commit names its segments.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from syncline.core.errors import UnavailableError
from syncline.lake.roots import Lake

FILE: Final = ".pipeline.lock"


@contextmanager
def only_pipeline(lake: Lake) -> Iterator[None]:
    """Hold the lake's lock. The system lets go of it even if we are killed."""
    if not lake.tables.is_local:
        yield
        return
    lake.tables.path.mkdir(parents=True, exist_ok=True)
    with (lake.tables.path / FILE).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UnavailableError(
                "another pipeline is at work on this lake", hint="wait for it, or stop it", about=lake.tables.url
            ) from None
        yield
