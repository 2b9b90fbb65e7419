"""Filters: every operator on every type, trees, borders, and what is refused by name."""

from __future__ import annotations

import math
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.core.errors import DecodeError
from syncline.core.verdict import Reason
from syncline.protocols.sds import columns, filters
from syncline.protocols.sds.catalogue import standard
from syncline.protocols.sds.wire import Filter

OMM = standard("OMM").schema
ISS = {
    "OBJECT_NAME": "ISS (ZARYA)",
    "NORAD_CAT_ID": 25544,
    "MEAN_MOTION": 15.5,
    "EPOCH": "2026-02-28T21:14:07.123456",
    "REFERENCE_FRAME": "GCRF",
}


def row(payload: dict[str, Any], schema: str = "OMM") -> dict[str, Any]:
    """A payload as the columns have it."""
    data = standard(schema).writer.encode(payload)
    found: dict[str, Any] = columns.payload_columns(schema, pa.array([data])).batch.to_pylist()[0]
    return found


def says(field: str, operator: str, value: str, payload: dict[str, Any] | None = None, schema: str = "OMM") -> bool:
    condition = filters.compiled(Filter(field=field, operator=operator, value=value), standard(schema).schema)
    full = row(ISS if payload is None else payload, schema)
    return condition.holds({name: full[name] for name in condition.columns})


@pytest.mark.parametrize(
    ("field", "operator", "value", "expected"),
    [
        ("NORAD_CAT_ID", "eq", "25544", True),
        ("NORAD_CAT_ID", "eq", "25545", False),
        ("NORAD_CAT_ID", "ne", "25545", True),
        ("NORAD_CAT_ID", "gt", "3", True),  # as a number: as text "25544" < "3"
        ("NORAD_CAT_ID", "lt", "100000", True),
        ("NORAD_CAT_ID", "gte", "25544", True),
        ("NORAD_CAT_ID", "lte", "25543", False),
        ("NORAD_CAT_ID", "gt", "25543.5", True),
        ("NORAD_CAT_ID", "in", "1,2,25544", True),
        ("NORAD_CAT_ID", "in", "[1, 2]", False),
        ("NORAD_CAT_ID", "notIn", "[1, 2]", True),
        ("MEAN_MOTION", "gt", "15", True),
        ("MEAN_MOTION", "eq", "15.50", True),
        ("MEAN_MOTION", "lt", "1e1", False),
        ("OBJECT_NAME", "eq", "ISS (ZARYA)", True),
        ("OBJECT_NAME", "contains", "ZARYA", True),
        ("OBJECT_NAME", "startsWith", "ISS", True),
        ("OBJECT_NAME", "endsWith", "ISS", False),
        ("OBJECT_NAME", "gt", "ISR", True),
        ("OBJECT_NAME", "in", '["A, B", "ISS (ZARYA)"]', True),
        ("EPOCH", "gte", "2026-02-28", True),
        ("EPOCH", "lt", "2026-02-28", False),
        ("REFERENCE_FRAME", "eq", "GCRF", True),
        ("REFERENCE_FRAME", "eq", "8", True),
        ("REFERENCE_FRAME", "in", "TEME,GCRF", True),
        ("TIME_SYSTEM", "eq", "UTC", True),  # absent: the schema's default
        ("CCSDS_OMM_VERS", "eq", "0", True),
        ("ORIGINATOR", "eq", "", False),  # absent text has no value
        ("ORIGINATOR", "ne", "X", True),
        ("ORIGINATOR", "notIn", "X,Y", True),
        ("ORIGINATOR", "in", "X,Y", False),
        ("ORIGINATOR", "contains", "", False),
        ("ORIGINATOR", "lt", "X", False),
    ],
)
def test_every_operator_compares_by_the_fields_type(field: str, operator: str, value: str, *, expected: bool) -> None:
    assert says(field, operator, value) is expected


def test_a_field_inside_tables_is_named_with_dots() -> None:
    cdm = {"OBJECT1": {"OBJECT": {"NORAD_CAT_ID": 5, "MANEUVERABLE": True}}}
    assert says("OBJECT1.OBJECT.NORAD_CAT_ID", "eq", "5", cdm, "CDM")
    assert says("OBJECT1.OBJECT.MANEUVERABLE", "eq", "true", cdm, "CDM")
    assert not says("OBJECT2.OBJECT.NORAD_CAT_ID", "eq", "0", cdm, "CDM")  # no object: no value, not even a default
    assert says("OBJECT2.OBJECT.NORAD_CAT_ID", "ne", "0", cdm, "CDM")


def test_contains_on_a_vector_asks_for_an_element() -> None:
    assert says("CAT_IDS", "contains", "25544", {"CAT_IDS": ["1", "25544"]}, "HYP")
    assert not says("CAT_IDS", "contains", "2554", {"CAT_IDS": ["1", "25544"]}, "HYP")
    assert not says("CAT_IDS", "contains", "1", {}, "HYP")


def test_a_number_of_32_bits_equals_its_own_text() -> None:
    stored = struct.unpack("<f", struct.pack("<f", 0.1))[0]
    assert stored != 0.1
    assert says("CORR_QUALITY", "eq", "0.1", {"CORR_QUALITY": stored}, "EOO")


def test_what_is_not_a_number_compares_with_nothing() -> None:
    payload = {"MASS": math.nan}
    assert [says("MASS", name, "0", payload) for name in ("eq", "gt", "lt", "gte", "lte", "ne")] == [
        False, False, False, False, False, True,
    ]  # fmt: skip


def test_all_of_the_and_filters_and_one_of_the_or_filters_must_hold() -> None:
    name = Filter(field="OBJECT_NAME", operator="startsWith", value="ISS")
    fast = Filter(field="MEAN_MOTION", operator="gt", value="15")
    slow = Filter(field="MEAN_MOTION", operator="lt", value="2")

    def holds(**parts: Any) -> bool:
        return filters.compiled(Filter(**parts), OMM).holds(row(ISS))

    assert holds(and_filters=(name, fast))
    assert not holds(and_filters=(name, slow))
    assert holds(or_filters=(slow, fast))
    assert not holds(or_filters=(slow,))
    assert holds(field="NORAD_CAT_ID", operator="eq", value="25544", and_filters=(name,), or_filters=(slow, fast))
    assert not holds(field="NORAD_CAT_ID", operator="eq", value="1", or_filters=(fast,))


def test_without_a_filter_everything_holds() -> None:
    assert filters.compiled(None, OMM).holds({})


def test_what_must_be_equal_can_be_looked_up_in_an_index() -> None:
    number = Filter(field="NORAD_CAT_ID", operator="eq", value="25544")
    other = Filter(field="OBJECT_NAME", operator="ne", value="x")
    assert filters.compiled(number, OMM).equal == {"NORAD_CAT_ID": 25544}
    as_float = Filter(field="NORAD_CAT_ID", operator="eq", value="25544.0")
    assert repr(filters.compiled(as_float, OMM).equal) == "{'NORAD_CAT_ID': 25544}"
    assert filters.compiled(Filter(and_filters=(other, number)), OMM).equal == {"NORAD_CAT_ID": 25544}
    assert filters.compiled(Filter(or_filters=(other, number)), OMM).equal == {}


@pytest.mark.parametrize(
    ("field", "operator", "value", "complaint"),
    [
        ("WINGS", "eq", "1", "OMM has no field 'WINGS'"),
        ("NORAD_CAT_ID.X", "eq", "1", "no field"),
        ("", "eq", "1", "no field ''"),
        ("NORAD_CAT_ID", "like", "1", "no operator 'like'"),
        ("NORAD_CAT_ID", "", "1", "no operator ''"),
        ("NORAD_CAT_ID", "eq", "many", "'many' is no number"),
        ("NORAD_CAT_ID", "eq", "nan", "is no number"),
        ("NORAD_CAT_ID", "eq", "9" * 65, "is no number"),
        ("NORAD_CAT_ID", "eq", "", "is no number"),
        ("NORAD_CAT_ID", "contains", "5", "contains needs text"),
        ("MEAN_MOTION", "gt", "fast", "is no number"),
        ("REFERENCE_FRAME", "eq", "MOON", "'MOON' is no value of REFERENCE_FRAME"),
        ("REFERENCE_FRAME", "eq", "99", "is no value"),
        ("NORAD_CAT_ID", "in", "[1", "JSON array"),
        ("NORAD_CAT_ID", "in", "[[1]]", "a list holds"),
        ("NORAD_CAT_ID", "in", ",".join(map(str, range(257))), "257 values, 256 are allowed"),
    ],
)
def test_what_cannot_be_compared_is_refused_by_name(field: str, operator: str, value: str, complaint: str) -> None:
    with pytest.raises(DecodeError, match=complaint):
        says(field, operator, value)


@pytest.mark.parametrize(
    ("schema", "field", "operator"), [("CDM", "OBJECT1", "eq"), ("HYP", "CAT_IDS", "eq"), ("HYP", "SCORE", "contains")]
)
def test_tables_and_vectors_are_not_compared(schema: str, field: str, operator: str) -> None:
    with pytest.raises(DecodeError, match=r"not compared|does not apply"):
        says(field, operator, "1", {}, schema)


def test_a_filter_without_a_condition_is_refused() -> None:
    with pytest.raises(DecodeError, match="without a condition"):
        filters.compiled(Filter(and_filters=(Filter(),)), OMM)


def nested(depth: int) -> Filter:
    made = Filter(field="NORAD_CAT_ID", operator="gt", value="1")
    for _ in range(depth - 1):
        made = Filter(and_filters=(made,))
    return made


def test_filters_nest_eight_deep_and_no_deeper() -> None:
    assert filters.compiled(nested(8), OMM).holds(row(ISS))
    with pytest.raises(DecodeError, match="8 deep") as caught:
        filters.compiled(nested(9), OMM)
    assert caught.value.reason is Reason.TOO_COMPLEX


def test_a_filter_has_at_most_64_conditions() -> None:
    one = nested(1)
    assert filters.compiled(Filter(and_filters=(one,) * 63), OMM).holds(row(ISS))
    with pytest.raises(DecodeError, match="65 conditions, 64 are allowed"):
        filters.compiled(Filter(and_filters=(one,) * 64), OMM)


@given(st.text(max_size=30), st.sampled_from(filters.OPERATORS), st.sampled_from([f.name for f in OMM.root.fields]))
def test_any_text_as_a_value_gives_an_answer_or_a_decode_error(value: str, operator: str, field: str) -> None:
    try:
        found = says(field, operator, value)
    except DecodeError:
        return
    assert found in (True, False)


def test_payloads_sort_by_a_field_with_nothing_first_and_nan_last() -> None:
    masses = [row(each)["MASS"] for each in ({"MASS": 3.0}, {"MASS": math.nan}, {}, {"MASS": -1.0})]
    mass = filters.sort_key(OMM, "MASS")
    ordered = sorted(masses, key=lambda each: mass({"MASS": each}))
    assert (ordered[:3], math.isnan(ordered[3])) == ([-1.0, 0.0, 3.0], True)  # absent is 0, its default
    name = filters.sort_key(OMM, "OBJECT_NAME")
    assert sorted(["b", None, "a"], key=lambda each: name({"OBJECT_NAME": each})) == [None, "a", "b"]


def test_a_table_has_no_order() -> None:
    with pytest.raises(DecodeError, match="which has no order"):
        filters.sort_key(standard("CDM").schema, "OBJECT1")


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (None, None),
        ({}, None),
        ({"A": 5}, Filter(field="A", operator="eq", value="5")),
        ({"A": True}, Filter(field="A", operator="eq", value="true")),
        ({"A": 0.1}, Filter(field="A", operator="eq", value="0.1")),
        ({"A": ["x", 2]}, Filter(field="A", operator="in", value='["x", "2"]')),
        (
            {"A": {"gte": 1, "lt": 3}},
            Filter(
                and_filters=(
                    Filter(field="A", operator="gte", value="1"),
                    Filter(field="A", operator="lt", value="3"),
                )
            ),
        ),
    ],
)
def test_plain_terms_become_a_filter(where: dict[str, Any] | None, expected: Filter | None) -> None:
    assert filters.from_where(where) == expected
