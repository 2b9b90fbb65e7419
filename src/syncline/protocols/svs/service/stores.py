"""Where a publisher keeps its numbers and publications: in memory, in a file of its own, or (elsewhere) in a journal.

A store decides whether a restarted publisher can go on: numbers are kept before they are announced, so that none is ever
used twice.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import anyio.to_thread
import apsw
import msgspec

from syncline.core.errors import ConflictError
from syncline.core.limits import SVS_KEPT_BYTES
from syncline.core.ports import StateChange
from syncline.formats.ndn.names import Name
from syncline.protocols.svs.wire.mapping import MappingEntry


class Prepared(msgspec.Struct, frozen=True):
    """A publication ready to be kept: its packets in order of segments, and its mapping."""

    node: Name
    seq: int
    packets: Sequence[bytes]
    entry: MappingEntry
    mapping: bytes = b""  # a mapping Data of this one publication, signed
    state: Sequence[StateChange] = ()  # to be kept in the same transaction, where the store is a journal


class Store(Protocol):
    """Keeps what one member of a group publishes."""

    async def last(self, node: Name) -> int:
        """The newest number ever kept for this node; 0 if none."""
        ...

    async def keep(self, publications: Sequence[Prepared]) -> None:
        """Keep all of these or none. When it returns they survive a crash, if anything does."""
        ...

    async def packet(self, node: Name, seq: int, segment: int | None) -> bytes | None:
        """A packet of a publication; without a segment, its only or first one."""
        ...

    async def entries(self, node: Name, low: int, high: int) -> list[MappingEntry]:
        """The mappings there are of these numbers, in order."""
        ...


class MemoryStore:
    """Keeps the newest publications in memory, and nothing beyond the life of the process.

    A member with such a store takes up its numbers again from what the group remembers.
    """

    def __init__(self, bytes_max: int = SVS_KEPT_BYTES) -> None:
        self._kept: dict[tuple[Name, int], Prepared] = {}
        self._last: dict[Name, int] = {}
        self._bytes = 0
        self._bytes_max = bytes_max

    async def last(self, node: Name) -> int:
        return self._last.get(node, 0)

    async def keep(self, publications: Sequence[Prepared]) -> None:
        for each in publications:
            self._kept[each.node, each.seq] = each
            self._last[each.node] = each.seq
            self._bytes += sum(map(len, each.packets))
        while self._bytes > self._bytes_max and len(self._kept) > 1:
            gone = self._kept.pop(next(iter(self._kept)))
            self._bytes -= sum(map(len, gone.packets))

    async def packet(self, node: Name, seq: int, segment: int | None) -> bytes | None:
        found = self._kept.get((node, seq))
        if found is None or (segment or 0) >= len(found.packets):
            return None
        return found.packets[segment or 0]

    async def entries(self, node: Name, low: int, high: int) -> list[MappingEntry]:
        found = (self._kept.get((node, seq)) for seq in range(low, high + 1))
        return [each.entry for each in found if each is not None]


_SCHEMA = """
CREATE TABLE IF NOT EXISTS packets (node BLOB, seq INTEGER, segment INTEGER, wire BLOB NOT NULL,
    PRIMARY KEY (node, seq, segment)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS entries (node BLOB, seq INTEGER, name BLOB NOT NULL, extra BLOB NOT NULL,
    PRIMARY KEY (node, seq)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS numbers (node BLOB PRIMARY KEY, last INTEGER NOT NULL) WITHOUT ROWID;
"""


class FileStore:
    """Keeps everything in one SQLite file, for applications without a node. One process uses it at a time."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._connection = apsw.Connection(str(path))
        self._connection.pragma("journal_mode", "wal")
        self._connection.pragma("synchronous", "full")
        self._connection.execute(_SCHEMA)

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    async def last(self, node: Name) -> int:
        rows = await self._read("SELECT last FROM numbers WHERE node = ?", node)
        return int(rows[0][0]) if rows else 0

    async def keep(self, publications: Sequence[Prepared]) -> None:
        await anyio.to_thread.run_sync(self._keep, publications)

    async def packet(self, node: Name, seq: int, segment: int | None) -> bytes | None:
        statement = "SELECT wire FROM packets WHERE node = ? AND seq = ? AND segment = ?"
        rows = await self._read(statement, node, seq, segment or 0)
        return bytes(rows[0][0]) if rows else None

    async def entries(self, node: Name, low: int, high: int) -> list[MappingEntry]:
        statement = "SELECT seq, name, extra FROM entries WHERE node = ? AND seq BETWEEN ? AND ? ORDER BY seq"
        return [MappingEntry(*row) for row in await self._read(statement, node, low, high)]

    def _keep(self, publications: Sequence[Prepared]) -> None:
        with self._lock, self._connection:
            execute = self._connection.execute
            for each in publications:
                done = execute(
                    "INSERT INTO numbers VALUES (?, ?) ON CONFLICT DO UPDATE SET last = excluded.last "
                    "WHERE excluded.last > last RETURNING last",
                    (each.node, each.seq),
                ).fetchall()
                if not done:
                    raise ConflictError(f"number {each.seq} was used before", hint="one process publishes for a node")
                for segment, packet in enumerate(each.packets):
                    execute("INSERT INTO packets VALUES (?, ?, ?, ?)", (each.node, each.seq, segment, packet))
                entry = each.entry
                execute("INSERT INTO entries VALUES (?, ?, ?, ?)", (each.node, each.seq, entry.name, entry.extra))

    async def _read(self, statement: str, *bindings: Any) -> list[Any]:
        def read() -> list[Any]:
            with self._lock:
                return list(self._connection.execute(statement, bindings))

        return await anyio.to_thread.run_sync(read)
