"""Epochs as places: readable for times, and in the order that filters compare, whatever the text."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.core.record import SEQ_MAX
from syncline.formats.flatbuffers import Kind
from syncline.protocols.sds import filters
from syncline.protocols.sds.catalogue import standard
from syncline.protocols.sds.epochs import EPOCH_FIELDS, epoch_of, place
from syncline.protocols.sds.wire import Filter

TIMES = st.datetimes().map(lambda moment: moment.isoformat())
TEXTS = st.one_of(
    TIMES,
    st.builds(lambda text, cut: text[:cut], TIMES, st.integers(0, 26)),
    st.builds(lambda text, cut, more: text[:cut] + more, TIMES, st.integers(0, 19), st.text(max_size=3)),
    st.text(alphabet="0129-T:. Zz", max_size=21),
    st.text(max_size=5),
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-03-01T12:34:56", 20260301123456),
        ("2026-03-01T12:34:56.789Z", 20260301123456),
        ("2026-03-01", 20260301000000),
        ("2026", 20260000000000),
        ("2026-060T12:34:56", 20260699999999),
        ("2026-03-01 12:34:56", 20260301000000),
        ("", 0),
        ("yesterday", 99999999999999),
        (2461100.5, 2461100),
        (-3.0, 0),
        (math.inf, SEQ_MAX),
        (math.nan, None),
        (None, None),
    ],
)
def test_a_place_is_the_digits_of_a_time_or_the_whole_part_of_a_number(value: Any, expected: int | None) -> None:
    assert place(value) == expected


@given(TEXTS, TEXTS)
def test_texts_in_order_have_places_in_order(one: str, other: str) -> None:
    low, high = sorted([one, other])
    assert place(low) <= place(high)  # type: ignore[operator]


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_numbers_in_order_have_places_in_order(one: float, other: float) -> None:
    low, high = sorted([one, other])
    assert place(low) <= place(high)  # type: ignore[operator]


@given(TEXTS, TEXTS, st.sampled_from(filters.OPERATORS))
def test_whatever_a_filter_finds_lies_within_its_bounds(epoch: str, value: str, operator: str) -> None:
    listed = operator in ("in", "notIn")
    text = filters.value_text([value, epoch[:9]]) if listed else value
    condition = filters.compiled(Filter(field="EPOCH", operator=operator, value=text), standard("OMM").schema)
    low, high = (place(bound) for bound in condition.bounds.get("EPOCH", (None, None)))
    where = place(epoch)
    assert where is not None
    if condition.holds({"EPOCH": epoch}):
        assert (low or 0) <= where <= (SEQ_MAX if high is None else high)


def test_bounds_of_all_and_filters_are_met_and_those_of_or_filters_are_not() -> None:
    after, before = (
        Filter(field="EPOCH", operator="gt", value="2026"),
        Filter(field="EPOCH", operator="lt", value="2027"),
    )
    earlier = Filter(field="EPOCH", operator="lte", value="2026-05")
    schema = standard("OMM").schema
    both = filters.compiled(Filter(and_filters=(after, before, earlier)), schema)
    assert both.bounds == {"EPOCH": ("2026", "2026-05")}
    assert filters.compiled(Filter(and_filters=(after,), or_filters=(before, earlier)), schema).bounds == {
        "EPOCH": ("2026", None)
    }


@pytest.mark.parametrize("schema", EPOCH_FIELDS)
def test_every_epoch_field_is_a_text_or_a_number_of_its_schema(schema: str) -> None:
    [field] = standard(schema).schema.at(EPOCH_FIELDS[schema])
    assert field.kind in (Kind.STRING, Kind.SCALAR)


def test_a_number_that_is_left_out_is_its_default_and_a_text_is_nowhere() -> None:
    assert epoch_of("MPE", {"ENTITY_ID": "x"}) == 0
    assert epoch_of("OMM", {"OBJECT_NAME": "x"}) is None
    assert epoch_of("EPM", {"DN": "x"}) is None
