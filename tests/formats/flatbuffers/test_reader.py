"""Reading: every lie a buffer can tell is found, and nothing but a typed error comes of it."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.core.errors import DecodeError
from syncline.core.verdict import Reason
from syncline.formats.flatbuffers import Fault, Reader, Schema, Writer, fbs
from syncline.formats.flatbuffers.linking import link
from syncline.testing.flatbuffers import mutated, random_value


def small(text: str) -> Schema:
    return link({"t": fbs.parse(text)}, "T", "TEST")


TEXT = small("table T { name: string; number: uint; names: [string]; ints: [int]; inner: T; inners: [T]; }")
COLOURS = small("enum E : ubyte { A, B } union U { V } table V { a: int; } table T { e: E; u: U; es: [E]; }")


def encoded(schema: Schema, **value: Any) -> bytearray:
    return bytearray(Writer(schema).encode(value))


def refusal(schema: Schema, data: bytes | bytearray) -> DecodeError:
    with pytest.raises(DecodeError) as caught:
        Reader(schema).decode(bytes(data))
    return caught.value


def place(schema: Schema, data: bytes | bytearray, name: str) -> int:
    """Where a field of the root table lies."""
    root = 4 + struct.unpack_from("<I", data, 4)[0]
    vtable = root - struct.unpack_from("<i", data, root)[0]
    field = schema.root.field(name)
    assert field is not None
    return int(root + struct.unpack_from("<H", data, vtable + 4 + 2 * field.id)[0])


def target(schema: Schema, data: bytes | bytearray, name: str) -> int:
    at = place(schema, data, name)
    return int(at + struct.unpack_from("<I", data, at)[0])


@pytest.mark.parametrize("cut", range(20))
def test_a_buffer_cut_anywhere_is_refused(cut: int) -> None:
    assert refusal(TEXT, encoded(TEXT)[:cut]).message == Fault.LENGTH.text


def test_bytes_after_the_buffer_are_refused() -> None:
    assert refusal(TEXT, encoded(TEXT, number=1) + b"\0").message == Fault.LENGTH.text


def test_another_identifier_is_refused() -> None:
    data = encoded(TEXT, number=1)
    data[8:12] = b"NOPE"
    assert refusal(TEXT, data).message == Fault.IDENTIFIER.text


@pytest.mark.parametrize("offset", [0, 0x7FFFFFFF, 0xFFFFFFFF])
def test_an_offset_to_nowhere_is_refused(offset: int) -> None:
    data = encoded(TEXT, name="abc")
    struct.pack_into("<I", data, place(TEXT, data, "name"), offset)
    error = refusal(TEXT, data)
    assert (error.message, error.about) == (Fault.OFFSET.text, "name")
    struct.pack_into("<I", data, 4, offset)
    assert refusal(TEXT, data).message == Fault.OFFSET.text


@pytest.mark.parametrize("back", [-0x80000000, -1000, 1000, 0x7FFFFFFF])
def test_a_vtable_outside_the_buffer_is_refused(back: int) -> None:
    data = encoded(TEXT, number=1)
    struct.pack_into("<i", data, 4 + struct.unpack_from("<I", data, 4)[0], back)
    assert refusal(TEXT, data).message == Fault.VTABLE.text


@pytest.mark.parametrize(
    ("size", "fault"), [(0, Fault.VTABLE), (2, Fault.VTABLE), (7, Fault.VTABLE), (999, Fault.VTABLE)]
)
def test_a_vtable_of_impossible_size_is_refused(size: int, fault: Fault) -> None:
    data = encoded(TEXT, number=1)
    root = 4 + struct.unpack_from("<I", data, 4)[0]
    struct.pack_into("<H", data, root - struct.unpack_from("<i", data, root)[0], size)
    assert refusal(TEXT, data).message == fault.text


@pytest.mark.parametrize("size", [0, 3, 60_000])
def test_a_table_of_impossible_size_is_refused(size: int) -> None:
    data = encoded(TEXT, number=1)
    root = 4 + struct.unpack_from("<I", data, 4)[0]
    struct.pack_into("<H", data, root - struct.unpack_from("<i", data, root)[0] + 2, size)
    assert refusal(TEXT, data).message == Fault.TABLE.text


@pytest.mark.parametrize("entry", [1, 3, 5, 6, 60_000])
def test_a_field_outside_its_table_is_refused(entry: int) -> None:
    data = encoded(TEXT, number=1)
    root = 4 + struct.unpack_from("<I", data, 4)[0]
    struct.pack_into("<H", data, root - struct.unpack_from("<i", data, root)[0] + 4 + 2, entry)
    error = refusal(TEXT, data)
    assert (error.message, error.about) == (Fault.FIELD.text, "number")


@pytest.mark.parametrize("length", [4, 8, 0x7FFFFFFF, 0xFFFFFFFF])
def test_a_string_longer_than_the_buffer_is_refused(length: int) -> None:
    data = encoded(TEXT, name="abc")
    struct.pack_into("<I", data, target(TEXT, data, "name"), length)
    assert refusal(TEXT, data).message == Fault.STRING.text


def test_a_string_without_its_zero_byte_is_refused() -> None:
    data = encoded(TEXT, name="abc")
    data[target(TEXT, data, "name") + 4 + 3] = 1
    assert refusal(TEXT, data).message == Fault.STRING.text


@pytest.mark.parametrize("bad", [b"\xff\xff\xff", b"\xc0\x80a", b"\xed\xa0\x80", b"ab\xe2"])
def test_a_string_that_is_not_utf8_is_refused(bad: bytes) -> None:
    data = encoded(TEXT, name="abc")
    data[target(TEXT, data, "name") + 4 : target(TEXT, data, "name") + 7] = bad
    assert refusal(TEXT, data).message == Fault.ENCODING.text


@pytest.mark.parametrize("count", [3, 0x3FFFFFFF, 0xFFFFFFFF])
@pytest.mark.parametrize("name", ["names", "ints", "inners"])
def test_a_vector_longer_than_the_buffer_is_refused(name: str, count: int) -> None:
    values = {"names": [""], "ints": [1], "inners": [{}]}
    data = encoded(TEXT, **{name: values[name]})
    struct.pack_into("<I", data, target(TEXT, data, name), count * 20 if count == 3 else count)
    assert refusal(TEXT, data).message == Fault.VECTOR.text


def test_the_path_names_the_bad_value() -> None:
    data = encoded(TEXT, inners=[{}, {"inner": {"names": ["good", "evil"]}}])
    data[data.index(b"evil")] = 0xFF
    assert refusal(TEXT, data).about == "inners.inner.names"


def test_an_enum_value_that_does_not_exist_is_refused() -> None:
    data = encoded(COLOURS, e="B")
    data[place(COLOURS, data, "e")] = 2
    assert refusal(COLOURS, data).message == Fault.ENUM.text
    data = encoded(COLOURS, es=["A", "B"])
    data[target(COLOURS, data, "es") + 5] = 9
    assert refusal(COLOURS, data).message == Fault.ENUM.text


def test_a_union_value_without_a_type_is_refused() -> None:
    data = encoded(COLOURS, u_type="V", u={"a": 1})
    data[place(COLOURS, data, "u_type")] = 0
    error = refusal(COLOURS, data)
    assert (error.message, error.about) == (Fault.UNION.text, "u")


def test_a_union_type_that_does_not_exist_is_refused() -> None:
    data = encoded(COLOURS, u_type="V", u={"a": 1})
    data[place(COLOURS, data, "u_type")] = 7
    assert refusal(COLOURS, data).message == Fault.ENUM.text


def test_a_union_type_without_a_value_is_read_as_it_is() -> None:
    assert Reader(COLOURS).decode(bytes(encoded(COLOURS, u_type="V"))) == {"u_type": "V"}


def test_fields_of_a_newer_schema_are_left_alone() -> None:
    newer = small(
        "table T { name: string; number: uint; names: [string]; ints: [int]; inner: T; inners: [T]; more: string; }"
    )
    data = Writer(newer).encode({"number": 4, "more": "unknown"})
    assert Reader(TEXT).decode(data) == {"number": 4}


def test_tables_nested_deeper_than_the_limit_are_refused_as_too_complex() -> None:
    value: dict[str, Any] = {}
    for _ in range(4):
        value = {"inner": value}
    data = Writer(TEXT).encode(value)
    assert Reader(TEXT, depth=5).decode(data) == value
    with pytest.raises(DecodeError, match="too deeply") as caught:
        Reader(TEXT, depth=4).decode(data)
    assert caught.value.reason is Reason.TOO_COMPLEX


def test_a_table_that_contains_itself_is_refused() -> None:
    data = encoded(TEXT, inner={"number": 1}, number=2)
    at = place(TEXT, data, "inner")
    root = 4 + struct.unpack_from("<I", data, 4)[0]
    loop = bytearray(data[:4]) + bytearray(data[4:])
    struct.pack_into("<I", loop, at, (root - at) % 2**32)
    assert refusal(TEXT, loop).reason in (Reason.TOO_COMPLEX, Reason.MALFORMED)


def shared_strings(count: int, length: int) -> bytes:
    """`count` offsets to one string."""
    data = bytearray(Writer(TEXT).encode({"names": ["x" * length, *[""] * (count - 1)]}))
    vector = target(TEXT, data, "names") + 4
    string = vector + struct.unpack_from("<I", data, vector)[0]
    for index in range(count):
        struct.pack_into("<I", data, vector + 4 * index, string - (vector + 4 * index))
    return bytes(data)


def test_some_sharing_of_strings_is_read() -> None:
    assert Reader(TEXT).decode(shared_strings(20, 100)) == {"names": ["x" * 100] * 20}


def test_a_small_buffer_that_unpacks_to_much_is_refused_as_too_complex() -> None:
    data = shared_strings(200, 10_000)
    assert len(data) < 13_000
    assert refusal(TEXT, data).reason is Reason.TOO_COMPLEX


def test_some_sharing_of_tables_is_read() -> None:
    data = bytearray(Writer(TEXT).encode({"inners": [{"number": 5}, *[{}] * 99]}))
    vector = target(TEXT, data, "inners") + 4
    table = vector + struct.unpack_from("<I", data, vector)[0]
    for index in range(100):
        struct.pack_into("<I", data, vector + 4 * index, table - (vector + 4 * index))
    assert Reader(TEXT).decode(bytes(data)) == {"inners": [{"number": 5}] * 100}


def test_more_tables_than_the_bytes_could_hold_are_refused_as_too_complex() -> None:
    """Ten tables of the outer vector share one inner vector of ten."""
    data = bytearray(Writer(TEXT).encode({"inners": [{"inners": [{}] * 10}, *[{}] * 9]}))
    vector = target(TEXT, data, "inners") + 4
    table = vector + struct.unpack_from("<I", data, vector)[0]
    for index in range(10):
        struct.pack_into("<I", data, vector + 4 * index, table - (vector + 4 * index))
    assert len(data) // 8 < 111
    assert refusal(TEXT, data).reason is Reason.TOO_COMPLEX


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32))
def test_changed_bytes_give_a_decode_error_or_a_value_that_can_be_written_again(zoo: Schema, seed: int) -> None:
    random = Random(seed)
    data = Writer(zoo).encode(random_value(random, zoo))
    for _ in range(10):
        try:
            value = Reader(zoo).decode(mutated(random, data))
        except DecodeError:
            continue
        again = Reader(zoo).decode(Writer(zoo).encode(value))
        assert repr(again) == repr({name: each for name, each in value.items() if _is_kept(zoo, name, each)})


def _is_kept(schema: Schema, name: str, value: Any) -> bool:
    """Whether writing keeps a field: a scalar that equals its default is left out."""
    field = schema.root.field(name)
    assert field is not None
    if field.default is None:
        return True
    number = dict(schema.values_of(field))[value] if isinstance(value, str) else value
    return bool(number != field.default)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused(zoo: Schema, data: bytes) -> None:
    with pytest.raises(DecodeError):
        Reader(zoo).decode(data)
