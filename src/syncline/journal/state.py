"""What protocols must not forget: small values under (space, key), written with the records they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from zlib import crc32

import apsw
import msgspec

from syncline.core.errors import ConflictError, CorruptionError, UsageError
from syncline.core.ports import ANY, Anything, StateChange
from syncline.journal.database import insert

_encode: Final = msgspec.msgpack.Encoder().encode
_STORED: Final = "column1, column2, column3, column4, column5"
_LIVE: Final = "(expires_at IS NULL OR expires_at > ?)"


def check_change(change: StateChange) -> None:
    """Raise UsageError for what the state table cannot hold."""
    if change.expires_at is not None and not 0 <= change.expires_at < 2**63:
        raise UsageError("times are microseconds since 1970, in 63 bits", about=change.space)
    try:
        change.space.encode()
    except UnicodeEncodeError:
        raise UsageError("a space holds text that is not Unicode", about=ascii(change.space)) from None


def check_expectations(connection: apsw.Connection, changes: Sequence[StateChange], now: int) -> None:
    """Raise ConflictError unless every `expect` holds at its turn. Nothing was written yet, so nothing remains."""
    ahead: dict[tuple[str, bytes], bytes | None] = {}
    for change in changes:
        name = (change.space, change.key)
        if not isinstance(change.expect, Anything):
            present = ahead[name] if name in ahead else get(connection, *name, now)
            if present != change.expect:
                raise ConflictError(
                    "the state is no longer what was expected", about=f"{change.space}/{change.key.hex()}"
                )
        expired = change.expires_at is not None and change.expires_at <= now
        ahead[name] = None if expired else change.value


def only_puts(changes: Sequence[StateChange]) -> bool:
    """Whether `put` can write these: they remove nothing and expect nothing."""
    return all(change.value is not None and change.expect is ANY for change in changes)


def put(connection: apsw.Connection, changes: Sequence[StateChange]) -> None:
    """Write changes of which `only_puts` holds, by one statement. The last one under a key counts."""
    rows = {(each.space, each.key): (each.space, each.key, each.value, each.expires_at) for each in changes}
    insert(connection, "INSERT OR REPLACE INTO state", _STORED, [(*row, checksum(row)) for row in rows.values()])


def apply(connection: apsw.Connection, changes: Sequence[StateChange]) -> None:
    """Write the changes in their order."""
    for change in changes:
        if change.value is None:
            connection.execute("DELETE FROM state WHERE space = ? AND key = ?", (change.space, change.key))
        else:
            row = (change.space, change.key, change.value, change.expires_at)
            connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?, ?)", (*row, checksum(row)))


def get(connection: apsw.Connection, space: str, key: bytes, now: int) -> bytes | None:
    """The value under this key, unless it has expired."""
    found: Any = connection.execute(
        f"SELECT * FROM state WHERE space = ? AND key = ? AND {_LIVE}",  # noqa: S608
        (space, key, now),
    ).fetchone()
    return None if found is None else checked(found)[2]


def scan(connection: apsw.Connection, space: str, prefix: bytes, limit: int, now: int) -> list[tuple[bytes, bytes]]:
    """Keys that start with `prefix`, in their order, with their values."""
    statement = f"SELECT * FROM state WHERE space = ? AND key >= ? AND {_LIVE}"  # noqa: S608
    bindings: list[Any] = [space, prefix, now]
    if (end := after_prefix(prefix)) is not None:
        statement += " AND key < ?"
        bindings.append(end)
    rows: Any = connection.execute(f"{statement} ORDER BY key LIMIT ?", (*bindings, limit)).fetchall()
    return [(row[1], row[2]) for row in map(checked, rows)]


def checked(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The row, if it is the one that was written."""
    if checksum(row[:-1]) != row[-1]:
        raise CorruptionError(
            f"the state {row[0]}/{row[1]!r} does not match its checksum",  # of any type, on a damaged page
            hint="run `syncline journal verify`, then `syncline journal recover`",
        )
    return row


def checksum(row: tuple[Any, ...]) -> int:
    return crc32(_encode(row))


def after_prefix(prefix: bytes) -> bytes | None:
    """The least key that is greater than every key with this prefix; None if there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None
