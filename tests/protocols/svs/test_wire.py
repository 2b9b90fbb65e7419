"""Names, vectors, mappings and publications beyond the vectors."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from syncline.core.errors import DecodeError, UsageError
from syncline.core.limits import (
    NDN_PACKET_BYTES,
    SVS_EXTRA_BYTES,
    SVS_MAPPING_ENTRIES,
    SVS_PUBLICATION_BYTES,
    SVS_SEGMENTS,
    SVS_VECTOR_ENTRIES,
)
from syncline.core.verdict import Reason
from syncline.formats import tlv
from syncline.formats.ndn import names
from syncline.formats.ndn import types as t
from syncline.formats.ndn.packets import decode_data
from syncline.formats.ndn.signing import Digest, EcdsaSigner, Hmac, Signer
from syncline.protocols.svs import wire
from syncline.protocols.svs.wire import MappingEntry
from syncline.protocols.svs.wire.mapping import timestamp_block
from syncline.protocols.svs.wire.vector import decode_boot_vector

NODE, GROUP, CHAT = names.parse("/node/a"), names.parse("/some/group"), names.parse("/ndn/data/example")
node_names = st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=3).map(
    lambda parts: b"".join(map(names.generic, parts))
)


def test_names_are_as_the_specification_shows_them() -> None:
    assert names.text(wire.outer_name(NODE, GROUP, 25, 0)) == "/node/a/some/group/%19/v=0/seg=0"
    assert names.text(wire.outer_name(NODE, GROUP, 25)) == "/node/a/some/group/%19"
    assert names.text(wire.mapping_name(NODE, GROUP, 1, 300)) == "/node/a/some/group/MAPPING/%01/%01%2C"
    assert names.text(wire.sync_name(GROUP)) == "/some/group/v=2"


@given(node_names, st.integers(0, 2**64 - 1), st.none() | st.integers(0, 2**64 - 1))
def test_an_outer_name_is_read_as_it_was_written(node: bytes, seq: int, segment: int | None) -> None:
    found = wire.read_name(wire.outer_name(node, GROUP, seq, segment), GROUP)
    assert found == wire.OuterName(node, seq, segment)


@given(node_names, st.integers(0, 2**32), st.integers(0, 2**32))
def test_a_mapping_name_is_read_as_it_was_written(node: bytes, low: int, more: int) -> None:
    found = wire.read_name(wire.mapping_name(node, GROUP, low, low + more), GROUP)
    assert found == wire.MappingName(node, low, low + more)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("/", Reason.INVALID_FIELD),
        ("/node/a/some/group", Reason.INVALID_FIELD),
        ("/node/a/some/group/abc", Reason.INVALID_FIELD),
        ("/node/a/some/group/seq=25", Reason.INVALID_FIELD),
        ("/node/a/other/group/%19", Reason.INVALID_TOPIC),
        ("/some/group/%19", Reason.INVALID_TOPIC),  # no node
        ("/node/a/some/group/%19/v=1/seg=0", Reason.INVALID_FIELD),
        ("/node/a/some/group/%19/v=0", Reason.INVALID_FIELD),
        ("/node/a/some/group/%19/v=0/off=0", Reason.INVALID_FIELD),
        ("/node/a/some/group/MAPPING/%02/%01", Reason.INVALID_FIELD),
        ("/node/a/some/group/MAPPING/abc/%01", Reason.INVALID_FIELD),
        ("/node/a/other/group/MAPPING/%01/%01", Reason.INVALID_TOPIC),
    ],
)
def test_a_name_of_another_form_is_refused(name: str, reason: Reason) -> None:
    with pytest.raises(DecodeError) as caught:
        wire.read_name(names.parse(name), GROUP)
    assert caught.value.reason is reason


def test_a_component_that_ends_like_the_group_is_not_the_group() -> None:
    disguised = names.generic(b"x" + GROUP) + names.number(t.GENERIC, 1)
    with pytest.raises(DecodeError) as caught:
        wire.read_name(disguised, GROUP)
    assert caught.value.reason is Reason.INVALID_TOPIC


@given(st.dictionaries(node_names, st.integers(0, 2**64 - 1), max_size=20), st.binary(max_size=20))
def test_a_vector_is_read_as_it_was_written(vector: dict[bytes, int], rest: bytes) -> None:
    raw = wire.encode_vector(vector)
    found, end = wire.decode_vector(raw + rest)
    assert (found, end) == (vector, len(raw))
    assert list(found) == sorted(vector)


def entry(*parts: bytes) -> bytes:
    return tlv.encode(201, tlv.encode(202, b"".join(parts)))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        tlv.encode(200, b""),
        tlv.encode(201, b"\x01"),
        tlv.encode(201, tlv.encode(203, b"")),
        entry(tlv.integer_element(204, 1)),
        entry(tlv.encode(7, NODE)),
        entry(tlv.encode(7, b""), tlv.integer_element(204, 1)),
        entry(tlv.encode(7, NODE), tlv.encode(204, b"\1\2\3")),
        entry(tlv.encode(7, NODE), tlv.integer_element(205, 1)),
    ],
)
def test_a_vector_of_another_form_is_refused(raw: bytes) -> None:
    with pytest.raises(DecodeError):
        wire.decode_vector(raw)


def test_unknown_elements_of_a_vector_are_passed_over_unless_critical() -> None:
    raw = tlv.encode(
        201,
        tlv.encode(0xF0, b"new")
        + tlv.encode(202, tlv.encode(7, NODE) + tlv.integer_element(204, 7) + tlv.encode(0xF0, b"new")),
    )
    assert wire.decode_vector(raw)[0] == {NODE: 7}


def test_a_node_named_twice_counts_with_its_higher_number() -> None:
    one = tlv.encode(202, tlv.encode(7, NODE) + tlv.integer_element(204, 9))
    two = tlv.encode(202, tlv.encode(7, NODE) + tlv.integer_element(204, 3))
    assert wire.decode_vector(tlv.encode(201, one + two))[0] == {NODE: 9}


def test_a_vector_of_too_many_nodes_is_refused() -> None:
    many = {names.number(8, number): 1 for number in range(SVS_VECTOR_ENTRIES + 1)}
    with pytest.raises(DecodeError) as caught:
        wire.decode_vector(wire.encode_vector(many))
    assert caught.value.reason is Reason.TOO_COMPLEX
    many.popitem()
    assert len(wire.decode_vector(wire.encode_vector(many))[0]) == SVS_VECTOR_ENTRIES


@pytest.mark.parametrize("raw", [b"", tlv.encode(201, tlv.encode(202, tlv.encode(7, NODE) + tlv.encode(210, b"")))])
def test_a_vector_of_version_3_of_another_form_is_refused(raw: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_boot_vector(raw)


entries = st.lists(
    st.builds(
        MappingEntry,
        st.integers(0, 2**64 - 1),
        node_names,
        st.sampled_from([b"", timestamp_block(5), timestamp_block(2**63) + tlv.encode(0xF0, b"more")]),
    ),
    max_size=10,
)


@given(node_names, entries)
def test_a_mapping_is_read_as_it_was_written(node: bytes, given_entries: list[MappingEntry]) -> None:
    found = wire.decode_mapping(wire.encode_mapping(node, given_entries))
    assert (found.node, list(found.entries)) == (node, given_entries)


def test_the_time_of_an_entry_is_read_in_both_forms() -> None:
    plain = timestamp_block(1_772_000_000_123_000)
    assert MappingEntry(1, CHAT, plain).timestamp == 1_772_000_000_123_000
    assert MappingEntry(1, CHAT, tlv.encode(t.TIMESTAMP, plain)).timestamp == 1_772_000_000_123_000
    assert MappingEntry(1, CHAT, tlv.encode(0xF0, b"x") + plain).timestamp == 1_772_000_000_123_000
    assert MappingEntry(1, CHAT, tlv.encode(t.TIMESTAMP, b"12345")).timestamp is None
    assert MappingEntry(1, CHAT).timestamp is None


def mapping_of(*parts: bytes) -> bytes:
    return tlv.encode(205, b"".join(parts))


NAME = tlv.encode(7, NODE)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        tlv.encode(204, NAME),
        mapping_of(tlv.encode(206, b"")),
        mapping_of(NAME, tlv.encode(206, b"")),
        mapping_of(NAME, tlv.encode(206, NAME + tlv.integer_element(204, 1))),
        mapping_of(NAME, tlv.encode(206, tlv.integer_element(204, 1))),
        mapping_of(NAME, tlv.encode(206, tlv.integer_element(204, 1) + NAME + b"\x38")),
        mapping_of(NAME) + b"x",
    ],
)
def test_a_mapping_of_another_form_is_refused(raw: bytes) -> None:
    with pytest.raises(DecodeError):
        wire.decode_mapping(raw)


def test_mappings_are_bounded() -> None:
    many = [MappingEntry(number, b"") for number in range(SVS_MAPPING_ENTRIES + 1)]
    with pytest.raises(DecodeError) as caught:
        wire.decode_mapping(wire.encode_mapping(NODE, many))
    assert caught.value.reason is Reason.TOO_COMPLEX
    large = MappingEntry(1, CHAT, tlv.encode(0xF0, bytes(SVS_EXTRA_BYTES)))
    with pytest.raises(DecodeError) as caught:
        wire.decode_mapping(wire.encode_mapping(NODE, [large]))
    assert caught.value.reason is Reason.OVERSIZE


def put_together(packets: list[bytes]) -> bytes:
    parts = []
    for packet in packets:
        data = decode_data(packet)
        named = wire.read_name(data.name, GROUP)
        assert isinstance(named, wire.OuterName)
        outer = wire.decapsulate(data, named)
        assert outer.name == CHAT
        parts.append((outer.segment or 0, outer.final, outer.content))
    assert [part[0] for part in parts] == list(range(len(packets)))
    assert {part[1] for part in parts} == {len(packets) - 1}
    return b"".join(part[2] for part in parts)


@pytest.mark.parametrize(
    ("size", "segments"), [(0, 1), (1, 1), (8_000, 1), (8_001, 2), (16_000, 2), (16_001, 3), (20_000, 3)]
)
def test_what_fits_is_not_segmented_and_what_does_not_is(size: int, segments: int) -> None:
    payload = bytes(number % 251 for number in range(size))
    packets = wire.encapsulate(NODE, GROUP, 7, CHAT, payload, inner=Digest(), outer=Digest())
    assert len(packets) == segments
    assert put_together(packets) == payload
    for index, packet in enumerate(packets):
        data = decode_data(packet)
        inner = decode_data(data.content)
        assert (data.content_type, data.freshness) == (6, 60_000)
        final = names.number(t.SEGMENT, segments - 1) if segments > 1 else None
        assert (data.final_block, inner.final_block) == (final, final)
        assert data.name == wire.outer_name(NODE, GROUP, 7, index if segments > 1 else None)
        tail = names.parse(f"/v=0/seg={index}") if segments > 1 else b""
        assert inner.name == CHAT + tail


@given(st.integers(0, 30_000), st.integers(0, 2_500), st.sampled_from([Digest(), Hmac(b"k", names.parse("/key"))]))
def test_every_packet_fits_however_long_the_names(size: int, length: int, signer: Signer) -> None:
    name = names.generic(bytes(length))
    packets = wire.encapsulate(NODE, GROUP, 2**40, name, bytes(size), inner=signer, outer=signer)
    assert max(map(len, packets)) <= NDN_PACKET_BYTES


def test_ecdsa_segments_fit() -> None:
    signer = EcdsaSigner(ec.derive_private_key(7, ec.SECP256R1()), names.parse("/node/a/KEY/1"))
    packets = wire.encapsulate(NODE, GROUP, 1, CHAT, bytes(100_000), inner=signer, outer=signer, largest=8_800)
    assert max(map(len, packets)) <= NDN_PACKET_BYTES
    assert put_together(packets) == bytes(100_000)


def test_freshness_is_never_zero() -> None:
    [packet] = wire.encapsulate(NODE, GROUP, 1, CHAT, b"", inner=Digest(), outer=Digest(), freshness=0)
    assert decode_data(packet).freshness == 1


def test_what_cannot_be_sent_is_refused() -> None:
    with pytest.raises(UsageError, match="bytes"):
        wire.encapsulate(NODE, GROUP, 1, CHAT, bytes(SVS_PUBLICATION_BYTES + 1), inner=Digest(), outer=Digest())
    with pytest.raises(UsageError, match="segments"):
        wire.encapsulate(NODE, GROUP, 1, CHAT, bytes(SVS_SEGMENTS + 1), inner=Digest(), outer=Digest(), largest=1)
    with pytest.raises(UsageError, match="names are too long"):
        wire.encapsulate(NODE, GROUP, 1, names.generic(bytes(9_000)), b"", inner=Digest(), outer=Digest())


@given(st.binary(max_size=100))
def test_any_bytes_give_a_value_or_a_decode_error(raw: bytes) -> None:
    for decode, kind in ((wire.decode_vector, 201), (wire.decode_mapping, 205), (decode_boot_vector, 201)):
        try:
            decode(tlv.encode(kind, raw))
        except DecodeError:
            pass
