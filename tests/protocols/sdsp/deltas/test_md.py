"""Text deltas: UTF-16 lengths, whole coverage, and agreement with the reference implementation."""

from __future__ import annotations

import random
from typing import Any

import pytest
from diff_match_patch import diff_match_patch
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.core.errors import DeltaError
from syncline.core.verdict import Reason
from syncline.protocols.sdsp.deltas.base import Budget
from syncline.protocols.sdsp.deltas.md import MyersDiff
from tests.protocols.sdsp.kit import json_values

MD = MyersDiff()
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
astral = st.text(st.sampled_from("ab\n😀😁𝄞\u2028é%+\t "), max_size=40)


def refused(old: Any, delta: Any) -> Reason:
    with pytest.raises(DeltaError) as error:
        MD.apply(old, delta, Budget())
    return error.value.reason


def test_lengths_count_utf16_code_units() -> None:
    assert MD.make("a😀b", "a😀c") == "=3\t-1\t+c"
    assert MD.make("😀", "") == "-2"
    assert MD.apply("a😀b", "=3\t-1\t+c", Budget()) == "a😀c"


def test_a_delta_may_cut_through_surrogate_pairs_as_long_as_whole_ones_remain() -> None:
    assert MD.apply("😀😁", "=1\t-2\t=1", Budget()) == "😁"  # JavaScript's diff works on halves
    assert refused("😀", "=1\t-1") is Reason.INVALID_PAYLOAD


def test_inserted_text_is_encoded_like_encode_uri() -> None:
    made = MD.make("", "a b%\t\n[]é😀+#")
    assert made == "+a b%25%09%0A%5B%5D%C3%A9%F0%9F%98%80+#"
    assert MD.apply("", made, Budget()) == "a b%\t\n[]é😀+#"
    assert MD.apply("", "+%c3%a9", Budget()) == "é"


@pytest.mark.parametrize("delta", ["=2", "=4", "-2\t+x", "+x", "", "=99999999999", "=3\t-1"])
def test_a_delta_must_account_for_the_whole_text(delta: str) -> None:
    assert refused("abc", delta) in (Reason.INVALID_PAYLOAD, Reason.MALFORMED)


@pytest.mark.parametrize(
    "delta", ["=x\t=3", "*3", "=+3", "=-1\t=3", "= 3", "=3.0", "=٣", "=3\t+%", "=3\t+%zz", "=3\t+%ff", "=3\t+%ED%A0%80"]
)
def test_what_is_not_a_delta_is_malformed(delta: str) -> None:
    assert refused("abc", delta) is Reason.MALFORMED


@pytest.mark.parametrize("escape", ["%23", "%24", "%26", "%2B", "%2b", "%2C", "%2F", "%3A", "%3B", "%3D", "%3F", "%40"])
def test_escapes_that_readers_disagree_about_are_refused(escape: str) -> None:
    assert refused("", f"+{escape}") is Reason.MALFORMED


def test_blank_steps_are_passed_over_as_the_reference_does() -> None:
    assert MD.apply("abc", "\t=3\t\t+d\t", Budget()) == "abcd"


def test_only_texts_have_text_deltas() -> None:
    assert MD.make({"a": 1}, "text") is None
    assert refused({"a": 1}, "=1") is Reason.MALFORMED
    assert refused("abc", ["=3"]) is Reason.MALFORMED


def test_growth_is_charged() -> None:
    with pytest.raises(DeltaError) as error:
        MD.apply("", "+" + "x" * 100, Budget(50))
    assert error.value.reason is Reason.OVERSIZE


def test_a_large_text_with_many_edits_comes_back_exactly() -> None:
    rng = random.Random(11)
    letters = [rng.choice("abcdefgh é😀\n") for _ in range(100_000)]
    old = "".join(letters)
    for _ in range(200):
        letters[rng.randrange(len(letters))] = rng.choice("XYZ😁")
    new = "".join(letters)
    made = MD.make(old, new)
    assert made is not None
    assert MD.apply(old, made, Budget()) == new
    assert len(made) < 5_000


@settings(max_examples=200)
@given(st.one_of(texts, astral), st.one_of(texts, astral))
def test_any_two_texts_here_and_at_the_reference(old: str, new: str) -> None:
    made = MD.make(old, new)
    assert made is not None
    assert MD.apply(old, made, Budget()) == new
    reference = diff_match_patch()
    assert reference.diff_text2(reference.diff_fromDelta(old, made)) == new
    theirs = reference.diff_toDelta(reference.diff_main(old, new))
    assert MD.apply(old, theirs, Budget()) == new


@settings(max_examples=300)
@given(
    st.one_of(astral, json_values),
    st.one_of(st.text(max_size=20), json_values, st.lists(st.sampled_from(["=1", "-1", "+a", "+%"])).map("\t".join)),
)
def test_an_arbitrary_delta_gives_a_text_or_a_typed_error(old: Any, delta: Any) -> None:
    try:
        made = MD.apply(old, delta, Budget())
    except DeltaError:
        return
    made.encode()
