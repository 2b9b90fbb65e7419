"""The text form of schemas (`.fbs`): parsing what our schemas use, finding includes, and writing the text again.

Covered: include, table, struct, enum, union, defaults, root_type, file_identifier, comments. Namespaces, attributes and
services are refused by name rather than misread.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from syncline.core.errors import UsageError
from syncline.formats.flatbuffers.schema import (
    ALIASES,
    SCALARS,
    Enum,
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
