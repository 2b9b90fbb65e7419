"""Frames on their own: what is one, what is refused and why, and that nothing is lost between bytes and frame."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from syncline.core import limits
from syncline.core.errors import DecodeError
from syncline.core.verdict import Reason
from syncline.protocols.sdsp.wire import (
    Checksum,
    Frame,
    Kind,
    ObjectKind,
    add_history_uri,
    check,
    decode,
    delta_frame,
    depth_of,
    encode,
    freeze_frame,
    full_frame,
    object_from_bytes,
    object_to_bytes,
    resolve,
)
from tests.protocols.sdsp.kit import json_values, texts


def refusal(attributes: dict[str, Any] | bytes) -> tuple[Reason, str]:
    """Why these attributes are no frame, and where."""
    raw = attributes if isinstance(attributes, bytes) else json.dumps(attributes).encode()
    with pytest.raises(DecodeError) as error:
        decode(raw)
    return error.value.reason, error.value.about


def outcome(raw: bytes) -> Frame | Reason:
    """The frame in `raw`, or why there is none."""
    try:
        return decode(raw)
    except DecodeError as error:
        return error.reason


def frame(**attributes: Any) -> Frame:
    return decode(json.dumps({"uid": "u", "serial": 5, **attributes}).encode())


def test_a_frame_is_told_by_the_attributes_it_has() -> None:
    assert frame(data={"a": 1}).kind is Kind.FULL
    assert frame(dataUri="https://example.org/o").kind is Kind.FULL
    assert frame(ver=2, alg="jp", delta=[]).kind is Kind.DELTA
    assert frame(ver=2, frozen=True).kind is Kind.FREEZE
    assert frame(ver=2, alg="jp", delta=[], frozen=True).kind is Kind.DELTA  # applied, then frozen


def test_null_is_an_object_and_an_absent_one_is_not() -> None:
    assert frame(data=None).data is None
    assert frame(data=None).kind is Kind.FULL
    assert frame(dataUri="https://example.org/o").data is UNSET


def test_an_absent_or_empty_ver_is_zero() -> None:
    assert frame(data=1).ver == 0
    assert frame(data=1, ver=None).ver == 0
    assert frame(data=1, ver=0).ver == 0


def test_null_for_an_optional_attribute_means_absent() -> None:
    lenient = frame(data=1, alg=None, dataUri=None, historyUri=None, checksum=None, frozen=None, **{"X-kind": None})
    assert lenient == frame(data=1)
    assert frame(data=1, meta=None).meta is None


def test_data_wins_over_its_location() -> None:
    both = frame(data=1, dataUri="https://example.org/o")
    assert both.unresolved is False
    assert both.data == 1
    assert frame(dataUri="https://example.org/o").unresolved is True


def test_the_base_is_the_serial_of_the_full_frame() -> None:
    assert frame(ver=2, alg="jp", delta=[]).base == 3


@pytest.mark.parametrize(
    ("attributes", "path"),
    [
        ({"delta": [], "alg": "jp", "ver": 1, "data": 1}, "$.delta"),
        ({"delta": [], "alg": "jp", "ver": 1, "dataUri": "x:y"}, "$.delta"),
        ({"delta": [], "ver": 1}, "$.alg"),
        ({"delta": [], "ver": 1, "alg": "crdt"}, "$.alg"),
        ({"delta": [], "ver": 1, "alg": "X-"}, "$.alg"),
        ({"delta": [], "ver": 1, "alg": "X-" + "a" * 63}, "$.alg"),
        ({"delta": [], "alg": "jp"}, "$.ver"),
        ({"frozen": True}, "$.ver"),
        ({"frozen": True, "ver": 6}, "$.ver"),
        ({"data": 1, "ver": 1}, "$.ver"),
        ({"data": 1, "frozen": True}, "$.frozen"),
        ({"dataUri": "x:y", "frozen": True}, "$.frozen"),
        ({}, "$"),
        ({"frozen": False}, "$"),
        ({"data": 1, "serial": -1}, "$.serial"),
        ({"data": 1, "serial": 2**63}, "$.serial"),
        ({"data": 1, "serial": 10**400}, "$.serial"),
        ({"data": 1, "serial": 1.0}, "$.serial"),
        ({"data": 1, "serial": "1"}, "$.serial"),
        ({"data": 1, "serial": True}, "$.serial"),
        ({"data": 1, "serial": None}, "$"),
        ({"data": 1, "uid": ""}, "$.uid"),
        ({"data": 1, "uid": "u" * 1_025}, "$.uid"),
        ({"data": 1, "uid": "a\nb"}, "$.uid"),
        ({"data": 1, "uid": 7}, "$.uid"),
        ({"data": 1, "frozen": 1}, "$.frozen"),
        ({"data": 1, "historyUri": "h" * 8_193}, "$.historyUri"),
        ({"data": 1, "checksum": {"val": "aa"}}, "$.checksum"),
        ({"data": 1, "checksum": {"val": 1, "type": "MD5"}}, "$.checksum.val"),
        ({"data": 1, "checksum": "aa"}, "$.checksum"),
        ({"data": 1, "X-kind": "yaml"}, "$.X-kind"),
        ({"data": 1, "X-kind": "text"}, "$.data"),
        ({"data": "AA==", "X-kind": "binary"}, "$.data"),
        ({"data": "AA==", "X-kind": "text", "X-encoding": "base64"}, "$.data"),
        ({"data": "AA==", "X-kind": "json", "X-encoding": "base64"}, "$.data"),
        ({"data": "A", "X-encoding": "base64"}, "$.data"),
        ({"data": "AA==\n", "X-encoding": "base64"}, "$.data"),
        ({"data": 1, "X-encoding": "base64"}, "$.data"),
        ({"data": "AA==", "X-encoding": "gzip"}, "$.X-encoding"),
        ({"frozen": True, "ver": 1, "X-encoding": "base64"}, "$.X-encoding"),
    ],
)
def test_a_forbidden_attribute_is_refused_where_it_stands(attributes: dict[str, Any], path: str) -> None:
    assert refusal({"uid": "u", "serial": 5, **attributes}) == (Reason.INVALID_FIELD, path)
    with_extra = {"X-other": 1, "uid": "u", "serial": 5, **attributes}  # the way through unknown attributes agrees
    assert refusal(with_extra) == (Reason.INVALID_FIELD, path)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b'{"uid":"u","serial":0,"data":1}x',
        b'\xef\xbb\xbf{"uid":"u","serial":0,"data":1}',
        b'{"uid":"u","serial":0,"data":NaN}',
        b'{"uid":"u","serial":0,"data":"\\ud800"}',
        b'{"uid":"u","serial":0,"data":"\xff"}',
        b'{"uid":"u","serial":0,"data":"\xed\xa0\x80"}',
    ],
)
def test_what_is_not_a_json_object_is_malformed(raw: bytes) -> None:
    assert refusal(raw)[0] is Reason.MALFORMED


def test_a_number_beyond_any_double_is_refused() -> None:
    assert refusal(b'{"uid":"u","serial":0,"data":[1e999]}')[0] is Reason.INVALID_FIELD


def test_whole_numbers_are_exact_whatever_their_size() -> None:
    assert frame(data=[2**64, -(2**70), 10**300]).data == [2**64, -(2**70), 10**300]


def test_of_duplicate_keys_the_last_one_counts() -> None:
    assert decode(b'{"uid":"a","uid":"b","serial":1,"serial":0,"data":{"x":1,"x":2}}') == decode(
        b'{"uid":"b","serial":0,"data":{"x":2}}'
    )


def test_one_and_one_point_zero_stay_what_they_are() -> None:
    assert encode(frame(data=[1, 1.0, True])) == b'{"uid":"u","serial":5,"data":[1,1.0,true]}'


def test_a_frame_may_be_as_large_as_the_limit_and_no_larger() -> None:
    empty = len(encode(full_frame("u", 0, "")))
    assert decode(encode(full_frame("u", 0, "x" * (100 - empty))), max_bytes=100).kind is Kind.FULL
    with pytest.raises(DecodeError) as error:
        decode(encode(full_frame("u", 0, "x" * (101 - empty))), max_bytes=100)
    assert error.value.reason is Reason.OVERSIZE


def nested(depth: int, inside: bytes = b"1") -> bytes:
    return b"[" * depth + inside + b"]" * depth


def test_a_frame_may_be_nested_as_deep_as_the_limit_and_no_deeper() -> None:
    deep = limits.SDSP_DEPTH_MAX - 1  # the frame itself is the first container
    wide = b',"meta":[' + b",".join([b"[]"] * 200) + b"]}"  # enough brackets to make the decoder look closely
    assert depth_of(decode(b'{"uid":"u","serial":0,"data":' + nested(deep) + wide).data) == deep
    for attribute in (b"data", b"X-unknown"):
        other = b',"data":1' if attribute != b"data" else b""
        raw = b'{"uid":"u","serial":0' + other + b',"' + attribute + b'":' + nested(deep + 1) + wide
        assert refusal(raw)[0] is Reason.TOO_COMPLEX
    assert refusal(b'{"uid":"u","serial":0,"data":' + nested(100_000) + b"}")[0] is Reason.TOO_COMPLEX


def test_unknown_attributes_are_kept_and_sent_on() -> None:
    raw = b'{"uid":"u","serial":0,"data":1,"X-route":["a",{"b":null}],"extras":3,"colour":"red"}'
    assert decode(raw).extras == {"X-route": ["a", {"b": None}], "extras": 3, "colour": "red"}
    assert encode(decode(raw)) == raw
    for name in ("extras", "\ue000extras", "data_uri"):
        for odd in ("3", '"x"', '{"a":1}', "null"):
            raw = f'{{"uid":"u","serial":0,"data":1,"{name}":{odd}}}'.encode()
            assert encode(decode(raw)) == raw


def test_adding_a_history_location_touches_nothing_else() -> None:
    raw = b'{"uid":"u","serial":0,"data":{"n":1E2},"checksum":{"val":"a","type":"b","by":"me"},"X-a": [1, 2]}'
    added = add_history_uri(raw, "https://example.org/h?a=1&b=2")
    assert added == (
        b'{"uid":"u","serial":0,"data":{"n":1E2},"checksum":{"val":"a","type":"b","by":"me"},"X-a":[1, 2],'
        b'"historyUri":"https://example.org/h?a=1&b=2"}'
    )
    assert decode(add_history_uri(added, "x:y")).history_uri == "x:y"


def test_binary_payloads_travel_as_base64_and_say_so() -> None:
    full = full_frame("u", 0, b"\x00\xff", ObjectKind.BINARY)
    assert json.loads(encode(full)) == {
        "uid": "u",
        "serial": 0,
        "data": "AP8=",
        "X-kind": "binary",
        "X-encoding": "base64",
    }
    assert decode(encode(full)) == full
    delta = delta_frame("u", 1, 1, "X-vcdiff", b"\xd6\xc3")
    assert json.loads(encode(delta))["X-encoding"] == "base64"
    assert decode(encode(delta)).delta == b"\xd6\xc3"
    assert frame(data="AP8=", **{"X-encoding": "base64"}).holds is ObjectKind.BINARY  # X-kind may be left out


def test_the_specifications_own_example_is_a_frame() -> None:
    example = decode(b'{"uid":"UID","serial":1,"ver":1,"delta":"{}","alg":"jp"}')
    assert (example.serial, example.ver, example.delta, example.alg) == (1, 1, "{}", "jp")


def test_attributes_are_written_in_a_fixed_order_and_defaults_left_out() -> None:
    made = delta_frame("u", 2, 1, "jp", [], checksum=Checksum("aa", "MD5"), meta={"m": 1}, frozen=True)
    assert encode(made) == (
        b'{"uid":"u","serial":2,"ver":1,"alg":"jp","delta":[],"checksum":{"val":"aa","type":"MD5"},'
        b'"meta":{"m":1},"frozen":true}'
    )


def test_text_that_utf8_cannot_hold_is_not_written() -> None:
    with pytest.raises(DecodeError) as error:
        encode(full_frame("u", 0, "\ud800"))
    assert error.value.reason is Reason.INVALID_FIELD


def test_a_frame_made_here_is_held_to_the_same_rules() -> None:
    check(freeze_frame("u", 1, 1))
    for bad, path in [
        (full_frame("", 0, 1), "$.uid"),
        (full_frame("a\x00", 0, 1), "$.uid"),
        (full_frame("u", -1, 1), "$.serial"),
        (freeze_frame("u", 1, 2), "$.ver"),
        (full_frame("u", 0, 1, uri="u" * 9_000), "$.data_uri"),
    ]:
        with pytest.raises(DecodeError) as error:
            check(bad)
        assert error.value.about == path


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        (ObjectKind.JSON, {"a": [1, None]}, b'{"a":[1,null]}'),
        (ObjectKind.TEXT, "Größe 😀", "Größe 😀".encode()),
        (ObjectKind.BINARY, b"\x00\xff", b"\x00\xff"),
    ],
)
def test_an_object_in_storage_comes_back_as_it_was(kind: ObjectKind, value: Any, stored: bytes) -> None:
    assert object_to_bytes(value, kind) == stored
    pointing = full_frame("u", 3, None, kind, uri="mem://1")
    assert decode(encode(pointing)) == pointing
    found = resolve(pointing, stored)
    assert found.data == value
    assert found.holds is kind
    assert decode(encode(found)) == found


@pytest.mark.parametrize(
    ("kind", "stored", "reason"),
    [
        (ObjectKind.JSON, b"{", Reason.INVALID_PAYLOAD),
        (ObjectKind.JSON, b'"\xff"', Reason.INVALID_PAYLOAD),
        (ObjectKind.JSON, nested(100_000), Reason.TOO_COMPLEX),
        (ObjectKind.JSON, nested(400), Reason.TOO_COMPLEX),
        (ObjectKind.TEXT, b"\xff", Reason.INVALID_PAYLOAD),
        (ObjectKind.BINARY, bytes(limits.SDSP_OBJECT_MAX + 1), Reason.OVERSIZE),
    ],
)
def test_what_was_stored_wrongly_is_refused(kind: ObjectKind, stored: bytes, reason: Reason) -> None:
    with pytest.raises(DecodeError) as error:
        object_from_bytes(stored, kind)
    assert error.value.reason is reason


frames = st.one_of(
    st.builds(
        full_frame, texts.map(lambda t: "u" + t.translate(dict.fromkeys(range(32), "x"))), st.just(0), json_values
    ),
    st.builds(lambda data: full_frame("u", 2**63 - 1, data, ObjectKind.BINARY), st.binary(max_size=40)),
    st.builds(lambda delta: delta_frame("u", 9, 9, "X-any", delta), st.one_of(json_values, st.binary(max_size=40))),
    st.builds(lambda meta: freeze_frame("u", 9, 1, meta=meta), json_values),
)


@given(frames, st.dictionaries(texts.map(lambda t: "X-" + t + "!"), json_values, max_size=3))
def test_a_frame_survives_the_way_through_bytes(made: Frame, extras: dict[str, Any]) -> None:
    made = msgspec.structs.replace(made, extras=extras)
    if "\x7f" not in made.uid:
        assert msgspec.json.encode(decode(encode(made))) == msgspec.json.encode(made)
        assert decode(encode(made)) == made


@settings(max_examples=300)
@given(st.one_of(st.binary(max_size=200), json_values.map(lambda v: json.dumps(v).encode())))
def test_arbitrary_bytes_give_a_frame_or_a_typed_error(raw: bytes) -> None:
    found = outcome(raw)
    assert isinstance(found, Frame) or found.about == "content"


@settings(max_examples=300)
@given(
    st.dictionaries(
        st.sampled_from([*Frame.__struct_encode_fields__, "X-a"]),
        st.one_of(json_values, st.binary(max_size=9).map(lambda b: base64.b64encode(b).decode()), st.just("base64")),
    )
)
def test_arbitrary_attributes_give_a_frame_or_a_typed_error(attributes: dict[str, Any]) -> None:
    attributes = {"uid": "u", "serial": 3, **attributes}
    found = outcome(json.dumps(attributes).encode())
    if isinstance(found, Frame):
        check(found)
        assert decode(encode(found)) == found
    else:
        assert found in (Reason.INVALID_FIELD, Reason.MALFORMED)
