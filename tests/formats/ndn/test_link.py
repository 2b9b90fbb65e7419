"""NDNLPv2 packets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.core.errors import DecodeError
from syncline.formats import tlv
from syncline.formats.ndn import types as t
from syncline.formats.ndn.link import LinkPacket, decode_link, encode_nack, fragment, with_token


def test_an_idle_packet_holds_nothing() -> None:
    assert decode_link(b"\x64\x00") == LinkPacket()


def test_a_token_travels_with_its_packet() -> None:
    wire = with_token(b"token", b"\x06\x01x")
    assert wire.hex() == "640c" + "6205" + b"token".hex() + "5003060178"
    assert decode_link(wire) == LinkPacket(b"\x06\x01x", b"token")


def test_a_nack_names_its_reason_and_carries_the_interest() -> None:
    wire = encode_nack(b"\x05\x01x", t.NACK_NO_ROUTE)
    assert wire.hex() == "640e" + "fd032005fd03210196" + "5003050178"
    assert decode_link(wire) == LinkPacket(b"\x05\x01x", nack=150)
    assert decode_link(encode_nack(b"\x05\x01x", 50, b"t")) == LinkPacket(b"\x05\x01x", b"t", 50)
    assert decode_link(tlv.encode(t.LP_PACKET, b"\xfd\x03\x20\x00\x50\x01x")).nack == 0


@given(st.binary(min_size=1, max_size=3_000), st.integers(100, 1_400), st.booleans())
def test_fragments_carry_the_packet_in_order(packet: bytes, largest: int, token: bool) -> None:
    packet = tlv.encode(t.DATA, packet)
    wire = with_token(b"abc", packet) if token else packet
    pieces = fragment(wire, largest, 2**64 - 1)
    if len(wire) <= largest:
        assert pieces == [wire]
        return
    assert all(len(piece) <= largest for piece in pieces)
    decoded = [decode_link(piece) for piece in pieces]
    assert b"".join(each.fragment for each in decoded) == packet
    assert [each.index for each in decoded] == list(range(len(pieces)))
    assert {each.fragments for each in decoded} == {len(pieces)}
    assert [each.sequence for each in decoded] == [(2**64 - 1 + i) % 2**64 for i in range(len(pieces))]
    assert decoded[0].pit_token == (b"abc" if token else None)
    assert all(each.pit_token is None for each in decoded[1:])


@pytest.mark.parametrize(
    "body",
    [
        "5201015301015000",  # index 1 of 1
        "5301025000",  # two fragments without a sequence number
        "51040000000053010150 00",  # sequence of 4 octets
        "6200",  # empty token
        "62 21" + "00" * 33,  # long token
        "5501005000",  # unknown
        "fd0321015000",  # unknown, must be understood
    ],
)
def test_a_link_packet_of_another_shape_is_refused(body: str) -> None:
    with pytest.raises(DecodeError):
        decode_link(tlv.encode(t.LP_PACKET, bytes.fromhex(body)))


def test_headers_that_may_be_ignored_are_ignored() -> None:
    wire = tlv.encode(t.LP_PACKET, tlv.integer_element(0x0340, 1) + tlv.encode(t.LP_FRAGMENT, b"x"))
    assert decode_link(wire).fragment == b"x"


@given(st.binary(max_size=80))
def test_any_bytes_give_a_link_packet_or_a_decode_error(body: bytes) -> None:
    try:
        decode_link(tlv.encode(t.LP_PACKET, body))
    except DecodeError:
        pass
