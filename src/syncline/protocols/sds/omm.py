"""Orbit mean-elements in the forms catalogues publish them: CCSDS keywords as JSON or CSV, and two-line elements.

Reads any of them into payload fields of the OMM schema, and writes those back. Two-line elements go through the `sgp4`
package. Encoding payloads and publishing them is done elsewhere.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final

import msgspec

from syncline.core.errors import DecodeError, MissingError, UsageError
from syncline.formats.flatbuffers import Field, Kind
from syncline.protocols.sds.catalogue import standard
from syncline.protocols.sds.rules import parse_time

Payload = dict[str, Any]

# CCSDS 502.0-B has other words for three fields of the schema, and other spellings of some values.
KEYWORDS: Final = {
    "REF_FRAME": "REFERENCE_FRAME",
    "REF_FRAME_EPOCH": "REFERENCE_FRAME_EPOCH",
    "COV_REF_FRAME": "COV_REFERENCE_FRAME",
}
_SPELLINGS: Final = {
    "EME2000": "J2000",
    "ITRF-97": "ITRF97",
    "ITRF-93": "ITRF93",
    "SGP/SGP4": "SGP4",
    "SGP4-XP": "SGP4XP",
}
_KEYWORD_OF: Final = {field: keyword for keyword, field in KEYWORDS.items()}
_SPELLING_OF: Final = {"J2000": "EME2000", "ITRF97": "ITRF-97", "ITRF93": "ITRF-93", "SGP4XP": "SGP4-XP"}
CSV_COLUMNS: Final = (
    "OBJECT_NAME", "OBJECT_ID", "EPOCH", "MEAN_MOTION", "ECCENTRICITY", "INCLINATION", "RA_OF_ASC_NODE",
    "ARG_OF_PERICENTER", "MEAN_ANOMALY", "EPHEMERIS_TYPE", "CLASSIFICATION_TYPE", "NORAD_CAT_ID", "ELEMENT_SET_NO",
    "REV_AT_EPOCH", "BSTAR", "MEAN_MOTION_DOT", "MEAN_MOTION_DDOT",
)  # fmt: skip
# Decimal places a two-line element has; its exponents have five digits.
_PLACES: Final = {
    "MEAN_MOTION": 8, "ECCENTRICITY": 7, "INCLINATION": 4, "RA_OF_ASC_NODE": 4, "ARG_OF_PERICENTER": 4,
    "MEAN_ANOMALY": 4, "MEAN_MOTION_DOT": 8,
}  # fmt: skip
_DIGITS: Final = ("BSTAR", "MEAN_MOTION_DDOT")
_TLE_LENGTH: Final = 69


def read(text: str) -> list[Payload]:
    """Messages in any of the forms, told apart by how they begin."""
    start = text.lstrip("\ufeff \t\r\n")
    if not start:
        raise UsageError("there are no mean elements in an empty file")
    if start[0] in "[{":
        return from_json(start)
    if _is_tle(start):
        return from_tle(start)
    return from_csv(start)


def from_json(text: str | bytes) -> list[Payload]:
    """One message, a list of them, or one on each line."""
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        try:
            found = msgspec.json.Decoder().decode_lines(text)
        except msgspec.DecodeError:
            raise UsageError(f"not JSON: {error}") from None
    messages = found if isinstance(found, list) else [found]
    return [from_keywords(message) for message in messages]


def from_csv(text: str) -> list[Payload]:
    """Messages under a line of keywords."""
    try:
        rows = list(csv.DictReader(io.StringIO(text), strict=True))
    except csv.Error as error:
        raise UsageError(f"not CSV: {error}") from None
    if not rows:
        raise UsageError("there are no mean elements under the first line")
    return [from_keywords(row) for row in rows]


def from_keywords(message: Any) -> Payload:
    """One message with CCSDS keywords, or the schema's names, and values as numbers or text."""
    if not isinstance(message, Mapping):
        raise UsageError(f"a message is an object of keywords, not {type(message).__name__}")
    fields = {field.name: field for field in standard("OMM").schema.root.fields}
    payload: Payload = {}
    for keyword, value in message.items():
        name = KEYWORDS.get(keyword, keyword)
        if name not in fields:
            raise UsageError(f"OMM has no keyword {str(keyword)[:80]!r}", about=str(keyword)[:80])
        if value is not None and value != "":
            payload[name] = _value(fields[name], value)
    return payload


def to_keywords(payload: Payload) -> dict[str, Any]:
    """A payload with CCSDS keywords and spellings; numbers that are not finite have none and are left out."""
    message: dict[str, Any] = {}
    for name, value in payload.items():
        if isinstance(value, float):
            if not math.isfinite(value):
                continue
            value = int(value) if name == "REV_AT_EPOCH" and value.is_integer() else value
        elif name == "EPHEMERIS_TYPE":
            value = _tle_type(value)
        elif isinstance(value, str):
            value = _SPELLING_OF.get(value, value)
        message[_KEYWORD_OF.get(name, name)] = value
    return message


def to_json(payloads: Iterable[Payload]) -> str:
    """A JSON array of messages."""
    return msgspec.json.format(msgspec.json.encode([to_keywords(each) for each in payloads]), indent=1).decode() + "\n"


def to_csv(payloads: Iterable[Payload]) -> str:
    """The seventeen columns catalogues publish; other fields have no place there."""
    out = io.StringIO()
    writer = csv.DictWriter(out, CSV_COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({"EPHEMERIS_TYPE": 0, **to_keywords(each)} for each in payloads)
    return out.getvalue()


def from_tle(text: str) -> list[Payload]:
    """Two-line elements, each with or without a line for the name."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    found, name, at = [], "", 0
    while at < len(lines):
        if not lines[at].startswith("1 "):
            name, at = lines[at].removeprefix("0 ").strip(), at + 1
            continue
        if at + 1 >= len(lines) or not lines[at + 1].startswith("2 "):
            raise UsageError("line 1 of two-line elements is not followed by line 2", about=lines[at][:24])
        found.append(_from_lines(lines[at], lines[at + 1], name))
        name, at = "", at + 2
    if not found:
        raise UsageError("there are no two-line elements here")
    return found


def to_tle(payloads: Iterable[Payload]) -> str:
    """Three lines each: the name, then the elements."""
    return "".join(
        f"{payload.get('OBJECT_NAME', '')}\n{one}\n{two}\n" for payload in payloads for one, two in [_lines(payload)]
    )


def _from_lines(one: str, two: str, name: str) -> Payload:
    api, exporter, _ = _sgp4()
    one, two = one[:_TLE_LENGTH], two[:_TLE_LENGTH]
    for line in (one, two):
        if not line.isascii() or len(line) < _TLE_LENGTH - 1 or line[2:7] != one[2:7]:
            raise UsageError(
                "not two-line elements: a line is cut short, or the two do not belong together", about=line[:24]
            )
        if len(line) == _TLE_LENGTH and line[-1] != str(_checksum(line)):
            raise UsageError("the checksum of a line of two-line elements is wrong", about=line[:24])
    try:
        satellite = api.Satrec.twoline2rv(one, two)
        designator = satellite.intldesg.strip()
        satellite.intldesg = designator or "00000"  # export_omm cannot do without one
        elements = exporter.export_omm(satellite, name or f"CATALOG {one[2:7]}")
        elements["EPOCH"] = _tle_epoch(one[18:32])
    except (ValueError, ArithmeticError, IndexError) as error:
        raise UsageError(f"not two-line elements: {error}", about=one[:24]) from None
    for keyword, places in _PLACES.items():
        elements[keyword] = round(elements[keyword], places)
    for keyword in _DIGITS:
        elements[keyword] = float(f"{elements[keyword]:.4e}")
    if not designator:
        del elements["OBJECT_ID"]
    return {"CCSDS_OMM_VERS": 2.0, **from_keywords(elements)}


def _tle_epoch(text: str) -> str:
    """The time of `YYDDD.DDDDDDDD`. Eight places of a day are whole multiples of 864 microseconds."""
    year = int(text[:2])
    start = datetime(year + (1900 if year >= 57 else 2000), 1, 1, tzinfo=UTC)
    moment = start + timedelta(microseconds=int((Decimal(text[2:]) - 1) * 86_400_000_000))
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}"


def _lines(payload: Payload) -> Sequence[str]:
    api, exporter, omm = _sgp4()
    defaults = {
        "CLASSIFICATION_TYPE": "U", "OBJECT_ID": "", "EPHEMERIS_TYPE": 0, "ELEMENT_SET_NO": 0, "REV_AT_EPOCH": 0,
        "BSTAR": 0, "MEAN_MOTION_DOT": 0, "MEAN_MOTION_DDOT": 0, "ECCENTRICITY": 0, "INCLINATION": 0,
        "RA_OF_ASC_NODE": 0, "ARG_OF_PERICENTER": 0, "MEAN_ANOMALY": 0,
    }  # fmt: skip
    about = str(payload.get("OBJECT_NAME") or payload.get("NORAD_CAT_ID", ""))
    if "EPOCH" not in payload or "MEAN_MOTION" not in payload or "NORAD_CAT_ID" not in payload:
        raise UsageError("two-line elements need EPOCH, MEAN_MOTION and NORAD_CAT_ID", about=about)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=_epoch(payload["EPOCH"]))
    fields = {**defaults, **to_keywords(payload), "EPOCH": f"{moment:%Y-%m-%dT%H:%M:%S.%f}"}
    satellite = api.Satrec()
    try:
        omm.initialize(satellite, fields)
        one, two = exporter.export_tle(satellite)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"two-line elements cannot say this: {error}", about=about) from None
    if len(one) != _TLE_LENGTH or len(two) != _TLE_LENGTH:
        raise UsageError("two-line elements cannot say this: a number is too long", about=about)
    return one, two


def _epoch(text: str) -> int:
    try:
        return parse_time(text, "EPOCH")
    except DecodeError as error:
        raise UsageError(str(error)) from None


def _value(field: Field, value: Any) -> Any:
    """A keyword's value as the schema has it."""
    if field.kind is Kind.STRING:
        return str(value)
    if field.kind is Kind.ENUM:
        return _enum(field, value)
    assert field.scalar is not None
    try:
        number = float(value)
        if field.scalar.is_float:
            return number
        if not number.is_integer():
            raise ValueError
        return int(value) if isinstance(value, int | str) and not isinstance(value, bool) else int(number)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"{str(value)[:80]!r} is no number", about=field.name) from None


def _enum(field: Field, value: Any) -> str:
    names = [name for name, _ in standard("OMM").schema.values_of(field)]
    text = str(value).strip()
    if field.name == "EPHEMERIS_TYPE" and text.isdigit():
        # A two-line element's type counts from 1 and says 0 for the usual one; the schema counts from 0.
        number = int(text)
        text = "SGP4" if number == 0 else names[number - 1] if number <= len(names) else text
    text = _SPELLINGS.get(text.upper(), text)
    if text not in names:
        raise UsageError(
            f"{field.type} has no value {text[:80]!r}", hint=f"it has {', '.join(names)}", about=field.name
        )
    return text


def _tle_type(name: str) -> int:
    numbers = dict(standard("OMM").schema.enums["ephemerisType"].values)
    return 0 if name == "SGP4" else numbers[name] + 1


def _is_tle(text: str) -> bool:
    lines = [line for line in text.splitlines()[:20] if line.strip() and not line.startswith("#")]
    return any(one.startswith("1 ") and two.startswith("2 ") for one, two in pairwise(lines))


def _checksum(line: str) -> int:
    return sum(int(each) if each.isdigit() else each == "-" for each in line[:68]) % 10


def _sgp4() -> tuple[Any, Any, Any]:
    try:
        from sgp4 import api, exporter, omm
    except ImportError:
        raise MissingError("two-line elements need the package sgp4", hint="pip install 'syncline[sds]'") from None
    return api, exporter, omm
