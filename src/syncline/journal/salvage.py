"""Records out of a database that SQLite can no longer open: every page is searched for rows whose checksum holds.

Reads the file format of SQLite (leaf pages of tables, their cells, overflow chains) and the frames of its write-ahead
log, and trusts nothing in them: a row counts only if its own checksum says so. Old copies of a row in unused pages are
the same row, since records never change; state does change, so it is not salvaged this way. What a failed commit left
behind in the log may bear the number of a record that was kept later, so of several rows the one that was surely
committed comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from syncline.core import limits
from syncline.core.errors import CorruptionError
from syncline.journal.database import CHECKSUM_BYTES
from syncline.journal.rows import WIDTH, Row, check_row

_PAGE: Final = limits.JOURNAL_PAGE_BYTES
_USABLE: Final = _PAGE - CHECKSUM_BYTES
_TABLE_LEAF: Final = 13
_LOCAL_MAX: Final = _USABLE - 35
_LOCAL_MIN: Final = (_USABLE - 12) * 32 // 255 - 23
_LOG_HEADER: Final = 32
_FRAME_HEADER: Final = 24
_PAYLOAD_MAX: Final = limits.RAW_INLINE_MAX + 16 * limits.TEXT_MAX
_INTEGERS: Final = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}  # bytes by serial type


def salvage(path: Path, progress: Callable[[int, int], None] = lambda done, of: None) -> Iterator[Row]:
    """Every intact record in the file and its log, each once, in no particular order."""
    seen: set[int] = set()
    with _Pages(path) as pages:
        for index, page in enumerate(pages):
            for row in _rows(page, pages):
                if row[0] not in seen:
                    seen.add(row[0])
                    yield row
            if index % 1_000 == 0:
                progress(index, len(pages))
    progress(len(pages), len(pages))


class _Pages:
    """The pages of a database and of its log. A page number may stand for several versions."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._count = (path.stat().st_size + _PAGE - 1) // _PAGE
        log = path.with_name(path.name + "-wal")
        self._log = log.read_bytes() if log.exists() else b""
        frame = _FRAME_HEADER + _PAGE
        self._frames = range(_LOG_HEADER, max(_LOG_HEADER, len(self._log) - frame + 1), frame)
        self._versions: dict[int, list[int]] = {}
        for start in self._frames:
            self._versions.setdefault(int.from_bytes(self._log[start : start + 4], "big"), []).append(start)

    def __enter__(self) -> _Pages:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __len__(self) -> int:
        return self._count + len(self._frames)

    def __iter__(self) -> Iterator[bytes]:
        """First the log since it was last begun anew, in its order: a failed commit's frames are written over from the
        first on, so what remains of them lies behind. Then the database, then what earlier rounds left in the log."""
        salts = self._log[16:24]  # change with every round
        present = [start for start in self._frames if self._log[start + 8 : start + 16] == salts]
        earlier = [start for start in self._frames if self._log[start + 8 : start + 16] != salts]
        yield from map(self._logged, present)
        yield from map(self._stored, range(1, self._count + 1))
        yield from map(self._logged, earlier)

    def versions(self, number: int) -> list[bytes]:
        """What may be meant by a page number, newest first."""
        logged = [self._logged(start) for start in reversed(self._versions.get(number, []))]
        return [*logged, self._stored(number)] if number <= self._count else logged

    def _logged(self, start: int) -> bytes:
        return self._log[start + _FRAME_HEADER : start + _FRAME_HEADER + _PAGE]

    def _stored(self, number: int) -> bytes:
        self._file.seek((number - 1) * _PAGE)
        return self._file.read(_PAGE)


def _rows(page: bytes, pages: _Pages) -> Iterator[Row]:
    """The intact records on a page, if it is a leaf of a table. The first page holds the schema only."""
    if len(page) < _PAGE or page[0] != _TABLE_LEAF:
        return
    count = min(int.from_bytes(page[3:5], "big"), (_USABLE - 8) // 4)
    for index in range(count):
        start = int.from_bytes(page[8 + 2 * index : 10 + 2 * index], "big")
        try:
            yield from _cell(page, start, pages)
        except (ValueError, IndexError, KeyError, CorruptionError):
            continue  # this cell is damaged, or is not a record


def _cell(page: bytes, start: int, pages: _Pages) -> Iterator[Row]:
    size, start = _varint(page, start)
    lsn, start = _varint(page, start)
    if size > _PAYLOAD_MAX:
        return
    if size <= _LOCAL_MAX:
        payloads: Any = [page[start : start + size]]
    else:
        local = _LOCAL_MIN + (size - _LOCAL_MIN) % (_USABLE - 4)
        local = local if local <= _LOCAL_MAX else _LOCAL_MIN
        following = int.from_bytes(page[start + local : start + local + 4], "big")
        payloads = _chains(page[start : start + local], following, size, pages)
    for payload in payloads:
        row = (lsn, *_columns(payload)[1:])
        if len(row) == WIDTH:
            check_row(row)
            yield row
            return


def _chains(begun: bytes, number: int, size: int, pages: _Pages) -> Iterator[bytes]:
    """The payload that continues on overflow page `number`: with the log's versions of the pages, then the file's."""
    for newest in (True, False):
        payload, following = begun, number
        while len(payload) < size and following:
            versions = pages.versions(following)
            if not versions:
                break
            page = versions[0 if newest else -1]
            payload += page[4 : min(_USABLE, 4 + size - len(payload))]
            following = int.from_bytes(page[:4], "big")
        if len(payload) == size:
            yield payload


def _columns(payload: bytes) -> list[Any]:
    """The values of a record in SQLite's format."""
    end, at = _varint(payload, 0)
    kinds = []
    while at < end:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    values: list[Any] = []
    for kind in kinds:
        length = _INTEGERS.get(kind, 0) if kind < 12 else (kind - 12) // 2
        data = payload[at : at + length]
        if len(data) < length:
            raise ValueError("a value is cut off")
        at += length
        values.append(_value(kind, data))
    return values


def _value(kind: int, data: bytes) -> Any:
    if kind == 0:
        return None
    if kind in _INTEGERS:
        return int.from_bytes(data, "big", signed=True)
    if kind in (8, 9):
        return kind - 8
    if kind < 12:
        raise ValueError("records hold no such value")
    return data.decode() if kind % 2 else bytes(data)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """SQLite's variable-length integer, and where the next thing starts."""
    value = 0
    for index in range(at, at + 8):
        value = value << 7 | data[index] & 0x7F
        if data[index] < 0x80:
            return value, index + 1
    return value << 8 | data[at + 8], at + 9
