"""What the columns of a row must say, worked out value by value from what the row reader read."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from syncline.core.errors import DecodeError
from syncline.formats.flatbuffers import Fault, Field, Kind, Reader, Schema, Struct, Table
from syncline.formats.flatbuffers.columns import ColumnDecoder, Columns
from syncline.formats.flatbuffers.columns.layout import SEPARATOR


def flat(
    schema: Schema, table: Table | Struct, value: dict[str, Any] | None, prefix: str = "", *, defaults: bool = True
) -> dict[str, Any]:
    """A value as one row of flattened columns; a nested table that is absent gives nulls all the way down."""
    row: dict[str, Any] = {}
    for field in table.fields:
        name, given = prefix + field.name, None if value is None else value.get(field.name)
        if field.kind is Kind.TABLE:
            row |= flat(schema, schema.tables[field.type], given, name + SEPARATOR, defaults=defaults)
        elif field.kind is Kind.STRUCT:
            row |= flat(schema, schema.structs[field.type], given, name + SEPARATOR, defaults=defaults)
        elif field.kind is Kind.UNION:
            for member in schema.unions[field.type].members:
                chosen = given if value is not None and value.get(f"{field.name}_type") == member else None
                inner = f"{name}{SEPARATOR}{member}{SEPARATOR}"
                row |= flat(schema, schema.tables[member], chosen, inner, defaults=defaults)
        elif field.element is Kind.TABLE and given is not None:
            row[name] = [flat(schema, schema.tables[field.type], each, defaults=defaults) for each in given]
        else:
            row[name] = _leaf(schema, field, value, given, defaults=defaults)
    return row


def _leaf(schema: Schema, field: Field, value: dict[str, Any] | None, given: Any, *, defaults: bool) -> Any:
    if given is None and value is not None and defaults and field.default is not None:
        given = field.default
        if field.type:
            given = {number: name for name, number in schema.values_of(field)}[int(given)]
    is_wide = field.kind is Kind.SCALAR and field.scalar is not None and field.scalar.code == "Q"
    return Decimal(given) if is_wide and given is not None else given


def check(
    schema: Schema, buffers: list[bytes], decoder: ColumnDecoder | None = None, *, defaults: bool = True
) -> Columns:
    """Decode a batch in strict mode and hold every row against the row reader. Returns the columns."""
    decoder = decoder or ColumnDecoder(schema, strict=True, defaults=defaults)
    found = decoder.decode(pa.array(buffers, pa.binary()))
    found.batch.validate(full=True)
    nothing = dict.fromkeys(found.batch.schema.names)
    for row, data, fault in zip(found.batch.to_pylist(), buffers, found.faults, strict=True):
        value = _read(schema, data)
        assert (value is None) == (fault != Fault.NONE), f"{Fault(fault).text!r} against the reader on {data.hex()}"
        expected = nothing if value is None else flat(schema, schema.root, value, defaults=defaults)
        assert repr(row) == repr(expected)
    return found


def _read(schema: Schema, data: bytes) -> dict[str, Any] | None:
    try:
        return Reader(schema).decode(data)
    except DecodeError:
        return None


def alone_as_in_batch(schema: Schema, buffers: list[bytes], found: Columns) -> None:
    """Each row decoded by itself is the row of the batch."""
    decoder = ColumnDecoder(schema, strict=True)
    for index, data in enumerate(buffers):
        alone = decoder.decode(pa.array([data], pa.binary()))
        assert alone.faults[0] == found.faults[index]
        assert repr(alone.batch.to_pylist()) == repr(found.batch.slice(index, 1).to_pylist())


def shuffled(random: Random, buffers: list[bytes]) -> list[bytes]:
    order = np.array(random.sample(range(len(buffers)), len(buffers)))
    return [buffers[index] for index in order]
