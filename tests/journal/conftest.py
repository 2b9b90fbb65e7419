"""Fixtures of the journal floor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from syncline.core.record import Arrival
from syncline.core.verdict import Outcome
from syncline.journal import Journal
from syncline.journal.submissions import Job

NOW = 1_700_000_000_000_000


class HandClock:
    """Stands still until moved."""

    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> int:
        return self.time

    def monotonic(self) -> float:
        return self.time / 1e6

    def forward(self, seconds: float) -> None:
        self.time += int(seconds * 1e6)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def open_journal(tmp_path: Path, clock: HandClock) -> Iterator[Callable[..., Journal]]:
    """Opens the journal of this test, again and again if need be; closes what is open at the end."""
    opened: list[Journal] = []

    def make(**options: Any) -> Journal:
        options = {"node": "node", "clock": clock, "path": tmp_path / "journal.db", **options}
        opened.append(Journal.open(options.pop("path"), **options))
        return opened[-1]

    yield make
    for journal in opened:
        journal.close()


@pytest.fixture
def journal(open_journal: Callable[..., Journal]) -> Journal:
    return open_journal()


def arrival(id: bytes = b"id", **fields: Any) -> Arrival:
    """An accepted arrival, with whatever fields a test cares about."""
    defaults: dict[str, Any] = {
        "protocol": "echo",
        "topic": "news",
        "kind": "message",
        "received_at": NOW,
        "verdict": Outcome.ACCEPT,
        "raw": b"raw of " + id,
        "peer": "peer",
    }
    return Arrival(id=id, **{**defaults, **fields})


def execute(journal: Journal, statement: str) -> None:
    """Change the database behind the journal's back, on its own writing thread."""
    journal._writer.call(Job(lambda connection: connection.execute(statement)))
