"""Checks an operator runs before calling for help: each finds one thing that is wrong and says how to mend it.

The checks look and never change anything. Those of the lake (Java) are in its own floor.
"""

from __future__ import annotations

import os
import re
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
from syncline.core.errors import KeyFileError, SynclineError
from syncline.core.keys import NodeKey
from syncline.core.settings import ApiSettings, JournalSettings, Settings

FSYNC_SLOW_MS: Final = 25.0
FSYNC_TRIES: Final = 9
CLOCK_OFF_SECONDS: Final = 5.0
PAGES_SECONDS: Final = 5.0  # for the pages of a journal

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


class Door(msgspec.Struct, frozen=True):
    """Where a node listens, and the setting that says so."""

    setting: str
    host: str
    port: int
    kind: Literal["tcp", "udp"] = "tcp"

    @property
    def free_one(self) -> str:
        """What to set to take any free port instead."""
        if self.setting == "libp2p.listen":
            return f"libp2p.listen=/ip{6 if ':' in self.host else 4}/{self.host}/tcp/0"
        return f"{self.setting}=0"


def doors(settings: Settings, protocols: Iterable[str]) -> list[Door]:
    """Every port that a node with these protocols listens on: the API's, libp2p's, and in the section of a protocol
    whatever is called `port` or `…_port`, at its `host`. Port 0 takes a free one, and a negative one is none."""
    found = [Door("api.port", settings.api.host, settings.api.port)]
    for address in settings.libp2p.listen if {"sds", "shrex"} & set(protocols) else ():
        match = re.match(r"/ip[46]/([^/]+)/tcp/(\d+)", address)
        found += [Door("libp2p.listen", match[1], int(match[2]))] if match else []
    for name in sorted(protocols):
        section = settings.plugin_section(name)
        for field in section.__struct_fields__:
            port, host = getattr(section, field), getattr(section, "host", "127.0.0.1")
            if isinstance(port, int) and (field == "port" or field.endswith("_port")):
                found.append(Door(f"{name}.{field}", host, port, "udp" if field == "udp_port" else "tcp"))
    return [door for door in found if door.port > 0]


def check_ports(settings: Settings, protocols: Iterable[str]) -> list[Finding]:
    """Whether a node could listen where it is told to, or does so already."""
    wanted = doors(settings, protocols)
    taken = [(door, problem) for door in wanted if (problem := _taken(door))]
    if any(door.setting == "api.port" for door, _ in taken) and _is_ours(settings):
        return [Finding("port", "ok", f"this node is running at {settings.api.host}:{settings.api.port}")]
    if not taken:
        places = ", ".join(f"{door.setting} {door.port}" for door in wanted)
        return [Finding("port", "ok", f"free: {places}" if places else "any free one is taken")]
    return [
        Finding(
            "port",
            "fail",
            f"{door.setting} {door.host}:{door.port}/{door.kind}: {problem}",
            f"stop what listens there, or run with --set {door.free_one}",
        )
        for door, problem in taken
    ]


def _taken(door: Door) -> str:
    """Why we cannot listen there; nothing, if we can."""
    family = socket.AF_INET6 if ":" in door.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM if door.kind == "tcp" else socket.SOCK_DGRAM) as probe:
        if door.kind == "tcp":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((door.host, door.port))
        except OSError as error:
            return error.strerror or str(error)
    return ""


def _is_ours(settings: Settings) -> bool:
    """Whether what answers at the API's address is the node of these settings."""
    api = settings.api
    host = f"[{api.host}]" if ":" in api.host else api.host
    headers = {"authorization": f"Bearer {api.token}"} if api.token else {}
    try:
        key = NodeKey.load(settings.key_file)
        answer = httpx.get(f"http://{host}:{api.port}/api/v1/status", headers=headers, timeout=2.0)
        return bool(answer.json()["node"] == key.peer_id)
    except (httpx.HTTPError, httpx.InvalidURL, KeyFileError, KeyError, TypeError, ValueError):
        return False


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
    try:
        times = sorted(_fsync_ms(place) for _ in range(FSYNC_TRIES))
    except OSError as error:
        fix = f"let the user who runs the node write to {place}, or set node.data to a folder of its own"
        return [Finding("disk", "fail", f"{place} cannot be written to: {error.strerror}", fix)]
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
    fix = "name peers' HTTP addresses in node.clock_urls, or run `syncline doctor --clock URL`"
    return [_compare_clock(url, clock) for url in urls] or [Finding("clock", "warn", "compared with nobody's", fix)]


def _compare_clock(url: str, clock: Clock) -> Finding:
    try:
        before = clock.now()
        answer = httpx.head(url, timeout=5.0)
        after = clock.now()
        theirs = parsedate_to_datetime(answer.headers["date"])
        theirs = theirs if theirs.tzinfo else theirs.replace(tzinfo=UTC)
    except (httpx.HTTPError, httpx.InvalidURL, KeyError, ValueError) as error:
        return Finding("clock", "warn", f"{url} tells no time: {error}", "name another address in node.clock_urls")
    ours = datetime.fromtimestamp((before + after) / 2e6, UTC)
    off = (ours - theirs).total_seconds() - 0.5  # a Date header is cut to whole seconds
    if abs(off) <= CLOCK_OFF_SECONDS:
        return Finding("clock", "ok", f"within {CLOCK_OFF_SECONDS:.0f} s of {url}")
    word = "ahead of" if off > 0 else "behind"
    return Finding("clock", "fail", f"{abs(off):.0f} s {word} {url}", "turn on time synchronisation (NTP)")


def check_journal(file: Path, key: Path) -> Finding:
    """Whether the journal is there, can be read and is this node's; `syncline journal verify` looks at every row.

    Its pages are read for some seconds; what there was no time for in a large one is said.
    """
    from syncline.journal.database import check_whole
    from syncline.journal.inspect import damaged_page, inspect
    from syncline.journal.mark import read_mark

    try:
        check_whole(file)
        if not file.exists():
            return Finding("journal", "ok", "none yet")
        noted = read_mark(file)
        found, deadline = inspect(file), time.monotonic() + PAGES_SECONDS
        damage = damaged_page(file, lambda: time.monotonic() > deadline)
    except SynclineError as error:
        return Finding("journal", "fail", str(error), error.hint or "stop the node and run `syncline journal recover`")
    if noted is not None and noted[0] == found.epoch and noted[1] > found.newest:
        lost = f"it ends at record {found.newest}, but had come to record {noted[1]}"
        return Finding("journal", "fail", lost, "stop the node and run `syncline journal recover`")
    if _public_name(key) not in ("", found.node):
        return Finding(
            "journal", "fail", f"it belongs to node {found.node}", "use the key it was made with, or another node.data"
        )
    if damage:
        return Finding(
            "journal",
            "fail",
            f"a page is damaged: {damage}",
            "run `syncline journal verify`, then `syncline journal recover`",
        )
    rest = "" if damage is not None else "; too large to read every page here, as `syncline journal verify` does"
    return Finding("journal", "ok", f"epoch {found.epoch}, {found.records} records{rest}")


def _public_name(key: Path) -> str:
    try:
        return NodeKey.load(key).peer_id
    except KeyFileError:
        return ""  # `check_key` says so
