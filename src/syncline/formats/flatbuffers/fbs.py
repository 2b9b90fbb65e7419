"""The text form of schemas (`.fbs`): parsing what our schemas use, linking includes, and writing the text again.

Covered: include, table, struct, enum, union, defaults, root_type, file_identifier, comments. Namespaces, attributes and
services are refused by name rather than misread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from syncline.core.errors import UsageError
from syncline.formats.flatbuffers.schema import (
    ALIASES,
    SCALARS,
    Enum,
    Field,
    Kind,
    Scalar,
    Schema,
    Struct,
    Table,
    Union,
)

_TOKEN: Final = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)|(?P<word>[A-Za-z_]\w*)|(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"""
    r"""|(?P<text>"[^"]*")|(?P<mark>[{}:;,=\[\]])|(?P<bad>.)""",
    re.DOTALL,
)


class RawField(msgspec.Struct, frozen=True):
    name: str
    type: str
    is_vector: bool
    default: str  # as written; empty when there is none


class RawTable(msgspec.Struct, frozen=True):
    name: str
    fields: tuple[RawField, ...]
    is_struct: bool


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """One file, parsed and not linked: types are still names."""

    includes: tuple[str, ...]
    tables: tuple[RawTable, ...]
    enums: tuple[Enum, ...]
    unions: tuple[Union, ...]
    root: str
    identifier: str


def parse(text: str) -> Document:
    """One file of the schema language."""
    return _Parser(text).document()


def link(documents: Mapping[str, Document], root: str, identifier: str = "") -> Schema:
    """The schema of a root table, with the types it reaches, found in any of `documents`.

    Without `identifier`, the one of the document that names this root is used.
    """
    declared = (document.identifier for document in documents.values() if document.root == root)
    identifier = identifier or next(declared, "")
    if len(identifier) != 4:
        raise UsageError("a file identifier is four characters", about=root)
    return _Linker(documents).schema(root, identifier)


def with_includes(name: str, read: Callable[[str], str]) -> dict[str, Document]:
    """The file `name` and all it includes, by the names `read` knows them by."""
    found: dict[str, Document] = {}
    waiting = [name]
    while waiting:
        if (file := waiting.pop()) not in found:
            found[file] = parse(read(file))
            waiting += found[file].includes
    return found


def text_of(document: Document, note: str) -> str:
    """A document as text again, with a note at its top and without the comments it may have had."""
    lines = [f"// {line}" for line in note.splitlines()]
    lines += [f'include "{include}";' for include in document.includes]
    for enum in document.enums:
        values = ", ".join(f"{name} = {number}" for name, number in enum.values)
        lines += ["", f"enum {enum.name} : {enum.scalar.name} {{ {values} }}"]
    for union in document.unions:
        lines += ["", f"union {union.name} {{ {', '.join(union.members)} }}"]
    for table in document.tables:
        lines += ["", f"{'struct' if table.is_struct else 'table'} {table.name} {{"]
        lines += [f"  {field.name}: {_spelled(field)};" for field in table.fields]
        lines.append("}")
    if document.root:
        lines += ["", f"root_type {document.root};", f'file_identifier "{document.identifier}";']
    return "\n".join(lines) + "\n"


def _spelled(field: RawField) -> str:
    bare = f"[{field.type}]" if field.is_vector else field.type
    return f"{bare} = {field.default}" if field.default else bare


class _Parser:
    """Recursive descent over the tokens of one file."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        for match in _TOKEN.finditer(text):
            if match.lastgroup == "bad":
                line = text.count("\n", 0, match.start()) + 1
                raise UsageError(f"line {line} of a schema has {match.group()!r}, which is not supported")
            if match.lastgroup != "skip":
                self._tokens.append(match.group())
        self._tokens.append("")
        self._at = 0

    def document(self) -> Document:
        includes: list[str] = []
        tables: list[RawTable] = []
        enums: list[Enum] = []
        unions: list[Union] = []
        root = identifier = ""
        while word := self._next():
            match word:
                case "include":
                    includes.append(self._quoted())
                case "table" | "struct":
                    tables.append(self._table(is_struct=word == "struct"))
                case "enum":
                    enums.append(self._enum())
                case "union":
                    unions.append(Union(self._next(), tuple(name for name, _ in self._members())))
                case "root_type":
                    root = self._next()
                    self._expect(";")
                case "file_identifier":
                    identifier = self._quoted()
                case _:
                    raise UsageError(f"a schema declares {word!r}, which is not supported")
        return Document(
            includes=tuple(includes),
            tables=tuple(tables),
            enums=tuple(enums),
            unions=tuple(unions),
            root=root,
            identifier=identifier,
        )

    def _table(self, *, is_struct: bool) -> RawTable:
        name = self._next()
        self._expect("{")
        fields = []
        while (word := self._next()) != "}":
            self._expect(":")
            is_vector = self._skip("[")
            kind = self._next()
            if is_vector:
                self._expect("]")
            default = self._next() if self._skip("=") else ""
            self._expect(";")
            fields.append(RawField(word, ALIASES.get(kind, kind), is_vector, default))
        return RawTable(name, tuple(fields), is_struct)

    def _enum(self) -> Enum:
        name = self._next()
        self._expect(":")
        kind = self._next()
        scalar = SCALARS.get(ALIASES.get(kind, kind))
        if scalar is None or scalar.is_float or scalar.name == "bool":
            raise UsageError(f"enum {name} cannot be of type {kind}")
        return Enum(name, scalar, tuple(self._members()))

    def _members(self) -> list[tuple[str, int]]:
        """Names in braces, each with its number: the one written, or one more than the last."""
        self._expect("{")
        found: list[tuple[str, int]] = []
        number = 0
        while (word := self._next()) != "}":
            number = int(self._next()) if self._skip("=") else number
            found.append((word, number))
            number += 1
            if not self._skip(","):
                self._expect("}")
                break
        return found

    def _quoted(self) -> str:
        text = self._next().strip('"')
        self._expect(";")
        return text

    def _next(self) -> str:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _skip(self, mark: str) -> bool:
        if self._tokens[self._at] != mark:
            return False
        self._at += 1
        return True

    def _expect(self, mark: str) -> None:
        token = self._next()
        if token != mark:
            raise UsageError(f"a schema has {token!r} where {mark!r} belongs")


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
