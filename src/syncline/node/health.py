"""Checks an operator runs before calling for help: each finds one thing that is wrong and says how to mend it.

The checks look and never change anything. Those of the lake (Java) are in its own floor.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final, Literal

import httpx
import msgspec

from syncline.core.clock import Clock
from syncline.core.errors import CorruptionError, KeyFileError, SynclineError
from syncline.core.keys import NodeKey
from syncline.core.settings import ApiSettings, JournalSettings

FSYNC_SLOW_MS: Final = 25.0
FSYNC_TRIES: Final = 9
CLOCK_OFF_SECONDS: Final = 5.0

Level = Literal["ok", "warn", "fail"]


class Finding(msgspec.Struct, frozen=True):
    """What a check saw; `fix` is the line to run or change."""

    check: str
    level: Level
    detail: str
    fix: str = ""


def check_key(path: Path) -> Finding:
    try:
        key = NodeKey.load(path)
    except KeyFileError as error:
        return Finding("key", "fail", str(error), error.hint)
    return Finding("key", "ok", key.peer_id)


def check_port(api: ApiSettings) -> Finding:
    family = socket.AF_INET6 if ":" in api.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((api.host, api.port))
        except OSError as error:
            return Finding(
                "port",
                "fail",
                f"{api.host}:{api.port}: {error.strerror}",
                "stop what listens there, or run with --set api.port=0",
            )
    return Finding("port", "ok", f"{api.host}:{api.port} is free")


def check_token(api: ApiSettings) -> Finding:
    from syncline.node.guard import check_bind

    try:
        check_bind(api)
    except SynclineError as error:
        return Finding("token", "fail", str(error), error.hint)
    return Finding("token", "ok", "set" if api.token else "not needed on loopback")


def check_disk(folder: Path, journal: JournalSettings, slow_ms: float = FSYNC_SLOW_MS) -> list[Finding]:
    """How long an fsync takes where the journal lives, and how much room is left."""
    place = next(path for path in (folder, *folder.parents) if path.exists())
    times = sorted(_fsync_ms(place) for _ in range(FSYNC_TRIES))
    median = times[len(times) // 2]
    speed = Finding(
        "disk",
        "ok" if median <= slow_ms else "warn",
        f"an fsync takes {median:.1f} ms",
        "" if median <= slow_ms else "put node.data on a local SSD: every acknowledged record waits for an fsync",
    )
    free = shutil.disk_usage(place).free
    enough = free > journal.disk_free_rejects
    room = Finding(
        "space",
        "ok" if enough else "fail",
        f"{free / 1e9:.1f} GB free",
        "" if enough else "free disk space, or lower journal.disk_free_rejects",
    )
    return [speed, room]


def _fsync_ms(folder: Path) -> float:
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(os.urandom(4096))
        file.flush()
        start = time.perf_counter()
        os.fsync(file.fileno())
        return (time.perf_counter() - start) * 1e3


def check_clock(urls: Iterable[str], clock: Clock) -> list[Finding]:
    """Our clock against the Date header of each address."""
    return [_compare_clock(url, clock) for url in urls]


def _compare_clock(url: str, clock: Clock) -> Finding:
    try:
        before = clock.now()
        answer = httpx.head(url, timeout=5.0)
        after = clock.now()
        theirs = parsedate_to_datetime(answer.headers["date"])
    except (httpx.HTTPError, KeyError, ValueError) as error:
        return Finding("clock", "warn", f"{url} tells no time: {error}", "name another address in node.clock_urls")
    ours = datetime.fromtimestamp((before + after) / 2e6, UTC)
    off = (ours - theirs).total_seconds() - 0.5  # a Date header is cut to whole seconds
    if abs(off) <= CLOCK_OFF_SECONDS:
        return Finding("clock", "ok", f"within {CLOCK_OFF_SECONDS:.0f} s of {url}")
    word = "ahead of" if off > 0 else "behind"
    return Finding("clock", "fail", f"{abs(off):.0f} s {word} {url}", "turn on time synchronisation (NTP)")


def check_journal(file: Path) -> Finding:
    """Whether the journal can be opened and read; `syncline journal verify` looks at every row."""
    from syncline.journal.inspect import inspect

    if not file.exists():
        return Finding("journal", "ok", "none yet")
    try:
        found = inspect(file)
    except CorruptionError as error:
        return Finding("journal", "fail", str(error), error.hint or "stop the node and run `syncline journal recover`")
    return Finding("journal", "ok", f"epoch {found.epoch}, {found.records} records")
