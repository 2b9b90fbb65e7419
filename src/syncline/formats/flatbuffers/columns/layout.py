"""Which columns a schema has: nested tables flattened into their parent, vectors as lists, names joined by two
underscores.

Types are those every table format has: unsigned numbers become the next larger signed ones, enums their names. No bytes
are touched here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from syncline.core.errors import UsageError
from syncline.formats.flatbuffers.schema import Field, Kind, Scalar, Schema, Table

SEPARATOR: Final = "__"
_TYPES: Final = {
    "bool": pa.bool_(),
    "byte": pa.int8(),
    "ubyte": pa.int16(),
    "short": pa.int16(),
    "ushort": pa.int32(),
    "int": pa.int32(),
    "uint": pa.int64(),
    "long": pa.int64(),
    "ulong": pa.decimal128(20, 0),
    "float": pa.float32(),
    "double": pa.float64(),
}


class Leaf(NamedTuple):
    """One column."""

    name: str
    type: pa.DataType


class Slot:
    """A field of a table with the columns it becomes and, if it holds tables, theirs."""

    __slots__ = ("field", "inner", "leaves", "members", "parts", "size", "wanted")

    def __init__(self, field: Field, size: int, leaves: Sequence[Leaf]) -> None:
        self.field = field
        self.size = size
        self.leaves = leaves
        self.wanted = True
        self.inner: TableLayout | None = None  # of a table, or of a vector of tables
        self.members: Sequence[TableLayout] = ()  # of a union, from number 1
        self.parts: Sequence[tuple[int, Slot]] = ()  # of a struct, with their offsets


class TableLayout:
    """The slots of a table, in the order of its vtable."""

    __slots__ = ("leaves", "name", "slots")

    def __init__(self, name: str, slots: Sequence[Slot]) -> None:
        self.name = name
        self.slots = slots
        self.leaves = [leaf for slot in slots for leaf in slot.leaves]


class Layout:
    """All columns of a schema, and how the tables hold them.

    With `fields`, only these columns are made; where `partial`, slots that hold none of them are not even looked at.
    """

    def __init__(self, schema: Schema, fields: Collection[str] | None = None, *, partial: bool = False) -> None:
        self.schema = schema
        self.table = self._table(schema.root, "", ())
        names = [leaf.name for leaf in self.table.leaves]
        self.wanted = names if fields is None else list(fields)
        for name in self.wanted:
            if name not in names:
                raise UsageError(f"{schema.name} has no column {name!r}")
        self.positions = [names.index(name) for name in self.wanted]
        self.arrow = pa.schema([self.table.leaves[position] for position in self.positions])
        if partial:
            self._prune(self.table, set(self.wanted))

    def _prune(self, table: TableLayout, wanted: set[str]) -> None:
        for slot in table.slots:
            slot.wanted = any(leaf.name in wanted for leaf in slot.leaves)
            is_list = slot.field.kind is Kind.VECTOR
            if not is_list:
                for inner in (slot.inner, *slot.members):
                    if inner is not None:
                        self._prune(inner, wanted)
        for kind, union in zip(table.slots, table.slots[1:], strict=False):
            if union.field.kind is Kind.UNION and union.wanted:
                kind.wanted = True  # the value cannot be read without its type

    def _table(self, table: Table, prefix: str, above: tuple[str, ...]) -> TableLayout:
        if table.name in above:
            raise UsageError(f"{table.name} contains itself, so it has no end of columns")
        return TableLayout(table.name, [self._slot(field, prefix, (*above, table.name)) for field in table.fields])

    def _slot(self, field: Field, prefix: str, above: tuple[str, ...]) -> Slot:
        name, size = prefix + field.name, self.schema.size_of(field)
        match field.kind:
            case Kind.TABLE:
                inner = self._table(self.schema.tables[field.type], name + SEPARATOR, above)
                slot = Slot(field, size, inner.leaves)
                slot.inner = inner
            case Kind.UNION:
                members = [
                    self._table(self.schema.tables[member], f"{name}{SEPARATOR}{member}{SEPARATOR}", above)
                    for member in self.schema.unions[field.type].members
                ]
                slot = Slot(field, size, [leaf for member in members for leaf in member.leaves])
                slot.members = members
            case Kind.STRUCT:
                struct = self.schema.structs[field.type]
                parts = [self._slot(part, name + SEPARATOR, above) for part in struct.fields]
                slot = Slot(field, size, [leaf for part in parts for leaf in part.leaves])
                slot.parts = list(zip(struct.offsets, parts, strict=True))
            case Kind.VECTOR if field.element is Kind.TABLE:
                inner = self._table(self.schema.tables[field.type], "", above)
                slot = Slot(field, size, [Leaf(name, pa.list_(pa.struct(inner.leaves)))])
                slot.inner = inner
            case Kind.VECTOR if field.element is Kind.SCALAR and field.type_text == "[ubyte]":
                slot = Slot(field, size, [Leaf(name, pa.binary())])
            case Kind.VECTOR:
                slot = Slot(field, size, [Leaf(name, pa.list_(_element_type(field.element, field.scalar)))])
            case kind:
                slot = Slot(field, size, [Leaf(name, _element_type(kind, field.scalar))])
        return slot


def _element_type(kind: Kind | None, scalar: Scalar | None) -> pa.DataType:
    if kind is not Kind.SCALAR or scalar is None:
        return pa.string()
    return _TYPES[scalar.name]
