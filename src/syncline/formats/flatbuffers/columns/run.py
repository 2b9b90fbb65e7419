"""One batch on its way through the decoder: offsets are followed, and checked, for whole columns at a time.

Cells that fail a check are marked and leave; the others go on. The same checks are in `reader.py`, and a test holds the
two against each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from syncline.formats.flatbuffers.columns import arrow
from syncline.formats.flatbuffers.columns.layout import Slot, TableLayout
from syncline.formats.flatbuffers.columns.rows import Cells, Mask, Numbers, Rows
from syncline.formats.flatbuffers.faults import Fault
from syncline.formats.flatbuffers.reader import HEADER, PREFIX
from syncline.formats.flatbuffers.schema import OFFSET_SIZE, Field, Kind

_FEW_SLOTS: Final = 8  # up to here the entries of vtables are gathered one by one
_KINDS: Final = {
    "?": "u1", "b": "i1", "B": "u1", "h": "i2", "H": "u2", "i": "i4", "I": "u4", "q": "i8", "Q": "u8", "f": "f4",
    "d": "f8",
}  # fmt: skip


class Run:
    """Decodes the rows of one batch. Columns that are not wanted come out null."""

    def __init__(self, rows: Rows, names: dict[str, arrow.Names], *, defaults: bool) -> None:
        self.rows = rows
        self._names = names
        self._defaults = defaults

    def root(self, table: TableLayout, identifier: int) -> list[pa.Array]:
        cells = Cells(self.rows, None, None, self.rows.count)
        cells, _ = cells.passing(cells.end - cells.start >= HEADER, Fault.LENGTH)
        size = self.rows.gather("u4", cells.start, cells)
        cells, _ = cells.passing(size == cells.end - cells.start - PREFIX, Fault.LENGTH)
        found = self.rows.gather("u4", cells.start + (PREFIX + OFFSET_SIZE), cells)
        cells, _ = cells.passing(found == identifier, Fault.IDENTIFIER)
        return self._tables(table, *self._follow(cells, cells.start + PREFIX))

    def _follow(self, cells: Cells, at: Numbers) -> tuple[Cells, Numbers]:
        """Where the offsets at these places lead, for the cells whose offset leads somewhere."""
        offset = self.rows.gather("u4", at, cells)
        target = at + offset
        cells, (target,) = cells.passing((offset != 0) & (target + OFFSET_SIZE <= cells.end), Fault.OFFSET, target)
        return cells, target

    def _tables(self, table: TableLayout, cells: Cells, at: Numbers) -> list[pa.Array]:
        """The columns of the tables at these places."""
        vtable = at - self.rows.gather("i4", at, cells)
        ok = (vtable >= cells.start + PREFIX) & (vtable + 4 <= cells.end)
        cells, (at, vtable) = cells.passing(ok, Fault.VTABLE, at, vtable)
        sizes = self.rows.gather("u4", vtable, cells).astype(np.int64)  # two 16-bit sizes in one
        slots_end, size = sizes & 0xFFFF, sizes >> 16
        ok = (slots_end >= 4) & (slots_end & 1 == 0) & (vtable + slots_end <= cells.end)
        cells, (at, vtable, slots_end, size) = cells.passing(ok, Fault.VTABLE, at, vtable, slots_end, size)
        ok = (size >= 4) & (at + size <= cells.end)
        cells, (at, vtable, slots_end, size) = cells.passing(ok, Fault.TABLE, at, vtable, slots_end, size)
        ok = self.rows.spend(cells, size, tables=1)
        cells, (at, vtable, slots_end, size) = cells.passing(ok, Fault.COMPLEXITY, at, vtable, slots_end, size)
        if cells.size == 0:
            return [pa.nulls(cells.count, leaf.type) for leaf in table.leaves]
        entries = self._entries(table, cells, vtable, slots_end)
        ok = _inside(entries, table.slots, size)
        if not ok.all():
            entries = entries[:, ok]
            cells, (at,) = cells.passing(ok, Fault.FIELD, at)
        return self._slots(table, cells, at, entries)

    def _entries(self, table: TableLayout, cells: Cells, vtable: Numbers, slots_end: Numbers) -> Numbers:
        """The vtables' entries, a row for each slot that any of them has; 0 where a field is absent."""
        count = min(len(table.slots), int(slots_end.max()) // 2 - 2)
        wanted = [number for number in range(count) if table.slots[number].wanted]
        entries = np.zeros((count, cells.size), np.uint16)
        near = vtable + 4 + 2 * count <= cells.end
        if len(wanted) <= _FEW_SLOTS:
            self._enter_each(entries, wanted, cells, vtable, slots_end)
        elif near.all():
            return self._windows(count, cells, vtable, slots_end)
        else:  # a window that would leave its row is gathered entry by entry
            close, far = np.flatnonzero(near), np.flatnonzero(~near)
            entries[:, close] = self._windows(count, cells.only(close), vtable[close], slots_end[close])
            rest = np.zeros((count, len(far)), np.uint16)
            self._enter_each(rest, wanted, cells.only(far), vtable[far], slots_end[far])
            entries[:, far] = rest
        return entries

    def _windows(self, count: int, cells: Cells, vtable: Numbers, slots_end: Numbers) -> Numbers:
        """As many entries of each vtable, in one piece; what lies behind a shorter vtable does not count."""
        entries = np.ascontiguousarray(self.rows.windows(vtable + 4, 2 * count, cells).T)
        if cells.size and int(slots_end.min()) < 4 + 2 * count:
            entries[(4 + 2 * np.arange(count))[:, None] >= slots_end] = 0
        return entries

    def _enter_each(
        self, entries: Numbers, slots: Iterable[int], cells: Cells, vtable: Numbers, slots_end: Numbers
    ) -> None:
        for slot in slots:
            has = np.flatnonzero(slots_end > 4 + 2 * slot)
            if len(has) == cells.size:
                entries[slot] = self.rows.gather("u2", vtable + (4 + 2 * slot), cells)
            elif len(has):
                entries[slot, has] = self.rows.gather("u2", vtable[has] + (4 + 2 * slot), cells.only(has))

    def _slots(self, table: TableLayout, cells: Cells, at: Numbers, entries: Numbers) -> list[pa.Array]:
        """The columns of the fields of tables whose entries are known and lie inside them."""
        columns: list[pa.Array] = []
        peaks = entries.max(axis=1, initial=0)
        kinds: Numbers = np.zeros(0, np.uint8)
        for number, slot in enumerate(table.slots):
            if slot.field.kind is Kind.UNION_TYPE:
                kinds = np.zeros(cells.size, np.uint8)  # of the union in the next slot
            if not slot.wanted:
                columns += [arrow.constant(cells, leaf.type, None) for leaf in slot.leaves]
                continue
            if number >= len(peaks) or peaks[number] == 0:
                columns += self._absent(slot, cells)
                continue
            entry = entries[number]
            present = None if entry.all() else np.flatnonzero(entry)
            inner = cells if present is None else cells.only(present)
            where = at + entry if present is None else at[present] + entry[present]
            if slot.field.kind is Kind.UNION_TYPE:
                kinds[slice(None) if present is None else present] = self.rows.gather("u1", where, inner)
            if slot.field.kind is Kind.UNION:
                columns += self._unions(slot, inner, where, kinds if present is None else kinds[present])
            else:
                columns += self._present(slot, cells, present, inner, where)
        return columns

    def _absent(self, slot: Slot, cells: Cells) -> list[pa.Array]:
        """A field that no table here has: its default, where it has one."""
        field = slot.field
        if field.default is None or not self._defaults:
            return [arrow.constant(cells, leaf.type, None) for leaf in slot.leaves]
        if field.kind is Kind.SCALAR:
            return [arrow.constant(cells, slot.leaves[0].type, field.default)]
        names = {number: name for name, number in self._names[field.type].values}
        return [arrow.constant(cells, pa.string(), names.get(int(field.default)))]

    def _present(
        self, slot: Slot, cells: Cells, present: Numbers | None, inner: Cells, where: Numbers
    ) -> list[pa.Array]:
        field = slot.field
        match field.kind:
            case Kind.SCALAR | Kind.ENUM | Kind.UNION_TYPE:
                values = self._values(field, inner, where)
                return [self._numbers(slot, cells, present, values)]
            case Kind.STRING:
                return [self._strings(*self._follow(inner, where))]
            case Kind.TABLE:
                assert slot.inner is not None
                return self._tables(slot.inner, *self._follow(inner, where))
            case Kind.STRUCT:
                return self._structs(slot, inner, where)
            case _:
                return [self._vectors(slot, *self._follow(inner, where))]

    def _values(self, field: Field, cells: Cells, at: Numbers) -> Numbers:
        """The numbers of a scalar, or the positions of an enum's values in its list."""
        assert field.scalar is not None
        values = self.rows.gather(_KINDS[field.scalar.code], at, cells)
        if not field.type:
            return values
        index, known = self._names[field.type].index(values)
        cells.fail(known, Fault.ENUM)
        return index

    def _numbers(self, slot: Slot, cells: Cells, present: Numbers | None, values: Numbers) -> pa.Array:
        """A column of scalars or enums. Tables without the field have its default, unless absent is to be null."""
        field, leaf = slot.field, slot.leaves[0]
        if present is None:
            full = values
        else:
            default = field.default
            if field.type:
                default = self._names[field.type].index(np.array([default or 0]))[0][0]
            full = np.full(cells.size, default or 0, values.dtype)
            full[present] = values
        valid = arrow.validity(cells, None if self._defaults else present)
        column = arrow.spread(full, cells)
        return self._names[field.type].column(column, valid) if field.type else arrow.numbers(column, leaf.type, valid)

    def _strings(self, cells: Cells, at: Numbers) -> pa.Array:
        length = self.rows.gather("u4", at, cells).astype(np.int64)
        first = at + OFFSET_SIZE
        last = first + length
        cells, (first, last) = cells.passing(last < cells.end, Fault.STRING, first, last)
        cells, (first, last) = cells.passing(self.rows.gather("u1", last, cells) == 0, Fault.STRING, first, last)
        ok = self.rows.spend(cells, last - first + OFFSET_SIZE)
        cells, (first, last) = cells.passing(ok, Fault.COMPLEXITY, first, last)
        found = arrow.slices(self.rows.buffer, first, last, cells)
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid:
            good = np.fromiter((_is_utf8(each) for each in found), np.bool_, cells.count)
            cells.fail(good[arrow.places(cells)], Fault.ENCODING)
            return arrow.blanked([found], ~good)[0].cast(pa.string())

    def _structs(self, slot: Slot, cells: Cells, at: Numbers) -> list[pa.Array]:
        columns: list[pa.Array] = []
        for offset, part in slot.parts:
            columns += self._present(part, cells, None, cells, at + offset)
        return columns

    def _unions(self, slot: Slot, cells: Cells, at: Numbers, kinds: Numbers) -> list[pa.Array]:
        """Each member's tables among the values; a value needs a type, and types were checked as enums before."""
        cells.fail(kinds != 0, Fault.UNION)
        columns: list[pa.Array] = []
        for number, member in enumerate(slot.members, start=1):
            chosen = np.flatnonzero(kinds == number)
            if len(chosen):
                columns += self._tables(member, *self._follow(cells.only(chosen), at[chosen]))
            else:
                columns += [pa.nulls(cells.count, leaf.type) for leaf in member.leaves]
        return columns

    def _vectors(self, slot: Slot, cells: Cells, at: Numbers) -> pa.Array:
        field, kind = slot.field, slot.leaves[0].type
        size = field.scalar.size if field.scalar else OFFSET_SIZE
        counts = self.rows.gather("u4", at, cells).astype(np.int64)
        first = at + OFFSET_SIZE
        cells, (first, counts) = cells.passing(first + counts * size <= cells.end, Fault.VECTOR, first, counts)
        ok = self.rows.spend(cells, counts * size + OFFSET_SIZE)
        cells, (first, counts) = cells.passing(ok, Fault.COMPLEXITY, first, counts)
        if kind == pa.binary():
            return arrow.slices(self.rows.buffer, first, first + counts, cells)
        total = int(counts.sum())
        if total == 0:
            return arrow.lists(pa.nulls(0, kind.value_type), kind, counts, cells)
        each = cells.repeated(counts, total)
        before = np.cumsum(counts) - counts
        places = np.repeat(first - before * size, counts) + np.arange(total) * size
        return arrow.lists(self._elements(slot, kind.value_type, each, places), kind, counts, cells)

    def _elements(self, slot: Slot, kind: pa.DataType, cells: Cells, at: Numbers) -> pa.Array:
        field = slot.field
        if field.scalar is not None:
            values = self._values(field, cells, at)
            return self._names[field.type].column(values, None) if field.type else arrow.numbers(values, kind, None)
        cells, at = self._follow(cells, at)
        if field.element is Kind.STRING:
            return self._strings(cells, at)
        assert slot.inner is not None
        return pa.Array.from_buffers(kind, cells.count, [None], children=self._tables(slot.inner, cells, at))


def _inside(entries: Numbers, slots: Sequence[Slot], size: Numbers) -> Mask:
    """For each table, whether every field it has lies inside it."""
    if not entries.size:
        return np.ones(len(size), np.bool_)
    low = (entries - np.uint16(1)) < 3  # 1 to 3: inside the table's own start; 0, which is absent, wraps around
    wrong: Mask = np.zeros(len(size), np.bool_)
    if low.any():
        wrong |= low.any(axis=0)
    least, furthest = int(size.min()), {}
    for entry, peak, slot in zip(entries, entries.max(axis=1).tolist(), slots, strict=False):
        if peak and peak + slot.size > least:
            if slot.size not in furthest:
                furthest[slot.size] = np.maximum(size - slot.size, 0).astype(np.uint16)
            wrong |= entry > furthest[slot.size]
    return ~wrong


def _is_utf8(value: pa.BinaryScalar) -> bool:
    try:
        (value.as_py() or b"").decode()
    except UnicodeDecodeError:
        return False
    return True
