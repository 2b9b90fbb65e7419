"""Arrow arrays from gathered numbers and places, without copying what need not be copied.

Knows how columns are put together, not what they mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from syncline.formats.flatbuffers.columns.rows import Cells, Mask, Numbers


class Names:
    """The names of an enum's or union's values, looked up for whole columns."""

    def __init__(self, values: Sequence[tuple[str, int]]) -> None:
        self.values = values
        ordered = sorted(values, key=lambda pair: pair[1])
        self._names = pa.array([name for name, _ in ordered], pa.string())
        self._numbers: Numbers = np.array([number for _, number in ordered], np.int64)

    def index(self, numbers: Numbers) -> tuple[Numbers, Mask]:
        """Which value each number is, and whether it is one at all."""
        index = np.minimum(np.searchsorted(self._numbers, numbers), len(self._numbers) - 1)
        return index, self._numbers[index] == numbers

    def column(self, index: Numbers, valid: pa.Buffer | None) -> pa.Array:
        chosen = pa.Array.from_buffers(pa.int64(), len(index), [valid, pa.py_buffer(np.ascontiguousarray(index))])
        return self._names.take(chosen)


def bitmap(mask: Mask) -> pa.Buffer:
    """Booleans as Arrow keeps them: one bit each, the lowest first."""
    return pa.py_buffer(np.packbits(mask, bitorder="little"))


def validity(cells: Cells, present: Numbers | None = None) -> pa.Buffer | None:
    """Which places of the column get a value: those of the cells, or of the `present` ones among them. None: all."""
    if cells.place is None and present is None:
        return None
    if present is not None:
        return _validity(cells, present)
    if "validity" not in cells.made:
        cells.made["validity"] = _validity(cells, None)
    return cells.made["validity"]


def _validity(cells: Cells, present: Numbers | None) -> pa.Buffer:
    mask = np.zeros(cells.count, np.bool_)
    mask[places(cells, present)] = True
    return bitmap(mask)


def constant(cells: Cells, kind: pa.DataType, value: Any) -> pa.Array:
    """A column with this value for every cell; made once for all columns that need it."""
    key = (kind, value)
    if key not in cells.made:
        cells.made[key] = _constant(cells, kind, value)
    return cells.made[key]


def _constant(cells: Cells, kind: pa.DataType, value: Any) -> pa.Array:
    if value is None:
        return pa.nulls(cells.count, kind)
    if pa.types.is_string(kind):
        return pa.array([value], kind).take(_zeros(cells))
    return numbers(np.full(cells.count, value), kind, validity(cells))


def _zeros(cells: Cells) -> pa.Array:
    return numbers(np.zeros(cells.count, np.int32), pa.int32(), validity(cells))


def places(cells: Cells, present: Numbers | None = None) -> Any:
    """Where the values of the cells, or of the `present` ones among them, go in the column."""
    if cells.place is None:
        return slice(None) if present is None else present
    return cells.place if present is None else cells.place[present]


def spread(values: Numbers, cells: Cells) -> Numbers:
    """The values of the cells at their places, zero elsewhere."""
    if cells.place is None:
        return values
    column = np.zeros(cells.count, values.dtype)
    column[cells.place] = values
    return column


def numbers(values: Numbers, kind: pa.DataType, valid: pa.Buffer | None) -> pa.Array:
    """A column of numbers."""
    count = len(values)
    if pa.types.is_boolean(kind):
        return pa.Array.from_buffers(kind, count, [valid, bitmap(values != 0)])
    if pa.types.is_decimal(kind):
        wide = np.zeros((count, 2), np.uint64)  # a decimal128 is two 64-bit halves, the low one first
        wide[:, 0] = values
        return pa.Array.from_buffers(kind, count, [valid, pa.py_buffer(wide)])
    stored = np.ascontiguousarray(values, kind.to_pandas_dtype())
    return pa.Array.from_buffers(kind, count, [valid, pa.py_buffer(stored)])


def slices(buffer: pa.Buffer, first: Numbers, last: Numbers, cells: Cells) -> pa.Array:
    """The bytes from `first` to `last` of each cell.

    Built as an array of twice the length over the original buffer, whose even slots are the slices and whose odd slots
    are what lies between, and then picking the even ones.
    """
    offsets = np.zeros(2 * cells.count + 1, np.int32)
    where = places(cells)
    offsets[0:-1:2][where] = first
    offsets[1::2][where] = last
    offsets[-1] = buffer.size
    ends = pa.Array.from_buffers(pa.binary(), 2 * cells.count, [None, pa.py_buffer(offsets), buffer])
    even = pa.py_buffer(np.arange(0, 2 * cells.count, 2, dtype=np.int32))
    return ends.take(pa.Array.from_buffers(pa.int32(), cells.count, [validity(cells), even]))


def lists(values: pa.Array, kind: pa.DataType, counts: Numbers, cells: Cells) -> pa.Array:
    """A list per cell, cut from `values` in order."""
    offsets = np.zeros(cells.count + 1, np.int32)
    np.cumsum(spread(counts, cells), out=offsets[1:])
    return pa.Array.from_buffers(kind, cells.count, [validity(cells), pa.py_buffer(offsets)], children=[values])


def blanked(columns: Sequence[pa.Array], bad: npt.NDArray[np.bool_]) -> list[pa.Array]:
    """The columns with the bad rows null."""
    kept = pa.array(np.arange(len(bad)), pa.int64(), mask=bad)
    return [column.take(kept) for column in columns]
