"""Checksums and canonical JSON, beside the vectors; against ECMAScript itself in tests/interop/sdsp."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from syncline.core.errors import UsageError
from syncline.protocols.sdsp import checksums
from syncline.protocols.sdsp.checksums import checksum_of, jcs, matches, number
from syncline.protocols.sdsp.wire import Checksum, ObjectKind
from tests.protocols.sdsp.kit import json_values


def crc32(content: bytes) -> str:
    return f"{zlib.crc32(content):08x}"


@pytest.mark.parametrize(
    ("value", "text"),
    [  # RFC 8785, appendix B
        (0.0, "0"),
        (-0.0, "0"),
        (5e-324, "5e-324"),
        (-5e-324, "-5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (9007199254740992.0, "9007199254740992"),
        (-9007199254740992.0, "-9007199254740992"),
        (295147905179352830000.0, "295147905179352830000"),
        (9.999999999999997e22, "9.999999999999997e+22"),
        (1e23, "1e+23"),
        (1.0000000000000001e23, "1.0000000000000001e+23"),
        (999999999999999700000.0, "999999999999999700000"),
        (999999999999999900000.0, "999999999999999900000"),
        (1e21, "1e+21"),
        (9.999999999999997e-7, "9.999999999999997e-7"),
        (0.000001, "0.000001"),
        (333333333.3333332, "333333333.3333332"),
        (333333333.33333325, "333333333.33333325"),
        (1424953923781206.2, "1424953923781206.2"),
    ],
)
def test_numbers_are_written_as_the_rfc_shows(value: float, text: str) -> None:
    assert number(value) == text
    assert jcs([value]) == f"[{text}]".encode()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_there_is_no_text_for_what_json_cannot_write(value: float) -> None:
    with pytest.raises(UsageError):
        number(value)


def test_whole_numbers_beyond_double_precision_are_rounded_as_ecmascript_does() -> None:
    assert (
        jcs([2**53 + 1, 2**64, 123456789012345678901])
        == b"[9007199254740992,18446744073709552000,123456789012345680000]"
    )
    with pytest.raises(UsageError):
        jcs([10**400])


def test_members_are_sorted_by_utf16_code_units() -> None:
    assert jcs({"\ufb33": 1, "😀": 2, "a": 3}) == '{"a":3,"😀":2,"\ufb33":1}'.encode()


def slowly(value: Any) -> bytes:
    parts: list[str] = []
    checksums._write(value, parts.append)
    return "".join(parts).encode()


@settings(max_examples=400)
@given(json_values)
@example({"a": [1.0, 1e-7, 1e21, 0.1, -0.0, 2**60, "1.0", "1e5", "é😀", "\x7f\u2028\\"]})
@example({"x": 1.5, "y": 0.00001, "z": 0.0000012345, "w": 123456789.125})
def test_the_fast_way_writes_what_the_thorough_way_writes(value: Any) -> None:
    try:
        expected = slowly(value)
    except UsageError:
        with pytest.raises(UsageError):
            jcs(value)
    else:
        assert jcs(value) == expected


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_double_is_read_back_as_itself(value: float) -> None:
    assert float(number(value)) == value
    assert jcs([value]) == slowly([value])


@pytest.mark.parametrize(
    ("value", "kind", "type", "val"),
    [
        ({"b": 1, "a": 2.0}, ObjectKind.JSON, "utf-8/CRC32", crc32(b'{"a":2,"b":1}')),
        ({"b": 1, "a": 2.0}, ObjectKind.JSON, "jcs/CRC32", crc32(b'{"a":2,"b":1}')),
        ({"b": 1, "a": 2.0}, ObjectKind.JSON, "CRC32", crc32(b'{"a":2,"b":1}')),
        ("é", ObjectKind.TEXT, "utf-8/CRC32", crc32("é".encode())),
        ("é", ObjectKind.TEXT, "raw/CRC32", crc32("é".encode())),
        ("é", ObjectKind.TEXT, "CRC32", crc32("é".encode())),
        ("é", ObjectKind.TEXT, "jcs/CRC32", crc32('"é"'.encode())),
        ("é", ObjectKind.JSON, "utf-8/CRC32", crc32('"é"'.encode())),
        (b"\xff", ObjectKind.BINARY, "raw/CRC32", crc32(b"\xff")),
        (b"\xff", ObjectKind.BINARY, "CRC32", crc32(b"\xff")),
        ({}, ObjectKind.JSON, "utf-8/SHA-1", "bf21a9e8fbc5a3846fb05b4fa0859e0917b2202f"),
        ({}, ObjectKind.JSON, "utf-8/md5", "99914b932bd37a50b983c5e7c90ae93b"),
    ],
)
def test_what_is_hashed_depends_on_the_kind_of_object(value: Any, kind: ObjectKind, type: str, val: str) -> None:
    assert checksum_of(value, kind, type) == Checksum(val, type)
    assert matches(value, kind, Checksum(val, type)) is True
    assert matches(value, kind, Checksum(val.upper(), type)) is True
    assert matches(value, kind, Checksum("00" + val, type)) is False


@pytest.mark.parametrize(
    ("value", "kind", "type"),
    [
        ({}, ObjectKind.JSON, "SHA-3"),
        ({}, ObjectKind.JSON, "raw/MD5"),
        ({}, ObjectKind.JSON, "cbor/MD5"),
        ({}, ObjectKind.JSON, ""),
        (b"", ObjectKind.BINARY, "utf-8/MD5"),
        ([10**400], ObjectKind.JSON, "utf-8/MD5"),
    ],
)
def test_a_checksum_nobody_here_can_compute_says_nothing(value: Any, kind: ObjectKind, type: str) -> None:
    assert matches(value, kind, Checksum("aa", type)) is None
    with pytest.raises(UsageError):
        checksum_of(value, kind, type)


def test_a_checksum_value_of_any_text_is_compared_without_harm() -> None:
    assert matches({}, ObjectKind.JSON, Checksum("é😀", "MD5")) is False
    assert matches({}, ObjectKind.JSON, Checksum("", "MD5")) is False
