"""Our differ: exact, and small where an edit is small."""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.protocols.sdsp.deltas.base import Budget
from syncline.protocols.sdsp.deltas.differ import difference
from syncline.protocols.sdsp.deltas.jp import JsonPatch
from tests.protocols.sdsp.kit import json_values


def exact(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def leads_to(old: Any, new: Any) -> list[dict[str, Any]]:
    """The difference, after checking that it gives exactly the new value."""
    patch = difference(old, new)
    assert exact(JsonPatch().apply(old, patch, Budget())) == exact(new)
    return patch


@pytest.mark.parametrize(
    ("old", "new"), [(1, True), (True, 1), (1, 1.0), (1.0, 1), (0, False), (0.0, -0.0), (-0.0, 0), ("1", 1), (None, 0)]
)
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: {"k": v}, lambda v: [v], lambda v: {"k": [{"d": v}, 1]}])
def test_values_that_python_takes_for_equal_are_told_apart(old: Any, new: Any, wrap: Any) -> None:
    assert len(leads_to(wrap(old), wrap(new))) == 1


def test_equal_values_have_no_difference() -> None:
    value = {"a": [1, 2.5, None, {"b": "c"}], "d": True}
    assert difference(value, copy.deepcopy(value)) == []
    assert difference({"a": 1, "b": 2}, {"b": 2, "a": 1}) == []
    assert difference([{"a": 1, "b": 2}], [{"b": 2, "a": 1}]) == []


def test_one_change_gives_one_operation_naming_the_place() -> None:
    old = {"a/b": {"~": [1, {"x": 1}]}}
    new = {"a/b": {"~": [1, {"x": 2}]}}
    assert leads_to(old, new) == [{"op": "replace", "path": "/a~1b/~0/1/x", "value": 2}]


@pytest.mark.parametrize("place", [0, 1, 37, 99, 100])
def test_an_insertion_into_a_long_array_is_one_operation(place: int) -> None:
    old: list[Any] = [{"id": n} for n in range(100)]
    new = [*old[:place], {"id": "new"}, *old[place:]]
    assert leads_to(old, new) == [{"op": "add", "path": f"/{place}", "value": {"id": "new"}}]
    assert leads_to(new, old) == [{"op": "remove", "path": f"/{place}"}]


def test_scattered_edits_of_a_long_array_stay_apart() -> None:
    old: list[Any] = [{"id": n, "v": 0} for n in range(200)]
    new = copy.deepcopy(old)
    new[10]["v"] = 1
    del new[50:53]
    new.insert(120, {"id": "x"})
    new[-1]["v"] = 2
    patch = leads_to(old, new)
    assert sorted(operation["op"] for operation in patch) == ["add", "remove", "remove", "remove", "replace", "replace"]


def test_an_array_in_which_everything_changed_is_replaced_at_once() -> None:
    assert leads_to({"a": list(range(50))}, {"a": [n + 1_000 for n in range(50)]}) == [
        {"op": "replace", "path": "/a", "value": [n + 1_000 for n in range(50)]}
    ]


def test_many_equal_elements_do_not_confuse_it() -> None:
    assert len(leads_to([0] * 100, [0] * 101)) == 1
    assert len(leads_to([0, 1] * 50, [0, 1] * 40)) <= 20


def test_neither_value_is_changed() -> None:
    old, new = {"a": [1, {"b": 2}]}, {"a": [{"b": 3}], "c": 4}
    copies = copy.deepcopy(old), copy.deepcopy(new)
    difference(old, new)
    assert (old, new) == copies


@settings(max_examples=300)
@given(json_values, json_values)
def test_any_two_values(old: Any, new: Any) -> None:
    patch = leads_to(old, new)
    wrapped = jsonpatch.apply_patch({"r": old}, [{**op, "path": "/r" + op["path"]} for op in patch])
    assert exact(wrapped["r"]) == exact(new)


small_lists = st.lists(st.sampled_from([0, 1, True, 1.0, "a", [], [0]]), max_size=12)


@settings(max_examples=300)
@given(small_lists, small_lists)
def test_any_two_arrays_with_many_repeats(old: Any, new: Any) -> None:
    leads_to(old, new)
