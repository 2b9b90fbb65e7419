"""The rows of a batch as one stretch of bytes: where each starts and ends, what is wrong with it, what it may still
unpack to; and gathering numbers from it at any alignment.

In strict mode every gather asserts that it stays inside the bytes of its own row. Decoding itself is in `decode.py`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from syncline.core import limits
from syncline.formats.flatbuffers.faults import TABLE_BYTES_MIN, Fault

Numbers = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
_SIZES: Final = {"u1": 1, "i1": 1, "u2": 2, "i2": 2, "u4": 4, "i4": 4, "u8": 8, "i8": 8, "f4": 4, "f8": 8}


class Rows:
    """The bytes of a batch, row by row."""

    def __init__(self, payloads: pa.Array, *, strict: bool = False) -> None:
        self.count = len(payloads)
        self.strict = strict
        _, offsets, data = payloads.buffers()
        self.buffer: pa.Buffer = data if data is not None else pa.py_buffer(b"")
        self._bytes: npt.NDArray[np.uint8] = np.frombuffer(self.buffer, np.uint8)
        bounds: Numbers = np.zeros(1, np.int64)
        if self.count:
            bounds = np.frombuffer(offsets, np.int32, self.count + 1, 4 * payloads.offset).astype(np.int64)
        self.start: Numbers = bounds[:-1]
        self.end: Numbers = bounds[1:]
        self.fault: npt.NDArray[np.uint8] = np.zeros(self.count, np.uint8)
        length = self.end - self.start
        self._tables_left: Numbers = np.minimum(limits.FLATBUFFERS_TABLES_MAX, length // TABLE_BYTES_MIN)
        self._bytes_left: Numbers = limits.FLATBUFFERS_SHARED_BYTES + limits.FLATBUFFERS_EXPANSION_MAX * length
        self._aligned: dict[str, Numbers] = {}
        self._anywhere: dict[str, Numbers] = {}

    def gather(self, kind: str, at: Numbers, cells: Cells) -> Numbers:
        """The numbers of this kind at these places.

        Honest buffers are aligned, and gathering from an aligned array is three times as fast; where a place is not
        aligned, a view with a stride of one byte reads at any.
        """
        size = _SIZES[kind]
        if self.strict:
            self._assert_inside(at, size, cells)
        if kind not in self._aligned:
            self._aligned[kind] = self._bytes[: len(self._bytes) // size * size].view(f"<{kind}")
            count = max(len(self._bytes) - size + 1, 0)
            self._anywhere[kind] = np.ndarray((count,), f"<{kind}", self._bytes, strides=(1,))
        if np.bitwise_or.reduce(at) & (size - 1):
            found: Numbers = self._anywhere[kind][at]
        else:
            found = self._aligned[kind].take(at >> size.bit_length() - 1)
        return found

    def windows(self, at: Numbers, width: int, cells: Cells) -> Numbers:
        """`width` bytes from each place on, as rows of 16-bit numbers."""
        if self.strict:
            self._assert_inside(at, width, cells)
        count = len(self._bytes) - width + 1
        found = np.ndarray((count,), f"V{width}", self._bytes, strides=(1,))[at]
        return found.view("<u2").reshape(len(at), width // 2)

    def mark(self, rows: Numbers, fault: Fault) -> None:
        """Note what is wrong with these rows; what was found first stays."""
        self.fault[rows[self.fault[rows] == 0]] = fault

    def spend(self, cells: Cells, amounts: Numbers, tables: int = 0) -> Mask:
        """Take the bytes, and tables, that cells reach from what their rows may unpack to; which cells may go on."""
        if cells.row is None:
            self._bytes_left -= amounts
            self._tables_left -= tables
        else:
            self._bytes_left -= np.bincount(cells.row, amounts, self.count).astype(np.int64)
            if tables:
                self._tables_left -= np.bincount(cells.row, minlength=self.count)
        over = (self._bytes_left < 0) | (self._tables_left < 0)
        return ~over if cells.row is None else ~over[cells.row]

    def _assert_inside(self, at: Numbers, size: int, cells: Cells) -> None:
        assert len(at) == cells.size, "a gather for other cells"
        assert bool(np.all((at >= cells.start) & (at + size <= cells.end))), "a gather outside its row"


class Cells:
    """Places that are decoded together: each belongs to a row of the batch and to a place in the column that comes out.

    `row` and `place` are None where they simply count up. `count` is the length of the column; places nothing belongs to
    come out null.
    """

    __slots__ = ("count", "end", "made", "place", "row", "rows", "size", "start")

    def __init__(self, rows: Rows, row: Numbers | None, place: Numbers | None, count: int) -> None:
        self.rows = rows
        self.row = row
        self.place = place
        self.count = count
        self.start: Numbers = rows.start if row is None else rows.start[row]
        self.end: Numbers = rows.end if row is None else rows.end[row]
        self.size = len(self.start)
        self.made: dict[Any, Any] = {}  # what columns of these cells share; see arrow.py

    def only(self, chosen: Numbers) -> Cells:
        """Those of the cells that `chosen` numbers, in their order."""
        row = chosen if self.row is None else self.row[chosen]
        place = chosen if self.place is None else self.place[chosen]
        return Cells(self.rows, row, place, self.count)

    def repeated(self, counts: Numbers, total: int) -> Cells:
        """The elements of a vector in each cell: a new column, one place for each element."""
        row = np.arange(self.rows.count) if self.row is None else self.row
        return Cells(self.rows, np.repeat(row, counts), None, total)

    def passing(self, ok: Mask, fault: Fault, *arrays: Numbers) -> tuple[Cells, tuple[Numbers, ...]]:
        """The cells that are ok, with their part of `arrays`; the rows of the others are marked."""
        if ok.all():
            return self, arrays
        self.fail(ok, fault)
        return self.only(np.flatnonzero(ok)), tuple(each[ok] for each in arrays)

    def fail(self, ok: Mask, fault: Fault) -> None:
        """Mark the rows of the cells that are not ok."""
        bad = np.flatnonzero(~ok)
        if len(bad):
            self.rows.mark(bad if self.row is None else self.row[bad], fault)
