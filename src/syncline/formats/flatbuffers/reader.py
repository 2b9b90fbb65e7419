"""Reads one buffer into plain values, checking every offset before following it.

A buffer that passes is whole: every field the schema knows lies inside the bytes, strings are UTF-8, enums and unions
hold values they have, and shared offsets do not blow it up. Fields the schema does not know are left alone, as
FlatBuffers means them to be. `columns.py` does the same for many buffers at once and must agree on each.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

import msgspec

from syncline.core.limits import FLATBUFFERS_DEPTH_MAX
from syncline.formats.flatbuffers.faults import Allowance, Fault
from syncline.formats.flatbuffers.schema import OFFSET_SIZE, Field, Kind, Schema, Struct

PREFIX: Final = 4  # bytes of the size in front
HEADER: Final = 12  # size, offset of the root table, identifier
_u32: Final = struct.Struct("<I").unpack_from
_i32: Final = struct.Struct("<i").unpack_from
_two_u16: Final = struct.Struct("<HH").unpack_from

Found = dict[str, Any]
Read = Callable[["_Walk", int, int, Found], Any]  # (walk, position, levels left, fields read before) → value
Plan = list[tuple[str, int, Read]]  # by slot: name, inline size, how to read it


class _BadError(Exception):
    """Something wrong at a place; the path is put together while unwinding."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault = fault
        self.path: list[str] = []


class _Walk:
    """One buffer on its way through the reader, with what it may still unpack to."""

    __slots__ = ("bytes_left", "data", "end", "tables_left")

    def __init__(self, data: bytes) -> None:
        allowance = Allowance.of(len(data))
        self.data = data
        self.end = len(data)
        self.tables_left = allowance.tables
        self.bytes_left = allowance.bytes

    def follow(self, position: int) -> int:
        """Where the offset at `position` points."""
        (offset,) = _u32(self.data, position)
        target: int = position + offset
        if offset == 0 or target + OFFSET_SIZE > self.end:
            raise _BadError(Fault.OFFSET)
        return target

    def spend(self, count: int) -> None:
        self.bytes_left -= count
        if self.bytes_left < 0:
            raise _BadError(Fault.COMPLEXITY)

    def string(self, start: int) -> str:
        (length,) = _u32(self.data, start)
        first = start + OFFSET_SIZE
        last = first + length
        if last >= self.end or self.data[last]:
            raise _BadError(Fault.STRING)
        self.spend(OFFSET_SIZE + length)
        try:
            return self.data[first:last].decode()
        except UnicodeDecodeError:
            raise _BadError(Fault.ENCODING) from None

    def vector(self, position: int, size: int) -> tuple[int, int]:
        """Where the elements of the vector named at `position` start, and how many there are."""
        start = self.follow(position)
        (count,) = _u32(self.data, start)
        if start + OFFSET_SIZE + count * size > self.end:
            raise _BadError(Fault.VECTOR)
        self.spend(OFFSET_SIZE + count * size)
        return start + OFFSET_SIZE, count


class Reader:
    """Reads size-prefixed buffers of one schema. Holds no state between calls."""

    def __init__(self, schema: Schema, *, depth: int = FLATBUFFERS_DEPTH_MAX) -> None:
        self.schema = schema
        self._depth = depth
        self._plans: dict[str, Plan] = {name: [] for name in schema.tables}  # filled below: tables may nest in a circle
        for name, table in schema.tables.items():
            self._plans[name] += [(field.name, schema.size_of(field), self._read(field)) for field in table.fields]

    def decode(self, data: bytes) -> Found:
        """The fields that are present, by name: enums by name, nested tables as dicts, `[ubyte]` as bytes.

        Raises DecodeError, whose `about` is the path of what is wrong.
        """
        walk = _Walk(data)
        try:
            return self._table(walk, self._root(walk), self._plans[self.schema.root.name], self._depth)
        except _BadError as bad:
            raise bad.fault.error(".".join(reversed(bad.path))) from None

    def _root(self, walk: _Walk) -> int:
        if walk.end < HEADER or _u32(walk.data)[0] != walk.end - PREFIX:
            raise _BadError(Fault.LENGTH)
        if walk.data[PREFIX + OFFSET_SIZE : HEADER] != self.schema.identifier:
            raise _BadError(Fault.IDENTIFIER)
        return walk.follow(PREFIX)

    def _table(self, walk: _Walk, position: int, plan: Plan, depth: int) -> Found:
        data, end = walk.data, walk.end
        vtable = position - _i32(data, position)[0]
        if vtable < PREFIX or vtable + 4 > end:
            raise _BadError(Fault.VTABLE)
        vtable_size, table_size = _two_u16(data, vtable)
        if vtable_size < 4 or vtable_size & 1 or vtable + vtable_size > end:
            raise _BadError(Fault.VTABLE)
        if table_size < 4 or position + table_size > end:
            raise _BadError(Fault.TABLE)
        walk.tables_left -= 1
        if walk.tables_left < 0:
            raise _BadError(Fault.COMPLEXITY)
        walk.spend(table_size)
        count = min(vtable_size // 2 - 2, len(plan))
        found: Found = {}
        for entry, (name, size, read) in zip(struct.unpack_from(f"<{count}H", data, vtable + 4), plan, strict=False):
            if entry:
                try:
                    if entry < 4 or entry + size > table_size:
                        raise _BadError(Fault.FIELD)
                    found[name] = read(walk, position + entry, depth, found)
                except _BadError as bad:
                    bad.path.append(name)
                    raise
        return found

    def _read(self, field: Field) -> Read:
        match field.kind:
            case Kind.SCALAR:
                return _scalar(field)
            case Kind.ENUM | Kind.UNION_TYPE:
                return self._enum(field)
            case Kind.STRING:
                return _string
            case Kind.TABLE:
                return self._nested(field.type)
            case Kind.STRUCT:
                return self._struct(self.schema.structs[field.type])
            case Kind.UNION:
                return self._union(field)
            case Kind.VECTOR:
                return self._vector(field)

    def _enum(self, field: Field) -> Read:
        names = {number: name for name, number in self.schema.values_of(field)}
        number = _scalar(field)

        def read(walk: _Walk, position: int, depth: int, found: Found) -> str:
            name = names.get(number(walk, position, depth, found))
            if name is None:
                raise _BadError(Fault.ENUM)
            return name

        return read

    def _nested(self, name: str) -> Read:
        plan = self._plans[name]

        def read(walk: _Walk, position: int, depth: int, found: Found) -> Found:
            if depth <= 1:
                raise _BadError(Fault.DEPTH)
            return self._table(walk, walk.follow(position), plan, depth - 1)

        return read

    def _struct(self, layout: Struct) -> Read:
        parts = [
            (field.name, offset, self._read(field)) for field, offset in zip(layout.fields, layout.offsets, strict=True)
        ]

        def read(walk: _Walk, position: int, depth: int, found: Found) -> Found:
            return {name: part(walk, position + offset, depth, found) for name, offset, part in parts}

        return read

    def _union(self, field: Field) -> Read:
        kind_name = f"{field.name}_type"
        members = {name: self._nested(name) for name in self.schema.unions[field.type].members}

        def read(walk: _Walk, position: int, depth: int, found: Found) -> Any:
            member = members.get(found.get(kind_name, ""))
            if member is None:
                raise _BadError(Fault.UNION)
            return member(walk, position, depth, found)

        return read

    def _vector(self, field: Field) -> Read:
        if field.element is Kind.SCALAR:
            return _numbers(field)
        size = field.scalar.size if field.scalar else OFFSET_SIZE
        element = self._read(msgspec.structs.replace(field, kind=field.element, element=None))

        def read(walk: _Walk, position: int, depth: int, found: Found) -> list[Any]:
            start, count = walk.vector(position, size)
            return [element(walk, start + size * index, depth, found) for index in range(count)]

        return read


def _scalar(field: Field) -> Read:
    assert field.scalar is not None
    unpack = struct.Struct("<" + field.scalar.code).unpack_from
    return lambda walk, position, depth, found: unpack(walk.data, position)[0]


def _string(walk: _Walk, position: int, depth: int, found: Found) -> str:
    return walk.string(walk.follow(position))


def _numbers(field: Field) -> Read:
    assert field.scalar is not None
    size, code = field.scalar.size, field.scalar.code

    def read(walk: _Walk, position: int, depth: int, found: Found) -> list[Any] | bytes:
        start, count = walk.vector(position, size)
        if code == "B":
            return walk.data[start : start + count]
        return list(struct.unpack_from(f"<{count}{code}", walk.data, start))

    return read
