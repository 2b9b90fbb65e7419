"""Whole batches to columns: every row says what the row reader says, whatever its neighbours are."""

from __future__ import annotations

import struct
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from syncline.core.errors import UsageError
from syncline.formats.flatbuffers import Fault, Reader, Schema, Writer, fbs
from syncline.formats.flatbuffers.columns import ColumnDecoder
from syncline.formats.flatbuffers.linking import link
from syncline.testing.flatbuffers import mutated, random_value
from tests.formats.flatbuffers.flat import alone_as_in_batch, check

TEXT = (Path(__file__).parent / "zoo.fbs").read_text() + (Path(__file__).parent / "zoo_parts.fbs").read_text()


@pytest.fixture(scope="module")
def pen() -> Schema:
    """The zoo without what contains itself: that has no end of columns."""
    text = TEXT.replace("cubs: [Lion];", "").replace("boss: Keeper;", "").replace('include "zoo_parts.fbs";', "")
    return link({"zoo": fbs.parse(text)}, "Zoo")


def batch(schema: Schema, seed: int, count: int, density: float | None = None) -> list[bytes]:
    random, writer = Random(seed), Writer(schema)
    return [
        writer.encode(random_value(random, schema, density=random.random() if density is None else density))
        for _ in range(count)
    ]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("defaults", [True, False])
def test_every_row_says_what_the_row_reader_says(pen: Schema, seed: int, *, defaults: bool) -> None:
    found = check(pen, batch(pen, seed, 300), defaults=defaults)
    assert not found.faults.any()


@pytest.mark.parametrize("density", [0.0, 1.0])
def test_batches_in_which_all_or_no_fields_are_present(pen: Schema, density: float) -> None:
    assert not check(pen, batch(pen, 1, 50, density)).faults.any()


@pytest.mark.parametrize("seed", range(4))
def test_changed_bytes_are_refused_exactly_where_the_row_reader_refuses_them(pen: Schema, seed: int) -> None:
    random = Random(seed)
    buffers = [mutated(random, each, random.randrange(4)) for each in batch(pen, seed, 400)]
    found = check(pen, buffers)
    assert 0 < np.count_nonzero(found.faults) < 400
    alone_as_in_batch(pen, buffers[:100], found)


def test_the_fault_of_a_row_is_the_row_readers(pen: Schema) -> None:
    good = Writer(pen).encode({"name": "abc", "ints": [1], "colour": "Blue", "beast_type": "Lion", "beast": {}})
    text = bytearray(good)
    text[text.index(b"abc")] = 0xFF
    short = good[:-1]
    other = good[:8] + b"NOPE" + good[12:]
    found = check(pen, [good, short, other, bytes(text), b"", good])
    assert [Fault(fault) for fault in found.faults] == [
        Fault.NONE, Fault.LENGTH, Fault.IDENTIFIER, Fault.ENCODING, Fault.LENGTH, Fault.NONE,
    ]  # fmt: skip


def test_a_null_is_a_bad_row() -> None:
    schema = link({"t": fbs.parse("table T { a: int = 3; }")}, "T", "TEST")
    found = ColumnDecoder(schema, strict=True).decode(pa.array([None, Writer(schema).encode({})], pa.binary()))
    assert found.batch.to_pylist() == [{"a": None}, {"a": 3}]
    assert list(found.faults) == [Fault.LENGTH, Fault.NONE]


def test_an_empty_batch_has_the_columns_and_no_rows(pen: Schema) -> None:
    found = ColumnDecoder(pen, strict=True).decode(pa.array([], pa.binary()))
    assert (found.batch.num_rows, found.batch.schema) == (0, ColumnDecoder(pen).schema)


def test_a_slice_a_chunked_and_a_large_array_decode_like_their_rows(pen: Schema) -> None:
    buffers = batch(pen, 3, 60)
    decoder = ColumnDecoder(pen, strict=True)
    whole = decoder.decode(pa.array(buffers, pa.binary())).batch
    assert decoder.decode(pa.array(buffers, pa.binary())[20:40]).batch == whole.slice(20, 20)
    assert decoder.decode(pa.array(buffers, pa.large_binary())).batch == whole
    chunked = pa.chunked_array([pa.array(buffers[:7]), pa.array(buffers[7:])])
    assert decoder.decode(chunked).batch == whole


def test_numbers_get_types_that_every_table_format_has(pen: Schema) -> None:
    types = {field.name: str(field.type) for field in ColumnDecoder(pen).schema}
    assert {name: types[name] for name in ("flag", "a", "b", "c", "d", "e", "f", "g", "h", "x", "y", "colour")} == {
        "flag": "bool", "a": "int8", "b": "int16", "c": "int16", "d": "int32", "e": "int32", "f": "int64",
        "g": "int64", "h": "decimal128(20, 0)", "x": "float", "y": "double", "colour": "string",
    }  # fmt: skip
    assert types["blob"] == "binary"
    assert types["keepers"].startswith("list<item: struct<name: string, age: int16, place__near__x: int32")


def test_the_largest_unsigned_numbers_survive(pen: Schema) -> None:
    data = Writer(pen).encode({"b": 255, "d": 65535, "f": 2**32 - 1, "h": 2**64 - 1})
    row = check(pen, [data]).batch.to_pylist()[0]
    assert (row["b"], row["d"], row["f"], row["h"]) == (255, 65535, 2**32 - 1, Decimal(2**64 - 1))


def test_chosen_columns_come_out_in_the_order_they_were_asked_for(pen: Schema) -> None:
    buffers = batch(pen, 5, 100)
    whole = ColumnDecoder(pen).decode(pa.array(buffers)).batch
    for partial in (False, True):
        chosen = ["keeper__name", "y", "beast__Lion__roar", "keepers"]
        found = ColumnDecoder(pen, chosen, partial=partial, strict=True).decode(pa.array(buffers)).batch
        assert found.schema.names == chosen
        assert found == whole.select(chosen)


def test_a_column_that_does_not_exist_is_refused(pen: Schema) -> None:
    with pytest.raises(UsageError, match="no column 'wings'"):
        ColumnDecoder(pen, ["wings"])


def test_without_partial_a_fault_in_a_column_nobody_asked_for_is_still_found(pen: Schema) -> None:
    data = bytearray(Writer(pen).encode({"name": "abc", "y": 2.5}))
    data[data.index(b"abc")] = 0xFF
    rows = pa.array([bytes(data)])
    assert ColumnDecoder(pen, ["y"]).decode(rows).faults[0] == Fault.ENCODING
    partial = ColumnDecoder(pen, ["y"], partial=True).decode(rows)
    assert (partial.faults[0], partial.batch.to_pylist()) == (Fault.NONE, [{"y": 2.5}])


def test_a_table_that_contains_itself_has_no_columns(zoo: Schema) -> None:
    with pytest.raises(UsageError, match="contains itself"):
        ColumnDecoder(zoo)


NEST = link(
    {"t": fbs.parse("table T { texts: [string]; us: [U]; } table U { vs: [V]; } table V { a: double; b: double; }")},
    "T",
    "TEST",
)


def aliased(outer: int, inner: int, *, pad: int = 0) -> bytes:
    """A vector of tables that all share one vector of tables."""
    value: dict[str, Any] = {"us": [{"vs": [{"a": 1.0}] * inner}, *[{}] * (outer - 1)], "texts": ["x" * pad]}
    data = bytearray(Writer(NEST).encode(value))
    root = 4 + struct.unpack_from("<I", data, 4)[0]
    vtable = root - struct.unpack_from("<i", data, root)[0]
    at = root + struct.unpack_from("<H", data, vtable + 6)[0]
    vector = at + struct.unpack_from("<I", data, at)[0] + 4
    table = vector + struct.unpack_from("<I", data, vector)[0]
    for index in range(outer):
        struct.pack_into("<I", data, vector + 4 * index, table - (vector + 4 * index))
    return bytes(data)


def test_vectors_that_share_their_elements_are_refused_before_they_explode() -> None:
    bomb, mild, good = aliased(60, 60), aliased(3, 3, pad=200), aliased(1, 2)
    found = check(NEST, [good, bomb, mild, good])
    assert [Fault(fault) for fault in found.faults] == [Fault.NONE, Fault.COMPLEXITY, Fault.NONE, Fault.NONE]


def test_a_batch_of_bombs_costs_no_more_than_its_bytes() -> None:
    """Each would unpack to four million tables."""
    bombs = [aliased(2_000, 2_000)] * 20
    found = ColumnDecoder(NEST).decode(pa.array(bombs))
    assert set(found.faults) == {Fault.COMPLEXITY}
    assert found.batch.nbytes < 10_000


def test_strict_mode_notices_a_gather_outside_its_row(pen: Schema) -> None:
    from syncline.formats.flatbuffers.columns.rows import Cells, Rows

    rows = Rows(pa.array([b"12345678", b"12345678"]), strict=True)
    cells = Cells(rows, None, None, 2)
    assert list(rows.gather("u1", rows.start + 7, cells)) == [ord("8"), ord("8")]
    with pytest.raises(AssertionError, match="outside its row"):
        rows.gather("u4", rows.start + 5, cells)
    with pytest.raises(AssertionError, match="outside its row"):
        rows.windows(rows.start, 10, cells)


def test_a_row_of_nulls_for_a_bad_buffer_does_not_touch_its_neighbours(pen: Schema) -> None:
    good = batch(pen, 9, 30)
    broken = [each if index % 3 else each[:-2] for index, each in enumerate(good)]
    found = check(pen, broken)
    expected = [Reader(pen).decode(each).get("name") if index % 3 else None for index, each in enumerate(good)]
    assert found.batch["name"].to_pylist() == expected
