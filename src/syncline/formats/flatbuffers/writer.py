"""Writes plain values as one size-prefixed buffer, laid out as the FlatBuffers object API of flatc lays it out.

Children come before their table in field order, equal vtables are shared, a scalar equal to its default is left out; so
a buffer made by such a writer comes back byte for byte. What values are sensible is not decided here.
"""

from __future__ import annotations

import difflib
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from syncline.core.errors import UsageError
from syncline.core.limits import FLATBUFFERS_DEPTH_MAX
from syncline.formats.flatbuffers.schema import OFFSET_SIZE, Field, Kind, Schema, Struct, Table

_i32: Final = struct.Struct("<i").pack
_u32: Final = struct.Struct("<I").pack
Number = Callable[[Any], Any]


class _MisfitError(Exception):
    """A value that does not fit; the path is put together while unwinding."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.path: list[str] = []


class _Slot(NamedTuple):
    """A field, and how a value of it becomes the number that is stored."""

    field: Field
    number: Number


class Writer:
    """Writes buffers of one schema. Holds no state between calls."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        owners: list[Table | Struct] = [*schema.tables.values(), *schema.structs.values()]
        self._slots = {owner.name: {f.name: _Slot(f, self._number(f)) for f in owner.fields} for owner in owners}

    def encode(self, value: Mapping[str, Any]) -> bytes:
        """The buffer of a root table. Fields that are missing or None are absent; enums may be names or numbers.

        Raises UsageError, whose `about` is the path of what does not fit.
        """
        build = _Build(self)
        try:
            root = build.table(self.schema.root, value, FLATBUFFERS_DEPTH_MAX)
        except _MisfitError as misfit:
            path = ".".join([self.schema.root.name, *reversed(misfit.path)])
            raise UsageError(misfit.message, hint=misfit.hint, about=path) from None
        return build.finish(root)

    def slot(self, layout: Struct, field: Field) -> _Slot:
        """A field of a struct."""
        return self._slots[layout.name][field.name]

    def present(self, table: Table, value: Any) -> list[tuple[_Slot, Any]]:
        """The fields of a table that have a value, in the table's order."""
        if not isinstance(value, Mapping):
            raise _MisfitError(f"a {table.name} is an object of named fields, not {type(value).__name__}")
        known = self._slots[table.name]
        for name in value:
            if name not in known:
                close = difflib.get_close_matches(str(name), known, n=1)
                raise _MisfitError(
                    f"{table.name} has no field {str(name)[:80]!r}", f"did you mean {close[0]}?" if close else ""
                )
        found = [(known[name], each) for name, each in value.items() if each is not None]
        return sorted(found, key=lambda pair: pair[0].field.id)

    def _number(self, field: Field) -> Number:
        if Kind.ENUM not in (field.kind, field.element) and field.kind is not Kind.UNION_TYPE:
            return _as_it_is
        values = self.schema.values_of(field)
        numbers: dict[Any, int] = {**dict(values), **{number: number for _, number in values}}
        names = ", ".join(name for name, _ in values[:8]) + (", …" if len(values) > 8 else "")

        def number(value: Any) -> int:
            found = numbers.get(value) if isinstance(value, str | int) else None
            if found is None:
                raise _MisfitError(f"{field.type} has no value {str(value)[:80]!r}", f"it has {names}")
            return found

        return number


class _Build:
    """One buffer, growing from its end to its start. Places are counted in bytes from the end."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._schema = writer.schema
        self._pieces: list[bytes] = []
        self._size = 0
        self._align = 1
        self._vtables: dict[bytes, int] = {}

    def finish(self, root: int) -> bytes:
        self._pad(self._align, 3 * OFFSET_SIZE)
        self._put(self._schema.identifier)
        self._offset(root)
        self._put(_u32(self._size))
        return b"".join(reversed(self._pieces))

    def table(self, table: Table, value: Any, depth: int) -> int:
        """Write a table and return its place."""
        if depth < 1:
            raise _MisfitError("tables are nested too deeply")
        present = self._writer.present(table, value)
        children = [self._child(slot, each, value, depth) for slot, each in present]
        end = self._size
        slots = [0] * (present[-1][0].field.id + 1 if present else 0)
        for (slot, each), child in zip(present, children, strict=True):
            slots[slot.field.id] = self._slot(slot, each, child)
        self._pad(OFFSET_SIZE, 0)
        place = self._size + OFFSET_SIZE
        while slots and not slots[-1]:
            slots.pop()
        entries = [place - each if each else 0 for each in slots]
        vtable = struct.pack(f"<{len(entries) + 2}H", 4 + 2 * len(entries), place - end, *entries)
        shared = self._vtables.get(vtable)
        if shared is None:
            self._put(_i32(len(vtable)))
            self._put(vtable)
            self._vtables[vtable] = self._size
        else:
            self._put(_i32(shared - place))
        return place

    def _child(self, slot: _Slot, value: Any, owner: Mapping[str, Any], depth: int) -> int:
        """The place of what a field points to; 0 for what lies inside the table."""
        field = slot.field
        try:
            match field.kind:
                case Kind.STRING:
                    return self._string(value)
                case Kind.TABLE:
                    return self.table(self._schema.tables[field.type], value, depth - 1)
                case Kind.UNION:
                    return self.table(self._member(field, owner), value, depth - 1)
                case Kind.VECTOR:
                    return self._vector(slot, value, depth)
        except _MisfitError as misfit:
            misfit.path.append(field.name)
            raise
        return 0

    def _member(self, field: Field, owner: Mapping[str, Any]) -> Table:
        union = self._schema.unions[field.type]
        chosen = owner.get(f"{field.name}_type")
        number = chosen if isinstance(chosen, int) else dict(union.values).get(str(chosen), 0)
        if not 0 < number <= len(union.members):
            raise _MisfitError("a union needs its type beside it", f"set {field.name}_type")
        return self._schema.tables[union.members[number - 1]]

    def _slot(self, slot: _Slot, value: Any, child: int) -> int:
        """Write a field into its table and return its place; 0 if it is left out."""
        if child:
            self._offset(child)
            return self._size
        field = slot.field
        try:
            if field.kind is Kind.STRUCT:
                layout = self._schema.structs[field.type]
                packed = self._packed_struct(layout, value)
                self._pad(layout.align, layout.size)
            else:
                assert field.scalar is not None
                number = slot.number(value)
                packed = _packed(field.scalar.code, [number])
                if number == field.default:
                    return 0
                self._pad(field.scalar.size, 0)
        except _MisfitError as misfit:
            misfit.path.append(field.name)
            raise
        self._put(packed)
        return self._size

    def _packed_struct(self, layout: Struct, value: Any) -> bytes:
        names = [field.name for field in layout.fields]
        if not isinstance(value, Mapping) or set(value) != set(names):
            raise _MisfitError(f"a {layout.name} is an object with exactly the fields {', '.join(names)}")
        packed = bytearray(layout.size)
        for field, offset in zip(layout.fields, layout.offsets, strict=True):
            part = self._packed_part(self._writer.slot(layout, field), value[field.name])
            packed[offset : offset + len(part)] = part
        return bytes(packed)

    def _packed_part(self, slot: _Slot, value: Any) -> bytes:
        field = slot.field
        try:
            if field.kind is Kind.STRUCT:
                return self._packed_struct(self._schema.structs[field.type], value)
            assert field.scalar is not None
            return _packed(field.scalar.code, [slot.number(value)])
        except _MisfitError as misfit:
            misfit.path.append(field.name)
            raise

    def _string(self, value: Any) -> int:
        if not isinstance(value, str):
            raise _MisfitError(f"text belongs here, not {type(value).__name__}")
        try:
            data = value.encode()
        except UnicodeEncodeError:
            raise _MisfitError("the text has half a surrogate pair") from None
        self._pad(OFFSET_SIZE, len(data) + 1)
        self._put(data + b"\0")
        self._put(_u32(len(data)))
        return self._size

    def _vector(self, slot: _Slot, value: Any, depth: int) -> int:
        field = slot.field
        if isinstance(value, bytes | bytearray) and field.scalar is not None and field.scalar.code == "B":
            return self._elements(bytes(value), len(value), 1)
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            raise _MisfitError(f"a list belongs here, not {type(value).__name__}")
        if field.scalar is not None:
            numbers = self._each(value, slot.number)
            return self._elements(_packed(field.scalar.code, numbers), len(value), field.scalar.size)
        if field.element is Kind.STRING:
            places = self._each(value, self._string)
        else:
            table = self._schema.tables[field.type]
            places = self._each(value, lambda each: self.table(table, each, depth - 1))
        self._pad(OFFSET_SIZE, OFFSET_SIZE * len(places))
        for place in reversed(places):
            self._offset(place)
        self._put(_u32(len(places)))
        return self._size

    def _each(self, values: Sequence[Any], write: Number) -> list[Any]:
        written = []
        for index, value in enumerate(values):
            try:
                written.append(write(value))
            except _MisfitError as misfit:
                misfit.path.append(str(index))
                raise
        return written

    def _elements(self, data: bytes, count: int, size: int) -> int:
        self._pad(OFFSET_SIZE, len(data))
        self._pad(size, len(data))
        self._put(data)
        self._put(_u32(count))
        return self._size

    def _offset(self, place: int) -> None:
        self._pad(OFFSET_SIZE, 0)
        self._put(_u32(self._size - place + OFFSET_SIZE))

    def _pad(self, align: int, following: int) -> None:
        """Let what is written next end, after `following` more bytes, at a multiple of `align` from the end."""
        if align > self._align:
            self._align = align
        missing = -(self._size + following) % align
        if missing:
            self._put(bytes(missing))

    def _put(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)


def _as_it_is(value: Any) -> Any:
    return value


def _packed(code: str, numbers: Sequence[Any]) -> bytes:
    for number in numbers:
        if isinstance(number, bool) != (code == "?"):
            raise _MisfitError("true or false belongs here" if code == "?" else "a number belongs here")
    try:
        return struct.pack(f"<{len(numbers)}{code}", *numbers)
    except (struct.error, OverflowError, TypeError):
        raise _MisfitError("a number belongs here that fits its type") from None
