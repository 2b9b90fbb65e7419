"""FlatBuffers to test readers with: random values of any schema, and buffers with a few bytes changed.

Everything comes from a seeded generator, so a failure can be had again.
"""

from __future__ import annotations

import struct
from random import Random
from typing import Any, Final

from syncline.formats.flatbuffers import Field, Kind, Schema, Table

TEXTS: Final = ("", "A", "ISS (ZARYA)", "1998-067A", "2026-03-01T06:00:00.000Z", "Спутник-1 衛星 🛰️", "a\tb\n\0c")
FLOATS: Final = (1.5, -0.25, 15.50103472, 1e300, -5e-324, float("inf"), 398600.4415, 0.1)


def random_value(random: Random, schema: Schema, table: Table | None = None, *, density: float = 0.5) -> dict[str, Any]:
    """A value of the schema's root table (or of `table`), each field present with a chance of `density`."""
    table = table or schema.root
    value: dict[str, Any] = {}
    for field in table.fields:
        if random.random() >= density or field.kind is Kind.UNION:
            continue
        if field.kind is Kind.UNION_TYPE:
            member = random.choice(schema.unions[field.type].members)
            value[field.name] = member
            union = table.fields[field.id + 1]
            value[union.name] = random_value(random, schema, schema.tables[member], density=density / 2)
        else:
            value[field.name] = _random_field(random, schema, field, density)
    return value


def _random_field(random: Random, schema: Schema, field: Field, density: float) -> Any:
    match field.element or field.kind:
        case _ if field.kind is Kind.VECTOR:
            count = random.choice((0, 1, 2, 3))
            if field.scalar is not None and field.scalar.code == "B":
                return random.randbytes(count)
            return [_random_element(random, schema, field, field.element, density) for _ in range(count)]
        case kind:
            return _random_element(random, schema, field, kind, density)


def _random_element(random: Random, schema: Schema, field: Field, kind: Kind | None, density: float) -> Any:
    if kind is Kind.STRING:
        return random.choice(TEXTS)
    if kind is Kind.TABLE:
        return random_value(random, schema, schema.tables[field.type], density=density / 2)
    if kind is Kind.STRUCT:
        parts = schema.structs[field.type].fields
        return {part.name: _random_element(random, schema, part, part.kind, density) for part in parts}
    if kind is Kind.ENUM:
        return random.choice(schema.enums[field.type].values)[0]
    assert field.scalar is not None
    return random_number(random, field.scalar.code)


def random_number(random: Random, code: str) -> Any:
    """A number that the struct code can hold, often a border case."""
    if code == "?":
        return random.random() < 0.5
    if code == "d":
        return random.choice(FLOATS)
    if code == "f":
        return struct.unpack("<f", struct.pack("<f", random.choice((1.5, -0.25, 0.1, 3e38))))[0]
    bits = 8 * struct.calcsize(code)
    low = -(1 << bits - 1) if code.islower() else 0
    high = low + (1 << bits) - 1
    return random.choice((low, high, 1, random.randint(low, high)))


def mutated(random: Random, data: bytes, changes: int = 3) -> bytes:
    """The same bytes with a few of them changed, or cut, or grown."""
    changed = bytearray(data)
    for _ in range(changes):
        at = random.randrange(len(changed))
        changed[at] = random.choice((random.randrange(256), changed[at] ^ 1 << random.randrange(8), 0, 255))
    if random.random() < 0.05:
        return bytes(changed[: random.randrange(len(changed))])
    if random.random() < 0.05:
        return bytes(changed) + random.randbytes(random.randrange(1, 9))
    return bytes(changed)
