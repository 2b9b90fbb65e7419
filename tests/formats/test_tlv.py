"""The TLV encoding: round trips, and every way its bytes can lie."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.core.errors import DecodeError
from syncline.core.verdict import Reason
from syncline.formats import tlv


@given(st.integers(1, 0xFFFF_FFFF), st.binary(max_size=700))
def test_an_element_is_read_as_it_was_written(kind: int, value: bytes) -> None:
    wire = tlv.encode(kind, value)
    found, start, stop = tlv.read_header(wire, 0, len(wire))
    assert (found, wire[start:stop], stop) == (kind, value, len(wire))
    assert tlv.whole(wire, kind) == (start, stop)


@given(st.integers(0, tlv.NUMBER_MAX))
def test_an_integer_takes_the_fewest_octets_and_reads_back(value: int) -> None:
    wire = tlv.encode_integer(value)
    assert tlv.read_integer(wire, 0, len(wire)) == value
    assert len(wire) == next(n for n in (1, 2, 4, 8) if value < 256**n)


@pytest.mark.parametrize(
    ("wire", "what"),
    [
        ("08", "an element ends after its packet"),
        ("0801", "an element ends after its packet"),
        ("08fd", "an element ends after its packet"),
        ("08fd00", "an element ends after its packet"),
        ("fd01", "an element ends after its packet"),
        ("08ffffffffffffffffff", "an element ends after its packet"),
        ("0000", "no element has type 0"),
        ("ff000000010000000000", "no element has type 4294967296"),
        ("08fd000161", "a number is not in its shortest form"),
        ("fd000800", "a number is not in its shortest form"),
        ("08fe0000ffff", "a number is not in its shortest form"),
        ("08ff00000000ffffffff", "a number is not in its shortest form"),
    ],
)
def test_a_bad_header_is_refused(wire: str, what: str) -> None:
    with pytest.raises(DecodeError) as caught:
        tlv.read_header(bytes.fromhex(wire), 0, len(wire) // 2)
    assert caught.value.message == what
    assert caught.value.reason is Reason.MALFORMED


def test_an_element_may_not_reach_out_of_its_parent() -> None:
    wire = tlv.encode(7, tlv.encode(8, b"abc")) + b"more"
    _, start, stop = tlv.read_header(wire, 0, len(wire))
    with pytest.raises(DecodeError):
        tlv.read_header(wire, start, stop - 1)
    with pytest.raises(DecodeError):
        tlv.read_header(wire, stop, stop)


@pytest.mark.parametrize("octets", [0, 3, 5, 6, 7, 9])
def test_an_integer_of_another_length_is_refused(octets: int) -> None:
    with pytest.raises(DecodeError, match="1, 2, 4 or 8 octets"):
        tlv.read_integer(bytes(octets), 0, octets)


def test_whole_refuses_another_type_and_trailing_bytes() -> None:
    with pytest.raises(DecodeError, match="expected an element of type 8, not 7"):
        tlv.whole(b"\x07\x00", 8)
    with pytest.raises(DecodeError, match="1 bytes follow"):
        tlv.whole(b"\x08\x00\x00", 8)


@given(st.lists(st.binary(max_size=300), max_size=8), st.integers(0, 400))
def test_a_stream_is_split_into_its_complete_elements(values: list[bytes], cut: int) -> None:
    packets = [tlv.encode(6, value) for value in values]
    stream = b"".join(packets)
    kept = stream[: max(0, len(stream) - cut)]
    found, consumed = tlv.split(kept, 8_800)
    assert found == packets[: len(found)]
    assert consumed == sum(map(len, found))
    rest, end = tlv.split(kept[consumed:] + stream[len(kept) :], 8_800)
    assert found + rest == packets
    assert consumed + end == len(stream)


@pytest.mark.parametrize("stream", ["06fe00010000", "06ffffffffffffffffff", "06fd2261"])
def test_a_giant_length_is_refused_before_its_bytes_have_come(stream: str) -> None:
    with pytest.raises(DecodeError) as caught:
        tlv.split(bytes.fromhex(stream), 8_800)
    assert caught.value.reason is Reason.OVERSIZE


def test_the_largest_packet_passes() -> None:
    packet = tlv.encode(6, bytes(8_796))
    assert len(packet) == 8_800
    assert tlv.split(packet, 8_800) == ([packet], 8_800)


@given(st.binary(max_size=64))
def test_any_bytes_give_elements_or_a_decode_error(wire: bytes) -> None:
    try:
        found = list(tlv.elements(wire, 0, len(wire)))
    except DecodeError:
        return
    assert b"".join(tlv.encode(kind, wire[start:stop]) for kind, start, stop in found) == wire
