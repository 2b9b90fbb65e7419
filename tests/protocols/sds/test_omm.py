"""Mean elements in and out: JSON, CSV and two-line elements all say the same, and what they cannot say is refused."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sgp4.api import Satrec

from syncline.core.errors import UsageError
from syncline.protocols.sds import omm
from syncline.protocols.sds.catalogue import standard

DATA = Path(__file__).parent / "data"
ISS = """ISS (ZARYA)
1 25544U 98067A   26059.88480467  .00009876  00000-0  18231-3 0  9995
2 25544  51.6405 211.2001 0004821 117.9923 242.1398 15.50103472501235
"""


def historic() -> list[dict[str, Any]]:
    return omm.read((DATA / "omm-historic.json").read_text())


def verification_set() -> list[dict[str, Any]]:
    """The file the sample data was made from, as the sgp4 package ships it; repeated objects once.

    Some of its lines were changed by hand and have wrong checksums, so it is read without them.
    """
    lines = [
        line[:68] for line in (files("sgp4") / "SGP4-VER.TLE").read_text().splitlines() if line[:2] in ("1 ", "2 ")
    ]
    return list({each["NORAD_CAT_ID"]: each for each in reversed(omm.read("\n".join(lines)))}.values())


def test_every_form_of_the_sample_data_says_the_same() -> None:
    from_json, from_csv = historic(), omm.read((DATA / "omm-historic.csv").read_text())
    assert len(from_json) == 32
    for one, other in zip(from_json, from_csv, strict=True):
        assert {name: one[name] for name in other} == other


def test_two_line_elements_give_the_elements_of_the_sample_data() -> None:
    elements = {each["NORAD_CAT_ID"]: each for each in verification_set()}
    for expected in historic():
        found = elements[expected["NORAD_CAT_ID"]]
        for name in ("EPOCH", "MEAN_MOTION", "ECCENTRICITY", "INCLINATION", "MEAN_ANOMALY", "BSTAR", "MEAN_MOTION_DOT"):
            assert found[name] == expected[name], (expected["NORAD_CAT_ID"], name)


def test_a_payload_of_every_sample_comes_back_through_its_flatbuffer() -> None:
    known = standard("OMM")
    for payload in historic():
        again = known.reader.decode(known.writer.encode(payload))
        assert {**payload, **again} == payload
        assert {name: value for name, value in payload.items() if name not in again} == _defaults(payload, again)


def _defaults(payload: dict[str, Any], again: dict[str, Any]) -> dict[str, Any]:
    """What a writer leaves out because the schema says it anyway."""
    schema, left = standard("OMM").schema, {}
    for field in schema.root.fields:
        if field.name in payload and field.name not in again:
            names = {number: name for name, number in schema.values_of(field)} if field.type else {}
            left[field.name] = names.get(field.default, field.default)  # type: ignore[arg-type]
    return left


def test_json_csv_and_lines_come_back_as_they_were() -> None:
    payloads = historic()
    assert omm.read(omm.to_json(payloads)) == payloads
    for one, other in zip(payloads, omm.read(omm.to_csv(payloads)), strict=True):
        assert {name: one[name] for name in other} == other
    lines = omm.to_tle(payloads)
    assert omm.to_tle(omm.read(lines)) == lines


def test_the_lines_written_fly_the_same_orbit() -> None:
    for payload in historic()[:10]:
        _, one, two = omm.to_tle([payload]).splitlines()
        ours = Satrec.twoline2rv(one, two)
        error, position, _ = ours.sgp4_tsince(0.0)
        again = omm.read(f"{one}\n{two}\n")[0]
        other = Satrec.twoline2rv(*omm.to_tle([again]).splitlines()[1:])
        assert error == 0
        assert other.sgp4_tsince(0.0)[1] == pytest.approx(position, abs=1e-5)


def test_two_line_elements_are_read_digit_for_digit() -> None:
    assert omm.read(ISS) == [
        {
            "CCSDS_OMM_VERS": 2.0, "OBJECT_NAME": "ISS (ZARYA)", "OBJECT_ID": "1998-067A", "CENTER_NAME": "EARTH",
            "REFERENCE_FRAME": "TEME", "TIME_SYSTEM": "UTC", "MEAN_ELEMENT_THEORY": "SGP4",
            "EPOCH": "2026-02-28T21:14:07.123488", "MEAN_MOTION": 15.50103472, "ECCENTRICITY": 0.0004821,
            "INCLINATION": 51.6405, "RA_OF_ASC_NODE": 211.2001, "ARG_OF_PERICENTER": 117.9923,
            "MEAN_ANOMALY": 242.1398, "EPHEMERIS_TYPE": "SGP4", "CLASSIFICATION_TYPE": "U", "NORAD_CAT_ID": 25544,
            "ELEMENT_SET_NO": 999, "REV_AT_EPOCH": 50123.0, "BSTAR": 0.00018231, "MEAN_MOTION_DOT": 9.876e-05,
            "MEAN_MOTION_DDOT": 0.0,
        }
    ]  # fmt: skip
    assert omm.to_tle(omm.read(ISS)) == ISS


def test_lines_without_a_name_or_designator_are_read() -> None:
    nameless = "\n".join(ISS.splitlines()[1:])
    assert omm.read(nameless)[0]["OBJECT_NAME"] == "CATALOG 25544"
    blank = nameless.replace("98067A ", "       ").replace("9995\n", "999\n")
    assert "OBJECT_ID" not in omm.read(blank)[0]
    with_zero = ISS.replace("ISS (ZARYA)", "0 ISS (ZARYA)")
    assert omm.read(with_zero)[0]["OBJECT_NAME"] == "ISS (ZARYA)"


def test_ccsds_keywords_and_spellings_are_understood_and_written() -> None:
    message = {
        "CCSDS_OMM_VERS": "2.0",
        "REF_FRAME": "EME2000",
        "COV_REF_FRAME": "ITRF-97",
        "MEAN_ELEMENT_THEORY": "SGP/SGP4",
        "EPHEMERIS_TYPE": "0",
        "NORAD_CAT_ID": "25544",
        "REV_AT_EPOCH": 5,
        "COMMENT": "",
        "ORIGINATOR": None,
    }
    payload = omm.from_keywords(message)
    assert payload == {
        "CCSDS_OMM_VERS": 2.0,
        "REFERENCE_FRAME": "J2000",
        "COV_REFERENCE_FRAME": "ITRF97",
        "MEAN_ELEMENT_THEORY": "SGP4",
        "EPHEMERIS_TYPE": "SGP4",
        "NORAD_CAT_ID": 25544,
        "REV_AT_EPOCH": 5.0,
    }
    assert omm.to_keywords(payload) == {
        "CCSDS_OMM_VERS": 2.0,
        "REF_FRAME": "EME2000",
        "COV_REF_FRAME": "ITRF-97",
        "MEAN_ELEMENT_THEORY": "SGP4",
        "EPHEMERIS_TYPE": 0,
        "NORAD_CAT_ID": 25544,
        "REV_AT_EPOCH": 5,
    }


@pytest.mark.parametrize(
    ("number", "name"), [(0, "SGP4"), (1, "SGP"), (2, "SGP4"), (3, "SDP4"), (4, "SGP8"), (5, "SDP8")]
)
def test_the_type_of_a_two_line_element_counts_from_one(number: int, name: str) -> None:
    assert omm.from_keywords({"EPHEMERIS_TYPE": number}) == {"EPHEMERIS_TYPE": name}


def test_one_message_a_list_or_one_on_each_line_are_all_json() -> None:
    assert omm.read('{"NORAD_CAT_ID": 1}') == [{"NORAD_CAT_ID": 1}]
    assert omm.read('\ufeff [{"NORAD_CAT_ID": 1}, {}]') == [{"NORAD_CAT_ID": 1}, {}]
    assert len(omm.read((DATA / "omm-demo-updates.ndjson").read_text())) == 3


def test_numbers_that_are_not_finite_are_left_out_of_text() -> None:
    assert omm.to_keywords({"MASS": float("nan"), "GM": float("inf"), "DRAG_AREA": 1.5}) == {"DRAG_AREA": 1.5}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "empty file"),
        ("{", "not JSON"),
        ("[1]", "not int"),
        ('{"WINGS": 2}', "no keyword 'WINGS'"),
        ('{"NORAD_CAT_ID": "many"}', "'many' is no number"),
        ('{"NORAD_CAT_ID": 1.5}', "is no number"),
        ('{"MEAN_MOTION": [1]}', "is no number"),
        ('{"REF_FRAME": "MOON"}', "refFrame has no value 'MOON'"),
        ('{"EPHEMERIS_TYPE": 9}', "ephemerisType has no value '9'"),
        ("OBJECT_NAME,EPOCH\n", "under the first line"),
        ("WINGS,EPOCH\n2,3\n", "no keyword 'WINGS'"),
        (ISS.replace("9995", "9991"), "checksum"),
        (ISS.replace("\n2 25544", "\n3 25544"), "no keyword"),
        ("1 a\n2 b\n", "not two-line elements"),
        (ISS + "\n".join(ISS.splitlines()[:2]), "not followed by line 2"),
    ],
)
def test_what_is_none_of_the_forms_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        omm.read(text)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"NORAD_CAT_ID": 990001}, "cannot say this"),
        ({"INCLINATION": 200.0}, "cannot say this"),
        ({"MEAN_MOTION": 123456.0}, "too long"),
        ({"EPOCH": "soon"}, "ISO 8601"),
        ({"EPOCH": None}, "need EPOCH"),
    ],
)
def test_what_two_lines_cannot_say_is_refused(changes: dict[str, Any], complaint: str) -> None:
    payload = {name: value for name, value in {**omm.read(ISS)[0], **changes}.items() if value is not None}
    with pytest.raises(UsageError, match=complaint):
        omm.to_tle([payload])


@given(st.text(max_size=200))
def test_any_text_gives_messages_or_a_usage_error(text: str) -> None:
    try:
        found = omm.read(text)
    except UsageError:
        return
    assert isinstance(found, list)
