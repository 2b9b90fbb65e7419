"""The command line as a user meets it: the real program in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from syncline.node.plugins import protocol_sections

PROGRAM = [sys.executable, "-m", "syncline.cli.main"]
Run = Callable[..., subprocess.CompletedProcess[str]]


def environment(**variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SYNCLINE_")}
    return {**kept, "NO_COLOR": "1", "COLUMNS": "200", **variables}


def running_in(folder: Path) -> Run:
    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PROGRAM, *arguments],
            cwd=folder,
            env=environment(**variables),
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run `syncline …` in an empty folder and return what it printed."""
    return running_in(tmp_path)


def free_ports() -> list[str]:
    """Flags that let every installed protocol listen where there is room."""
    sections = protocol_sections().items()
    ports = [f"{name}.{field}" for name, kind in sections for field in kind.__struct_fields__ if field.endswith("port")]
    flags = [f"{port}=0" for port in ports] + ["libp2p.listen=/ip4/127.0.0.1/tcp/0"]
    return [part for flag in flags for part in ("--set", flag)]


@contextmanager
def up(folder: Path, *arguments: str) -> Iterator[dict[str, Any]]:
    """A running node in `folder` (where `syncline init` has been); yields what it said when it was ready."""
    process = subprocess.Popen(
        [*PROGRAM, "--set", "api.port=0", *free_ports(), *arguments, "up", "--json"],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            assert process.stderr is not None
            pytest.fail(process.stderr.read())
        yield json.loads(line)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.communicate()
