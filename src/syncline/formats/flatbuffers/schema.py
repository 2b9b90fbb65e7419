"""What a FlatBuffers schema says, as frozen descriptors: tables, fields, enums, unions, structs.

Reader, writer and columns are driven by these and by nothing else. Text form and parsing are in `fbs.py`; no bytes of a
message are touched here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final

import msgspec

from syncline.core.errors import UsageError


class Scalar(msgspec.Struct, frozen=True):
    """A number as FlatBuffers stores it: little-endian, `size` bytes, aligned to its size."""

    name: str
    size: int
    code: str  # of the struct module

    @property
    def is_float(self) -> bool:
        return self.code in "fd"

    @property
    def is_signed(self) -> bool:
        return self.code in "bhiqfd"


SCALARS: Final[Mapping[str, Scalar]] = {
    name: Scalar(name, size, code)
    for name, size, code in (
        ("bool", 1, "?"),
        ("byte", 1, "b"),
        ("ubyte", 1, "B"),
        ("short", 2, "h"),
        ("ushort", 2, "H"),
        ("int", 4, "i"),
        ("uint", 4, "I"),
        ("long", 8, "q"),
        ("ulong", 8, "Q"),
        ("float", 4, "f"),
        ("double", 8, "d"),
    )
}
ALIASES: Final[Mapping[str, str]] = {
    "int8": "byte",
    "uint8": "ubyte",
    "int16": "short",
    "uint16": "ushort",
    "int32": "int",
    "uint32": "uint",
    "int64": "long",
    "uint64": "ulong",
    "float32": "float",
    "float64": "double",
}
OFFSET_SIZE: Final = 4


class Kind(StrEnum):
    """What a field, or an element of a vector, is."""

    SCALAR = "scalar"
    ENUM = "enum"
    STRING = "string"
    TABLE = "table"
    STRUCT = "struct"
    UNION_TYPE = "union_type"  # the slot in front of a union that says which member follows
    UNION = "union"
    VECTOR = "vector"


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a table or struct. `id` is its slot in the vtable."""

    id: int
    name: str
    kind: Kind
    scalar: Scalar | None = None  # of a scalar, an enum, a union's type, or the elements of a vector of these
    type: str = ""  # the enum, table, struct or union that it, or its elements, are of
    element: Kind | None = None  # of a vector
    default: int | float | bool | None = None  # None: absent is absent

    @property
    def type_text(self) -> str:
        """The type as a schema spells it."""
        name = self.type or (self.scalar.name if self.scalar else "string")
        return f"[{name}]" if self.kind is Kind.VECTOR else name


class Table(msgspec.Struct, frozen=True):
    name: str
    fields: tuple[Field, ...]

    def field(self, name: str) -> Field | None:
        return next((field for field in self.fields if field.name == name), None)


class Struct(msgspec.Struct, frozen=True):
    """Fixed layout: each field lies at its own offset, nothing is optional."""

    name: str
    fields: tuple[Field, ...]
    offsets: tuple[int, ...]
    size: int
    align: int


class Enum(msgspec.Struct, frozen=True):
    name: str
    scalar: Scalar
    values: tuple[tuple[str, int], ...]


class Union(msgspec.Struct, frozen=True):
    """Members by number; 0 is NONE and has no table."""

    name: str
    members: tuple[str, ...]

    @property
    def values(self) -> tuple[tuple[str, int], ...]:
        return (("NONE", 0), *((name, number) for number, name in enumerate(self.members, 1)))


@dataclass(frozen=True, eq=False, repr=False)
class Schema:
    """A root table with all that can be reached from it."""

    name: str
    identifier: bytes  # four bytes in front of the root table
    root: Table
    tables: Mapping[str, Table]
    structs: Mapping[str, Struct]
    enums: Mapping[str, Enum]
    unions: Mapping[str, Union]

    @cached_property
    def canonical(self) -> str:
        """The field list that names this version of the schema: every type in order of name, one line for each thing."""
        return "\n".join(self._lines()) + "\n"

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of the canonical field list, in hex."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()

    def __repr__(self) -> str:
        return f"Schema({self.name})"

    def at(self, path: str) -> tuple[Field, ...]:
        """The fields that lead from the root through tables to `path` (`OBJECT1.OBJECT.NORAD_CAT_ID`)."""
        fields: list[Field] = []
        table: Table | None = self.root
        for name in path.split("."):
            field = table.field(name) if table else None
            if field is None:
                raise UsageError(f"{self.name} has no field {path!r}", about=path[:80])
            fields.append(field)
            table = self.tables[field.type] if field.kind is Kind.TABLE else None
        return tuple(fields)

    def values_of(self, field: Field) -> tuple[tuple[str, int], ...]:
        """The names and numbers of an enum's or union type's values."""
        named = self.unions if Kind.UNION_TYPE in (field.kind, field.element) else self.enums
        return named[field.type].values

    def size_of(self, field: Field) -> int:
        """The bytes a field takes inside its table."""
        if field.kind is Kind.STRUCT:
            return self.structs[field.type].size
        if field.kind is not Kind.VECTOR and field.scalar is not None:
            return field.scalar.size
        return OFFSET_SIZE

    def _lines(self) -> Iterator[str]:
        yield f"schema {self.identifier.decode()} {self.root.name}"
        for table in sorted(self.tables.values(), key=lambda each: each.name):
            yield f"table {table.name}"
            yield from (_line(field) for field in table.fields)
        for struct in sorted(self.structs.values(), key=lambda each: each.name):
            yield f"struct {struct.name}"
            yield from (_line(field) for field in struct.fields)
        for enum in sorted(self.enums.values(), key=lambda each: each.name):
            yield f"enum {enum.name} {enum.scalar.name}"
            yield from (f"{number} {name}" for name, number in enum.values)
        for union in sorted(self.unions.values(), key=lambda each: each.name):
            yield f"union {union.name}"
            yield from (f"{number} {name}" for name, number in union.values)


def _line(field: Field) -> str:
    default = "" if field.default is None else f" {_number(field.default)}"
    return f"{field.id} {field.name} {field.type_text}{default}"


def _number(value: float) -> str:
    """The shortest text of a default: whole numbers without a point, true and false as 1 and 0."""
    return str(int(value)) if value == int(value) else repr(float(value))
