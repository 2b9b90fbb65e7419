"""Linking parsed schema files: names become descriptors, for a root table and all it reaches."""

from __future__ import annotations

from collections.abc import Mapping

from syncline.core.errors import UsageError
from syncline.formats.flatbuffers.fbs import Document, RawField, RawTable
from syncline.formats.flatbuffers.schema import SCALARS, Enum, Field, Kind, Scalar, Schema, Struct, Table, Union


def link(documents: Mapping[str, Document], root: str, identifier: str = "") -> Schema:
    """The schema of a root table, with the types it reaches, found in any of `documents`.

    Without `identifier`, the one of the document that names this root is used.
    """
    declared = (document.identifier for document in documents.values() if document.root == root)
    identifier = identifier or next(declared, "")
    if len(identifier) != 4:
        raise UsageError("a file identifier is four characters", about=root)
    return _Linker(documents).schema(root, identifier)


class _Linker:
    """Turns names into descriptors, following only what the root reaches."""

    def __init__(self, documents: Mapping[str, Document]) -> None:
        files = documents.values()
        self._raw = {table.name: table for file in files for table in file.tables}
        self._all_enums = {enum.name: enum for file in files for enum in file.enums}
        self._all_unions = {union.name: union for file in files for union in file.unions}
        self._tables: dict[str, Table] = {}
        self._structs: dict[str, Struct] = {}
        self._enums: dict[str, Enum] = {}
        self._unions: dict[str, Union] = {}

    def schema(self, root: str, identifier: str) -> Schema:
        waiting = [root]
        while waiting:
            table = waiting.pop()
            if table in self._tables:
                continue
            raw = self._raw.get(table)
            if raw is None or raw.is_struct:
                raise UsageError(f"there is no table {table!r}", about=root)
            self._tables[table] = Table(table, self._fields(raw))
            waiting += self._reached(self._tables[table])
        return Schema(
            name=root,
            identifier=identifier.encode("ascii"),
            root=self._tables[root],
            tables=self._tables,
            structs=self._structs,
            enums=self._enums,
            unions=self._unions,
        )

    def _reached(self, table: Table) -> list[str]:
        found = []
        for field in table.fields:
            if Kind.TABLE in (field.kind, field.element):
                found.append(field.type)
            elif field.kind is Kind.UNION:
                found += self._unions[field.type].members
        return found

    def _fields(self, raw: RawTable) -> tuple[Field, ...]:
        fields: list[Field] = []
        for each in raw.fields:
            kind, scalar, named = self._resolve(each, raw.name)
            if each.is_vector:
                if kind in (Kind.UNION, Kind.STRUCT):
                    raise UsageError(f"vectors of {kind} are not supported", about=f"{raw.name}.{each.name}")
                fields.append(
                    Field(id=len(fields), name=each.name, kind=Kind.VECTOR, scalar=scalar, type=named, element=kind)
                )
                continue
            if kind is Kind.UNION:
                type_name = f"{each.name}_type"
                fields.append(
                    Field(
                        id=len(fields),
                        name=type_name,
                        kind=Kind.UNION_TYPE,
                        scalar=SCALARS["ubyte"],
                        type=named,
                        default=0,
                    )
                )
            default = self._default(each, kind, scalar, named)
            fields.append(Field(id=len(fields), name=each.name, kind=kind, scalar=scalar, type=named, default=default))
        return tuple(fields)

    def _resolve(self, raw: RawField, owner: str) -> tuple[Kind, Scalar | None, str]:
        if raw.type in SCALARS:
            return Kind.SCALAR, SCALARS[raw.type], ""
        if raw.type == "string":
            return Kind.STRING, None, ""
        if raw.type in self._all_enums:
            enum = self._enums[raw.type] = self._all_enums[raw.type]
            return Kind.ENUM, enum.scalar, raw.type
        if raw.type in self._all_unions:
            self._unions[raw.type] = self._all_unions[raw.type]
            return Kind.UNION, None, raw.type
        if raw.type in self._raw:
            if not self._raw[raw.type].is_struct:
                return Kind.TABLE, None, raw.type
            self._struct(self._raw[raw.type])
            return Kind.STRUCT, None, raw.type
        raise UsageError(f"there is no type {raw.type!r}", about=f"{owner}.{raw.name}")

    def _default(self, raw: RawField, kind: Kind, scalar: Scalar | None, named: str) -> int | float | bool | None:
        if kind is Kind.ENUM:
            values = dict(self._enums[named].values)
            if raw.default in values:
                return values[raw.default]
            return int(raw.default or 0)
        if kind is not Kind.SCALAR or scalar is None:
            return None
        if scalar.name == "bool":
            return raw.default == "true"
        return float(raw.default or 0) if scalar.is_float else int(raw.default or 0)

    def _struct(self, raw: RawTable) -> None:
        if raw.name in self._structs:
            return
        fields = self._fields(raw)
        offsets: list[int] = []
        end, align = 0, 1
        for field in fields:
            if field.kind is Kind.STRUCT:
                inner = self._structs[field.type]
                size, alignment = inner.size, inner.align
            elif field.scalar is not None and field.kind in (Kind.SCALAR, Kind.ENUM):
                size = alignment = field.scalar.size
            else:
                raise UsageError(f"a struct cannot hold a {field.kind}", about=f"{raw.name}.{field.name}")
            end += -end % alignment
            offsets.append(end)
            end += size
            align = max(align, alignment)
        self._structs[raw.name] = Struct(raw.name, fields, tuple(offsets), end + -end % align, align)
