"""Ports for servers that are told where to listen, or that come back where they were.

Below the range from which the kernel gives connections their own ends, and each worker of a test run has a part of its
own, so nobody else takes a port between two moments of a test.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from itertools import count

_FIRST, _PER_WORKER, _WORKERS = 20_000, 3_000, 4


def free_port() -> int:
    """A port of loopback on which nobody listens, and that this run has not given away lately."""
    return next(_free)


def free_ports(number: int) -> list[int]:
    return [free_port() for _ in range(number)]


def _ports() -> Iterator[int]:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS
    for n in count(os.getpid()):  # another run may have left some of them closing
        port = _FIRST + worker * _PER_WORKER + n % _PER_WORKER
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        yield port


_free = _ports()
