"""Writing: the same bytes and the same meaning as generated code, and clear words for what does not fit."""

from __future__ import annotations

from random import Random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.core.errors import UsageError
from syncline.formats.flatbuffers import Reader, Schema, Writer, fbs
from syncline.formats.flatbuffers.linking import link
from syncline.testing.flatbuffers import random_value
from tests.formats.flatbuffers.objects import in_full, packed, unpacked


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0.2, 0.6, 1.0]))
def test_generated_code_reads_what_we_write(zoo: Schema, generated_zoo: ModuleType, seed: int, density: float) -> None:
    value = random_value(Random(seed), zoo, density=density)
    data = Writer(zoo).encode(value)
    assert unpacked(generated_zoo, zoo, data) == in_full(zoo, zoo.root, value)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0.2, 0.6, 1.0]))
def test_we_read_what_generated_code_writes_and_write_it_again_in_the_same_size(
    zoo: Schema, generated_zoo: ModuleType, seed: int, density: float
) -> None:
    value = random_value(Random(seed), zoo, density=density)
    data = packed(generated_zoo, zoo, value)
    assert in_full(zoo, zoo.root, Reader(zoo).decode(data)) == in_full(zoo, zoo.root, value)
    assert len(Writer(zoo).encode(value)) == len(data)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_what_was_read_is_written_as_the_same_bytes(zoo: Schema, seed: int) -> None:
    data = Writer(zoo).encode(random_value(Random(seed), zoo))
    assert Writer(zoo).encode(Reader(zoo).decode(data)) == data


def test_the_smallest_buffer_is_twenty_bytes(zoo: Schema) -> None:
    assert Writer(zoo).encode({}).hex() == "100000000c0000005a4f4f310400040004000000"


def test_a_scalar_equal_to_its_default_is_left_out(zoo: Schema) -> None:
    assert Writer(zoo).encode({"d": 7, "x": 0.5, "colour": "Green", "flag": True}) == Writer(zoo).encode({})


def test_none_means_absent(zoo: Schema) -> None:
    assert Writer(zoo).encode({"name": None, "keeper": None, "ints": None}) == Writer(zoo).encode({})


def test_an_empty_string_and_an_empty_vector_are_present(zoo: Schema) -> None:
    assert Reader(zoo).decode(Writer(zoo).encode({"name": "", "ints": []})) == {"name": "", "ints": []}


def test_equal_vtables_are_written_once(zoo: Schema) -> None:
    one, two = (len(Writer(zoo).encode({"keepers": [{"age": 1}] * count})) for count in (1, 2))
    assert two - one == 12  # start of the table, the age with its padding, the offset to it


def test_enums_may_be_given_by_number(zoo: Schema) -> None:
    assert Writer(zoo).encode({"colour": 5}) == Writer(zoo).encode({"colour": "Blue"})


@pytest.mark.parametrize(
    ("value", "path", "complaint"),
    [
        ({"nmae": "x"}, "Zoo", "no field 'nmae'"),
        ({"name": 3}, "Zoo.name", "text belongs here, not int"),
        ({"name": "\ud800"}, "Zoo.name", "surrogate"),
        ({"a": 128}, "Zoo.a", "fits its type"),
        ({"b": -1}, "Zoo.b", "fits its type"),
        ({"e": 1.5}, "Zoo.e", "fits its type"),
        ({"e": "1"}, "Zoo.e", "fits its type"),
        ({"x": 1e39}, "Zoo.x", "fits its type"),
        ({"e": True}, "Zoo.e", "a number belongs here"),
        ({"flag": 1}, "Zoo.flag", "true or false"),
        ({"colour": "Pink"}, "Zoo.colour", "Colour has no value 'Pink'"),
        ({"colour": 2}, "Zoo.colour", "Colour has no value '2'"),
        ({"colour": [1]}, "Zoo.colour", "has no value"),
        ({"keeper": []}, "Zoo.keeper", "a Keeper is an object of named fields, not list"),
        ({"keeper": {"boss": {"age": 256}}}, "Zoo.keeper.boss.age", "fits its type"),
        ({"keepers": [{}, {"name": 1}]}, "Zoo.keepers.1.name", "text belongs"),
        ({"names": "abc"}, "Zoo.names", "a list belongs here, not str"),
        ({"names": b"abc"}, "Zoo.names", "a list belongs here, not bytes"),
        ({"ints": {1: 2}}, "Zoo.ints", "a list belongs here"),
        ({"colours": ["Red", "Pink"]}, "Zoo.colours.1", "has no value 'Pink'"),
        ({"place": {"tag": 1}}, "Zoo.place", "exactly the fields near, tag, colour"),
        ({"place": {"near": {"x": 1, "y": "?"}, "tag": 1, "colour": 0}}, "Zoo.place.near.y", "fits its type"),
        ({"beast": {}}, "Zoo.beast", "needs its type"),
        ({"beast_type": 9, "beast": {}}, "Zoo.beast", "needs its type"),
        ({"beast_type": "Dog"}, "Zoo.beast_type", "has no value 'Dog'"),
    ],
)
def test_what_does_not_fit_is_named_with_its_path(
    zoo: Schema, value: dict[str, Any], path: str, complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        Writer(zoo).encode(value)
    assert caught.value.about == path


def test_the_nearest_name_is_hinted_at(zoo: Schema) -> None:
    with pytest.raises(UsageError) as caught:
        Writer(zoo).encode({"nmae": "x"})
    assert caught.value.hint == "did you mean name?"


def test_a_value_nested_without_end_is_refused() -> None:
    schema = link({"t": fbs.parse("table T { inner: T; }")}, "T", "TEST")
    value: dict[str, Any] = {}
    value["inner"] = value
    with pytest.raises(UsageError, match="too deeply"):
        Writer(schema).encode(value)
