"""Fixtures of the lake: one Spark session for the whole run, and an empty lake for each test."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from syncline.cli.main import main
from syncline.core.record import Arrival
from syncline.core.verdict import Outcome, Reason
from syncline.lake.roots import Lake
from syncline.lake.session import SessionOptions, start_session
from syncline.lake.warm import warm_up
from syncline.testing.segments import DAY_ZERO


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    warm_up()  # pays off from the third process on, and there are a dozen
    session = start_session(SessionOptions(master="local[2]"))
    yield session
    session.stop()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.below(tmp_path / "data")


def rows(lake: Lake, table: str) -> pa.Table:
    """All rows of a table, as any Delta reader sees them."""
    return DeltaTable(lake.table(table).url).to_pyarrow_table()


def arrivals(count: int, *, protocol: str = "plain", first: int = 0, step: int = 60) -> list[Arrival]:
    """Arrivals of a protocol the lake has no stages for, `step` seconds apart; every seventh is rejected."""
    return [_arrival(protocol, number, step) for number in range(first, first + count)]


def _arrival(protocol: str, number: int, step: int) -> Arrival:
    bad = number % 7 == 3
    return Arrival(
        protocol=protocol,
        topic="yard",
        kind="message",
        id=b"%d" % number,
        key=f"key-{number % 5}",
        seq=2**64 - 1 - number,
        received_at=DAY_ZERO + number * step * 1_000_000,
        raw=bytes([number % 256]) * (number % 50),
        verdict=Outcome.REJECT if bad else Outcome.ACCEPT,
        reason=Reason.MALFORMED if bad else None,
    )


PROGRAM = [sys.executable, "-m", "syncline.cli.main"]


def command(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """`syncline …` as a user runs it, in a process of its own, with `folder` for its folder."""
    return subprocess.run(
        [*PROGRAM, *arguments], cwd=folder, env=environment(**variables), capture_output=True, text=True, timeout=110
    )


def command_here(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The same in this process, which has imported everything and started Spark already: for a command that another
    test runs in a process of its own.
    """
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ.keys() - environment():
            patch.delenv(name)
        for name, value in environment().items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["syncline", *arguments])
        patch.chdir(folder)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
            main()
    code = ended.value.code or 0
    assert isinstance(code, int)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def environment(**variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SYNCLINE_")}
    return {**kept, "NO_COLOR": "1", "COLUMNS": "200", **variables}
