"""Merge patch: the examples of RFC 7396, and what it cannot say."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.core import limits
from syncline.core.errors import DeltaError
from syncline.core.verdict import Reason
from syncline.protocols.sdsp.deltas.base import Budget
from syncline.protocols.sdsp.deltas.mp import MergePatch
from tests.protocols.sdsp.kit import json_values

MP = MergePatch()


def exact(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")


@pytest.mark.parametrize(
    ("old", "patch", "new"),
    [  # RFC 7396, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
@pytest.mark.parametrize("in_place", [True, False])
def test_the_examples_of_the_rfc(old: Any, patch: Any, new: Any, in_place: bool) -> None:
    before, patch_before = copy.deepcopy(old), copy.deepcopy(patch)
    assert MP.apply(old, patch, Budget(), in_place=in_place) == new
    assert in_place or old == before
    assert patch == patch_before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"a": 1}, {"a": None}),
        ({}, {"a": {"b": None}}),
        ([1], {"a": None}),
        ({"a": {"b": 1}}, {"a": {"b": None}}),
        (1, None),
    ],
)
def test_a_new_null_cannot_be_said(old: Any, new: Any) -> None:
    assert MP.make(old, new) is None


def test_a_null_that_stays_or_hides_in_an_array_can() -> None:
    assert MP.make({"a": None, "b": 1}, {"a": None, "b": 2}) == {"b": 2}
    assert MP.make({"b": 1}, {"b": [None]}) == {"b": [None]}


@pytest.mark.parametrize(("old", "new"), [(1, True), (1, 1.0), (0.0, -0.0)])
def test_values_that_python_takes_for_equal_are_told_apart(old: Any, new: Any) -> None:
    patch = MP.make({"a": old}, {"a": new})
    assert exact(patch) == exact({"a": new})


def test_another_order_of_members_is_no_difference() -> None:
    assert MP.make({"a": {"x": 1, "y": 2}}, {"a": {"y": 2, "x": 1}}) == {}


def test_growth_and_depth_are_charged() -> None:
    with pytest.raises(DeltaError) as error:
        MP.apply({}, {"a": "x" * 100}, Budget(50))
    assert error.value.reason is Reason.OVERSIZE
    deep: Any = 1
    for _ in range(limits.SDSP_DEPTH_MAX + 1):
        deep = [deep]
    with pytest.raises(DeltaError) as error:
        MP.apply({}, deep, Budget())
    assert error.value.reason is Reason.TOO_COMPLEX
    with pytest.raises(DeltaError) as error:
        MP.apply({}, b"{}", Budget())
    assert error.value.reason is Reason.MALFORMED


@settings(max_examples=300)
@given(json_values, json_values)
def test_what_it_can_say_it_says_exactly(old: Any, new: Any) -> None:
    patch = MP.make(old, new)
    if patch is not None:
        assert exact(MP.apply(old, patch, Budget())) == exact(new)


@settings(max_examples=200)
@given(json_values, st.one_of(json_values, st.binary(max_size=5)))
def test_an_arbitrary_delta_gives_a_value_or_a_typed_error(old: Any, delta: Any) -> None:
    before = exact(old)
    try:
        made = MP.apply(old, delta, Budget())
    except DeltaError:
        assert isinstance(delta, bytes)
    else:
        exact(made)
    assert exact(old) == before
