"""Runs: the terms of many consecutive records, sorted once, written once and never changed.

Terms are hashes. Kept in one ordered table they fall all over it, and every record would write a page for each of its
terms as soon as the table is large. A run is written from one end to the other instead, in chunks that fill a page. A
record is looked for in every run its number may be in, and the runs follow one another as the numbers do. This is what
a log-structured store does; there is none for SQLite that keeps the entries in the same transactions as the records.

Which records become a run, and when, is decided in index.py.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import Any, Final, NamedTuple
from zlib import crc32

import apsw
import numpy as np

from syncline.core import limits
from syncline.core.errors import CorruptionError
from syncline.journal.database import insert
from syncline.journal.terms import LSN_AT, NAME, TERM_BYTES, WIDTHS, Span

_COLUMNS: Final = "run, first, entries, crc"
# From the chunk that begins before the span, if there is one, to the last that begins in it.
_CHUNKS: Final = f"""
SELECT {_COLUMNS} FROM terms WHERE run = ?1 AND first <= ?3 AND first >=
    coalesce((SELECT first FROM terms WHERE run = ?1 AND first <= ?2 ORDER BY first DESC LIMIT 1), ?2)
ORDER BY first LIMIT ?4
"""  # noqa: S608
_BACKWARD: Final = _CHUNKS.replace("ORDER BY first LIMIT ?4", "ORDER BY first DESC LIMIT ?4")
_FURTHER: Final = f"SELECT {_COLUMNS} FROM terms WHERE run = ? AND first >= ? AND first <= ? ORDER BY first LIMIT ?"  # noqa: S608
_PAGE: Final = 32  # chunks read at once
_EVERY: Final = b"\xff" * max(WIDTHS.values())


class Run(NamedTuple):
    """The records after one number up to another, and how many of them are still there."""

    number: int
    after: int
    last: int
    records: int


def runs(connection: apsw.Connection, after: int = -1, before: int | None = None) -> list[Run]:
    """Those that may hold records between these numbers, both excluded, in the order of their records."""
    found: Any = connection.execute(
        "SELECT run, after, last, records FROM runs WHERE last > ? AND after < ?",
        (_lsn(after), 2**63 - 1 if before is None else _lsn(before)),
    ).fetchall()
    return sorted((Run(*row) for row in found), key=attrgetter("last"))


def write_chunks(connection: apsw.Connection, run: int, kind: bytes, entries: bytes) -> None:
    """Add all entries of one kind to a run; once more, if that was done before."""
    width = WIDTHS[kind]
    size = limits.JOURNAL_CHUNK_BYTES // width * width
    chunks = [entries[start : start + size] for start in range(0, len(entries), size)]
    rows = [(run, chunk[:width], chunk, crc32(chunk, run)) for chunk in chunks]
    insert(connection, "INSERT OR REPLACE INTO terms", "column1, column2, column3, column4", rows)


def write_run(connection: apsw.Connection, run: Run) -> None:
    """Make a run whose chunks are written known to readers."""
    connection.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?)", run)


def remove_chunks(connection: apsw.Connection, number: int) -> None:
    connection.execute("DELETE FROM terms WHERE run = ?", (number,))


def remove_run(connection: apsw.Connection, number: int) -> None:
    remove_chunks(connection, number)
    connection.execute("DELETE FROM runs WHERE run = ?", (number,))


def lsns(connection: apsw.Connection, run: int, span: Span, *, descending: bool = False) -> Iterator[list[int]]:
    """The numbers that the entries in a span point to, some at a time, in the order of the entries."""
    width, at = WIDTHS[span[0][:1]], LSN_AT[span[0][:1]]
    for chunk in chunks(connection, run, span, descending=descending):
        start, end = _between(chunk, width, span)
        rows = np.frombuffer(chunk, np.uint8).reshape(-1, width)[start:end, at : at + 8]
        found: list[int] = np.ascontiguousarray(rows).view(">u8").ravel().tolist()
        yield found[::-1] if descending else found


def newest_entry(connection: apsw.Connection, run: int, term: bytes) -> bytes | None:
    """The last entry of a term in a run."""
    width, span = WIDTHS[term[:1]], (term, term + _EVERY[TERM_BYTES:])
    for chunk in chunks(connection, run, span, descending=True):
        start, end = _between(chunk, width, span)
        if start < end:
            return chunk[(end - 1) * width : end * width]
    return None


def names_of(connection: apsw.Connection, run: int) -> bytes:
    """All entries of names in a run."""
    return b"".join(chunks(connection, run, (NAME, NAME + _EVERY)))


def entries(connection: apsw.Connection, run: int, kind: bytes) -> Iterator[bytes]:
    """All entries of one kind in a run, one by one."""
    width = WIDTHS[kind]
    for chunk in chunks(connection, run, (kind, kind + _EVERY)):
        yield from (chunk[start : start + width] for start in range(0, len(chunk), width))


def holds(connection: apsw.Connection, run: int, entry: bytes) -> bool:
    """Whether a run has this very entry."""
    return any(found for found in lsns(connection, run, (entry, entry)))


def chunks(connection: apsw.Connection, run: int, span: Span, *, descending: bool = False) -> Iterator[bytes]:
    """The chunks of a run that may hold entries of a span, checked, in short reads."""
    first, last = span
    statement = _BACKWARD if descending else _CHUNKS
    while True:
        found: Any = connection.execute(statement, (run, first, last, _PAGE)).fetchall()
        for row in found:
            chunk = _checked(row)
            if chunk[:1] == first[:1]:  # the chunk that begins before the span may be of another kind
                yield chunk
        if len(found) < _PAGE:
            return
        end = found[-1][1]
        if descending:
            if end <= first:
                return
            last = _before(end)
        else:
            if end < first:  # pages in each other's place: reading on would go round in a circle
                raise _corrupt("the table of terms is out of order")
            statement, first = _FURTHER, end + b"\0"


def _checked(row: tuple[int, bytes, bytes, int]) -> bytes:
    run, first, chunk, crc = row
    width = WIDTHS.get(first[:1], 0)
    if not width or len(chunk) % width or not chunk.startswith(first) or crc32(chunk, run) != crc:
        raise _corrupt(f"terms of run {run} do not match their checksum")
    return chunk


def _corrupt(text: str) -> CorruptionError:
    return CorruptionError(text, hint="run `syncline journal verify`, then `syncline journal recover`")


def _between(chunk: bytes, width: int, span: Span) -> tuple[int, int]:
    """Where the entries of a span begin and end in a chunk."""
    places = range(len(chunk) // width)

    def entry(place: int) -> bytes:
        return chunk[place * width : (place + 1) * width]

    return bisect_left(places, span[0], key=entry), bisect_right(places, span[1], key=entry)


def _before(entry: bytes) -> bytes:
    """The greatest entry of the same length that is smaller."""
    return (int.from_bytes(entry, "big") - 1).to_bytes(len(entry), "big")


def _lsn(value: int) -> int:
    return max(-1, min(value, 2**63 - 1))
