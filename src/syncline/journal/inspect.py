"""What is in a journal: figures for people, from one short look, and whether all of its pages can be read.

Rows, terms, blobs and segments are checked by verify.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import apsw
import msgspec

from syncline.journal.reading import reading

_STEPS: Final = 1_000  # of SQLite's, between two looks at the time


class Count(msgspec.Struct, frozen=True):
    """How many records of a protocol got a verdict; `counted` were over the cap and not kept."""

    protocol: str
    verdict: str
    reason: str | None
    records: int
    counted: int


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """A journal in figures."""

    path: str
    version: int
    node: str
    epoch: str
    oldest: int  # lsn; 0 if there is no record
    newest: int
    records: int
    sealed: int
    unsealed: int
    received_from: int | None
    received_to: int | None
    states: dict[str, int]  # by space
    counts: list[Count]
    database_bytes: int
    log_bytes: int


def inspect(path: Path) -> Inspection:
    """Look at a journal, which may be in use."""
    with reading(path) as journal:
        about = journal.about
        oldest, records, first, last = journal.all(
            "SELECT coalesce(min(lsn), 0), count(*), min(received_at), max(received_at) FROM records"
        )[0]
        kept = {row[:3]: row[3] for row in journal.all(
            "SELECT protocol, verdict, coalesce(reason, ''), count(*) FROM records GROUP BY 1, 2, 3"
        )}  # fmt: skip
        counted = {row[:3]: row[3] for row in journal.all("SELECT protocol, verdict, reason, count FROM counted")}
        states = dict(journal.all("SELECT space, count(*) FROM state GROUP BY space"))
    log = path.with_name(path.name + "-wal")
    return Inspection(
        path=str(path),
        version=about.version,
        node=about.node,
        epoch=about.epoch,
        oldest=oldest,
        newest=about.newest,
        records=records,
        sealed=about.sealed,
        unsealed=about.newest - about.sealed,
        received_from=first,
        received_to=last,
        states=states,
        counts=[
            Count(key[0], key[1], key[2] or None, kept.get(key, 0), counted.get(key, 0))
            for key in sorted(kept | counted)
        ],
        database_bytes=path.stat().st_size,
        log_bytes=log.stat().st_size if log.exists() else 0,
    )


def damaged_page(path: Path, is_over: Callable[[], bool]) -> str | None:
    """What reading every page finds damaged first; nothing if all are sound; None if there was no time for all."""
    with reading(path) as journal:
        journal.connection.set_progress_handler(is_over, _STEPS)
        try:
            found: str = journal.one("PRAGMA quick_check(1)")
        except apsw.InterruptError:
            return None
    return "" if found == "ok" else found.splitlines()[-1]
