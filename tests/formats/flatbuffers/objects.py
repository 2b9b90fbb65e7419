"""The code `flatc` generates for Python (object API), as a peer: values to its objects and back."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import flatbuffers

from syncline.formats.flatbuffers import Field, Kind, Schema, Struct, Table


def generate(schema: Path, folder: Path) -> ModuleType:
    """Compile a schema file with all it includes into one module."""
    flatc = str(Path(sys.executable).with_name("flatc"))
    command = [flatc, "--no-warnings", "--python", "--gen-object-api", "--gen-all", "--gen-onefile"]
    subprocess.run([*command, "-o", folder, schema], check=True)
    made = folder / f"{schema.stem}_generated.py"
    spec = importlib.util.spec_from_file_location(made.stem, made)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def packed(module: ModuleType, schema: Schema, value: dict[str, Any]) -> bytes:
    """The buffer the generated code makes of a value."""
    builder = flatbuffers.Builder(64)
    builder.FinishSizePrefixed(
        to_object(module, schema, schema.root, value).Pack(builder), file_identifier=schema.identifier
    )
    return bytes(builder.Output())


def unpacked(module: ModuleType, schema: Schema, data: bytes) -> dict[str, Any]:
    """What the generated code reads from a size-prefixed buffer, in full: absent fields with their defaults."""
    made = getattr(module, f"{schema.root.name}T").InitFromPackedBuf(data[4:], 0)
    return from_object(schema, schema.root, made)


def to_object(module: ModuleType, schema: Schema, table: Table | Struct, value: dict[str, Any]) -> Any:
    made = getattr(module, f"{table.name}T")()
    for field, attribute in zip(table.fields, vars(made), strict=True):
        if (given := value.get(field.name)) is None:
            continue
        if field.kind is Kind.UNION:
            inner: Any = to_object(module, schema, schema.tables[value[f"{field.name}_type"]], given)
        elif field.kind is Kind.VECTOR:
            inner = [_to_part(module, schema, field, field.element, each) for each in given]
            if field.scalar is not None and field.scalar.code == "b":
                inner = [each & 0xFF for each in inner]  # generated code packs [byte] as if it were unsigned
        else:
            inner = _to_part(module, schema, field, field.kind, given)
        setattr(made, attribute, inner)
    return made


def _to_part(module: ModuleType, schema: Schema, field: Field, kind: Kind | None, value: Any) -> Any:
    if kind in (Kind.ENUM, Kind.UNION_TYPE):
        return dict(schema.values_of(field))[value]
    if kind in (Kind.TABLE, Kind.STRUCT):
        named = schema.tables if kind is Kind.TABLE else schema.structs
        return to_object(module, schema, named[field.type], value)
    return value


def from_object(schema: Schema, table: Table | Struct, made: Any) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for field, given in zip(table.fields, vars(made).values(), strict=True):
        if given is None:
            value[field.name] = None
        elif field.kind is Kind.UNION:
            value[field.name] = from_object(schema, schema.tables[value[f"{field.name}_type"]], given)
        elif field.kind is Kind.VECTOR:
            parts = [_from_part(schema, field, field.element, each) for each in given]
            value[field.name] = bytes(parts) if field.scalar is not None and field.scalar.code == "B" else parts
        else:
            value[field.name] = _from_part(schema, field, field.kind, given)
    return value


def _from_part(schema: Schema, field: Field, kind: Kind | None, given: Any) -> Any:
    match kind:
        case Kind.ENUM | Kind.UNION_TYPE:
            return {number: name for name, number in schema.values_of(field)}[int(given)]
        case Kind.TABLE:
            return from_object(schema, schema.tables[field.type], given)
        case Kind.STRUCT:
            return from_object(schema, schema.structs[field.type], given)
        case Kind.STRING:
            return given.decode()
        case _:
            return given.item() if hasattr(given, "item") else given


def in_full(schema: Schema, table: Table | Struct, value: dict[str, Any] | None) -> dict[str, Any] | None:
    """Our value with every absent field as its default or None, to compare with `unpacked`."""
    if value is None:
        return None
    full: dict[str, Any] = {}
    for field in table.fields:
        given = value.get(field.name)
        if field.kind is Kind.TABLE:
            full[field.name] = in_full(schema, schema.tables[field.type], given)
        elif field.kind is Kind.UNION:
            member = value.get(f"{field.name}_type")
            full[field.name] = in_full(schema, schema.tables[member], given) if member else None
        elif field.element is Kind.TABLE and given is not None:
            full[field.name] = [in_full(schema, schema.tables[field.type], each) for each in given]
        elif given is None and field.kind in (Kind.ENUM, Kind.UNION_TYPE):
            full[field.name] = {number: name for name, number in schema.values_of(field)}[field.default]  # type: ignore[index]
        else:
            full[field.name] = field.default if given is None else given
    return full
