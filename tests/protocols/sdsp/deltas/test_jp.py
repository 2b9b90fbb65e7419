"""JSON Patch: the rules of RFC 6902 that its public test suite leaves out or gained after its last release, all or
nothing, and bombs. The suite itself runs in tests/interop/sdsp."""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.core import limits
from syncline.core.errors import DeltaError
from syncline.core.verdict import Reason
from syncline.protocols.sdsp.deltas.base import Budget
from syncline.protocols.sdsp.deltas.jp import JsonPatch
from tests.protocols.sdsp.kit import json_values

JP = JsonPatch()


def exact(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def patched(old: Any, delta: Any) -> Any:
    """The result, which both ways of applying must share; the first leaves `old` alone, the second changes it."""
    before = exact(old)
    shared = JP.apply(old, delta, Budget())
    assert exact(old) == before
    owned = JP.apply(copy.deepcopy(old), copy.deepcopy(delta), Budget(), in_place=True)
    assert exact(owned) == exact(shared)
    return shared


def refused(old: Any, delta: Any, budget: tuple[int, int] | None = None) -> Reason:
    """Why the patch is refused; either way of applying must leave the object as it was."""
    before, reasons = exact(old), set()
    for in_place in (False, True):
        with pytest.raises(DeltaError) as error:
            JP.apply(old, delta, Budget(*budget) if budget else Budget(), in_place=in_place)
        assert exact(old) == before
        reasons.add(error.value.reason)
    (reason,) = reasons
    return reason


@pytest.mark.parametrize(
    ("old", "delta", "new"),
    [
        ({}, [{"op": "add", "path": "", "value": ["now an array"]}], ["now an array"]),
        ([], [{"op": "add", "path": "", "value": {"now": "an object"}}], {"now": "an object"}),
        ("scalar", [{"op": "replace", "path": "", "value": 7}], 7),
        ([], [{"op": "add", "path": "/-", "value": "first"}], ["first"]),
        ({"Key": 1}, [{"op": "add", "path": "/kEY", "value": 2}], {"Key": 1, "kEY": 2}),
        ({"a": 1}, [{"op": "test", "path": "", "value": {"a": 1.0}}], {"a": 1}),
        ({"-": 1}, [{"op": "replace", "path": "/-", "value": 2}], {"-": 2}),
        ({"~1": 1}, [{"op": "replace", "path": "/~01", "value": 2}], {"~1": 2}),
        ({"a": {"b": 1}}, [{"op": "move", "from": "/a/b", "path": ""}], 1),
        ({"a": {"b": 1}}, [{"op": "move", "from": "/a/b", "path": "/a"}], {"a": 1}),
        ({"a": [1]}, [{"op": "copy", "from": "", "path": "/b"}], {"a": [1], "b": {"a": [1]}}),
        ([1, 2, 3], [{"op": "move", "from": "/0", "path": "/2"}], [2, 3, 1]),
        ([1, 2, 3], [{"op": "move", "from": "/2", "path": "/0"}], [3, 1, 2]),
        ([[]], [{"op": "add", "path": "/0/-", "value": {}}, {"op": "add", "path": "/0/0/k", "value": 1}], [[{"k": 1}]]),
        (None, [{"op": "test", "path": "", "value": None}], None),
    ],
)
def test_these_patches_give_these_values(old: Any, delta: Any, new: Any) -> None:
    assert exact(patched(old, delta)) == exact(new)


@pytest.mark.parametrize(
    ("old", "operation"),
    [
        ({"a": 1}, {"op": "replace", "path": "/b/c", "value": 0}),
        ({"a": 1}, {"op": "remove", "path": "/b"}),
        ([1], {"op": "remove", "path": "/1"}),
        ([1], {"op": "remove", "path": "/-"}),
        ([1], {"op": "replace", "path": "/-", "value": 0}),
        ([1, 2], {"op": "test", "path": "/00", "value": 1}),
        ([1, 2], {"op": "test", "path": "/01", "value": 2}),
        ([1, 2], {"op": "test", "path": "/+1", "value": 2}),
        ([1, 2], {"op": "test", "path": "/ 1", "value": 2}),
        ([1, 2], {"op": "test", "path": "/١", "value": 2}),
        ([1], {"op": "add", "path": "/99999999999999999999", "value": 2}),
        ({"a": "text"}, {"op": "add", "path": "/a/0", "value": 1}),
        ({"a": 1}, {"op": "add", "path": "/a/b", "value": 1}),
        ({"a": 1}, {"op": "move", "from": "/b", "path": "/b"}),
        ({"a": 1}, {"op": "copy", "from": "/b", "path": "/c"}),
        ({"a": 1}, {"op": "test", "path": "/a", "value": True}),
        ({"a": 0}, {"op": "test", "path": "/a", "value": False}),
        ({"a": 1}, {"op": "test", "path": "/a", "value": "1"}),
        ({"a": None}, {"op": "test", "path": "/b", "value": None}),
        ({"a": [1]}, {"op": "test", "path": "/a", "value": {"0": 1}}),
    ],
)
def test_a_patch_that_does_not_fit_changes_nothing(old: Any, operation: dict[str, Any]) -> None:
    change = {"op": "add", "path": "", "value": old}
    assert refused(old, [operation]) is Reason.INVALID_PAYLOAD
    assert refused(old, [change, operation]) is Reason.INVALID_PAYLOAD


@pytest.mark.parametrize(
    "delta",
    [
        None,
        7,
        b"[]",
        {"op": "add"},
        "[",
        '"text"',
        [7],
        [{"path": "/a", "value": 1}],
        [{"op": "add", "value": 1}],
        [{"op": "add", "path": None, "value": 1}],
        [{"op": "add", "path": "a", "value": 1}],
        [{"op": "add", "path": "/~", "value": 1}],
        [{"op": "add", "path": "/~2", "value": 1}],
        [{"op": "add", "path": "/a"}],
        [{"op": "replace", "path": "/a"}],
        [{"op": "test", "path": "/a"}],
        [{"op": "move", "path": "/a"}],
        [{"op": "copy", "path": "/b", "from": 1}],
        [{"op": "move", "from": "/a", "path": "/a/b"}],
        [{"op": "remove", "path": ""}],
        [{"op": "spam", "path": "/a"}],
        [{"op": ["add"], "path": "/a"}],
        [{"OP": "add", "path": "/a", "value": 1}],
    ],
)
def test_what_is_not_a_patch_is_malformed(delta: Any) -> None:
    assert refused({"a": {}}, delta) is Reason.MALFORMED


@pytest.mark.parametrize("empty", [[], {}, "", " ", "{}", "[]"])
def test_the_empty_patch_has_many_forms(empty: Any) -> None:
    assert patched({"a": 1}, empty) == {"a": 1}


def test_every_kind_of_change_is_undone_when_a_later_one_fails() -> None:
    old = {"a": 1, "b": [1, 2, 3], "c": {"d": None}, "e": [[], {}]}
    delta = [
        {"op": "replace", "path": "/a", "value": 2},
        {"op": "add", "path": "/b/0", "value": 0},
        {"op": "remove", "path": "/b/2"},
        {"op": "replace", "path": "/b/1", "value": "x"},
        {"op": "remove", "path": "/c/d"},
        {"op": "add", "path": "/new", "value": {}},
        {"op": "add", "path": "/new/deep", "value": 1},
        {"op": "move", "from": "/e/1", "path": "/f"},
        {"op": "copy", "from": "/b", "path": "/g"},
        {"op": "replace", "path": "", "value": []},
        {"op": "add", "path": "/-", "value": 1},
        {"op": "remove", "path": "/nowhere"},
    ]
    assert refused(old, delta) is Reason.INVALID_PAYLOAD
    assert patched(old, delta[:-1]) == [1]


def test_the_patch_itself_is_not_changed_by_what_it_adds() -> None:
    delta = [{"op": "add", "path": "/a", "value": {}}, {"op": "add", "path": "/a/b", "value": 1}]
    before = copy.deepcopy(delta)
    assert JP.apply({}, delta, Budget()) == {"a": {"b": 1}}
    assert delta == before
    assert JP.apply({}, delta, Budget()) == {"a": {"b": 1}}


def test_a_copy_is_a_copy() -> None:
    delta = [{"op": "copy", "from": "/a", "path": "/b"}, {"op": "add", "path": "/b/-", "value": 2}]
    assert patched({"a": [1]}, delta) == {"a": [1], "b": [1, 2]}


def test_without_in_place_unchanged_parts_are_shared_and_changed_ones_are_not() -> None:
    old = {"big": list(range(1_000)), "small": {"n": 1}}
    new = JP.apply(old, [{"op": "replace", "path": "/small/n", "value": 2}], Budget())
    assert new["big"] is old["big"]
    assert old["small"] == {"n": 1}


def test_in_place_the_object_itself_is_changed() -> None:
    old = {"big": list(range(1_000)), "n": 1}
    assert JP.apply(old, [{"op": "replace", "path": "/n", "value": 2}], Budget(), in_place=True) is old
    assert old["n"] == 2


def test_a_copy_bomb_is_stopped_by_its_size() -> None:
    doubling = [{"op": "copy", "from": "/a", "path": f"/a/{n}"} for n in range(60)]
    assert refused({"a": {"x": "y" * 1_000}}, doubling) in (Reason.OVERSIZE, Reason.TOO_COMPLEX)
    repeated = [{"op": "copy", "from": "/0", "path": "/-"}] * 1_000
    assert refused(["x" * 100_000], repeated) is Reason.OVERSIZE


def test_growth_is_charged_before_it_happens() -> None:
    assert refused({"a": 1}, [{"op": "add", "path": "/b", "value": "x" * 100}], (100, 1_000)) is Reason.OVERSIZE
    assert refused({"a": 1}, [{"op": "replace", "path": "/a", "value": "x" * 100}], (100, 1_000)) is Reason.OVERSIZE
    budget = Budget(200)
    JP.apply({"a": 1}, [{"op": "add", "path": "/b", "value": "x" * 100}], budget)
    assert 100 < budget.grown < 120


def test_work_that_no_honest_patch_asks_for_is_stopped() -> None:
    long = list(range(100_000))
    shifting = [{"op": "add", "path": "/0", "value": 0}, {"op": "remove", "path": "/0"}] * 500
    assert refused(long, shifting, (10**6, 10**6)) is Reason.TOO_COMPLEX
    comparing = [{"op": "test", "path": "", "value": long}] * 20
    assert refused(long, comparing, (10**6, 10**6)) is Reason.TOO_COMPLEX
    moving = [{"op": "move", "from": "/a", "path": "/b"}, {"op": "move", "from": "/b", "path": "/a"}] * 10
    assert refused({"a": long}, moving, (10**6, 10**6)) is Reason.TOO_COMPLEX
    many = [{"op": "test", "path": "", "value": 1}] * (limits.SDSP_PATCH_OPS + 1)
    assert refused(1, many) is Reason.TOO_COMPLEX


def test_patches_cannot_nest_an_object_deeper_than_the_limit() -> None:
    deepest = limits.SDSP_DEPTH_MAX
    deepen = [{"op": "add", "path": "/0" * n, "value": []} for n in range(deepest)]
    nested = patched([], deepen)
    assert refused(nested, [{"op": "add", "path": "/0" * deepest, "value": []}]) is Reason.TOO_COMPLEX
    assert refused([nested, []], [{"op": "add", "path": "/1/-", "value": nested}]) is Reason.TOO_COMPLEX
    half = {"a": patched([], deepen[:70]), "b": patched([], deepen[:70])}
    inside = "/b" + "/0" * 69
    assert refused(half, [{"op": "move", "from": "/a", "path": inside + "/0"}]) is Reason.TOO_COMPLEX
    assert refused(half, [{"op": "copy", "from": "/a", "path": inside + "/0"}]) is Reason.TOO_COMPLEX


@settings(max_examples=200)
@given(json_values, json_values)
def test_it_agrees_with_the_python_library_of_reference(old: Any, new: Any) -> None:
    delta = jsonpatch.make_patch({"r": old}, {"r": new}).patch
    expected = jsonpatch.apply_patch({"r": old}, delta)
    assert exact(patched({"r": old}, delta)) == exact(expected)


operations = st.fixed_dictionaries(
    {},
    optional={
        "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "x"]),
        "path": st.one_of(json_values, st.lists(st.sampled_from(["", "a", "0", "1", "-", "~0"])).map("/".join)),
        "from": st.lists(st.sampled_from(["", "a", "0", "1", "-"])).map("/".join),
        "value": json_values,
    },
)


@settings(max_examples=300)
@given(json_values, st.one_of(json_values, st.binary(max_size=9), st.lists(operations, max_size=6)))
def test_an_arbitrary_delta_applies_whole_or_not_at_all(old: Any, delta: Any) -> None:
    before = exact(old)
    try:
        shared = exact(JP.apply(old, delta, Budget()))
    except DeltaError:
        shared = None
    assert exact(old) == before
    try:
        owned = exact(JP.apply(old, copy.deepcopy(delta), Budget(), in_place=True))
    except DeltaError:
        owned = None
        assert exact(old) == before
    assert owned == shared
