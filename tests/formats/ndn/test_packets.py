"""Interest and Data beyond the vectors: round trips, evolvability and every structural lie."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.core.errors import DecodeError, UsageError
from syncline.core.verdict import Reason
from syncline.formats import tlv
from syncline.formats.ndn import names
from syncline.formats.ndn import types as t
from syncline.formats.ndn.packets import decode_data, decode_interest, encode_data, encode_interest
from syncline.formats.ndn.signing import Digest, Hmac

NONCE = b"\x01\x02\x03\x04"
NAME = names.parse("/a/b")
HMAC = Hmac(b"secret", names.parse("/key"))
number = st.none() | st.integers(0, 2**64 - 1)


@given(content=st.binary(max_size=600), content_type=number, freshness=number, final=st.none() | st.integers(0, 2**40))
def test_a_data_is_read_as_it_was_written(
    content: bytes, content_type: int | None, freshness: int | None, final: int | None
) -> None:
    block = None if final is None else names.number(t.SEGMENT, final)
    wire = encode_data(NAME, content, HMAC, content_type=content_type, freshness=freshness, final_block=block)
    data = decode_data(wire)
    assert (data.name, data.content, data.final_block) == (NAME, content, block)
    assert (data.content_type, data.freshness) == (content_type or 0, freshness or 0)
    assert data.signature.key_name == names.parse("/key")
    assert HMAC.verify(data.signed, data.signature.value)
    assert not Hmac(b"other").verify(data.signed, data.signature.value)


@given(
    can_be_prefix=st.booleans(),
    must_be_fresh=st.booleans(),
    lifetime=number,
    hop_limit=st.none() | st.integers(0, 255),
    parameters=st.none() | st.binary(max_size=300),
    signed=st.booleans(),
)
def test_an_interest_is_read_as_it_was_written(
    can_be_prefix: bool,
    must_be_fresh: bool,
    lifetime: int | None,
    hop_limit: int | None,
    parameters: bytes | None,
    signed: bool,
) -> None:
    wire = encode_interest(
        NAME, nonce=NONCE, can_be_prefix=can_be_prefix, must_be_fresh=must_be_fresh, lifetime=lifetime,
        hop_limit=hop_limit, hints=(names.parse("/hint"),), parameters=parameters, signer=HMAC if signed else None,
    )  # fmt: skip
    interest = decode_interest(wire)
    assert (interest.can_be_prefix, interest.must_be_fresh) == (can_be_prefix, must_be_fresh)
    assert (interest.nonce, interest.lifetime, interest.hop_limit) == (
        NONCE,
        4_000 if lifetime is None else lifetime,
        hop_limit,
    )
    assert interest.hints == (names.parse("/hint"),)
    assert interest.parameters == (b"" if signed and parameters is None else parameters)
    assert interest.digest_holds
    if hop_limit is not None:
        assert wire[interest.hop_limit_at] == hop_limit
    if signed:
        assert interest.signature is not None
        assert HMAC.verify(interest.signed, interest.signature.value)


@given(st.integers(0, 200), st.integers(0, 255))
def test_a_changed_byte_never_passes_as_the_same_signed_data(at: int, byte: int) -> None:
    wire = encode_data(NAME, b"content", HMAC, freshness=1_000)
    at %= len(wire)
    changed = wire[:at] + bytes((byte,)) + wire[at + 1 :]
    if changed == wire:
        return
    try:
        data = decode_data(changed)
    except DecodeError:
        return
    kind = data.signature.kind
    assert kind != t.HMAC_SHA256 or not HMAC.verify(data.signed, data.signature.value)


@given(st.integers(0, 200), st.integers(0, 255))
def test_a_changed_byte_never_passes_as_the_same_signed_interest(at: int, byte: int) -> None:
    wire = encode_interest(NAME, nonce=NONCE, parameters=b"params", signer=HMAC)
    at %= len(wire)
    changed = wire[:at] + bytes((byte,)) + wire[at + 1 :]
    try:
        interest = decode_interest(changed)
    except DecodeError:
        return
    if changed != wire and interest.signature is not None and interest.nonce == NONCE and interest.lifetime == 4_000:
        good = interest.signature.kind == t.HMAC_SHA256 and HMAC.verify(interest.signed, interest.signature.value)
        assert not (good and interest.digest_holds and interest.name == decode_interest(wire).name)


def data_of(*parts: bytes) -> bytes:
    return tlv.encode(t.DATA, b"".join(parts))


N = tlv.encode(t.NAME, NAME)
META = tlv.encode(t.META_INFO, tlv.integer_element(t.FRESHNESS, 1))
CONTENT = tlv.encode(t.CONTENT, b"x")
INFO = tlv.encode(t.SIGNATURE_INFO, Digest.information)
VALUE = tlv.encode(t.SIGNATURE_VALUE, bytes(32))


def test_unknown_elements_are_passed_over_unless_critical() -> None:
    assert decode_data(data_of(N, META, tlv.encode(0xF0, b"new"), CONTENT, INFO, VALUE)).content == b"x"
    with pytest.raises(DecodeError, match="unknown or misplaced critical element in Data"):
        decode_data(data_of(N, META, tlv.encode(0xF1, b"new"), CONTENT, INFO, VALUE))


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ((META, CONTENT, INFO, VALUE), Reason.MALFORMED),
        ((N, CONTENT, META, INFO, VALUE), Reason.MALFORMED),
        ((N, META, META, CONTENT, INFO, VALUE), Reason.MALFORMED),
        ((N, META, CONTENT, VALUE), Reason.MALFORMED),
        ((N, META, CONTENT, INFO), Reason.INVALID_SIGNATURE),
        ((N, META, CONTENT), Reason.INVALID_SIGNATURE),
        ((N, META, CONTENT, tlv.encode(t.SIGNATURE_INFO, b""), VALUE), Reason.INVALID_SIGNATURE),
        ((N, META, CONTENT, INFO, tlv.encode(0xF0, b""), VALUE), Reason.MALFORMED),
        ((N, tlv.encode(t.META_INFO, tlv.encode(t.FINAL_BLOCK, b"\x32\x01\x00\x08\x00")), INFO, VALUE),
         Reason.MALFORMED),
        ((N, tlv.encode(t.META_INFO, tlv.encode(t.FRESHNESS, bytes(3))), INFO, VALUE), Reason.MALFORMED),
        ((tlv.encode(t.NAME, b"\x08\x05ab"), INFO, VALUE), Reason.MALFORMED),
    ],
)  # fmt: skip
def test_a_data_of_another_shape_is_refused(parts: tuple[bytes, ...], reason: Reason) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_data(data_of(*parts))
    assert caught.value.reason is reason


def test_a_signature_info_may_hold_elements_of_its_own_type() -> None:
    info = tlv.encode(t.SIGNATURE_INFO, Digest.information + tlv.encode(0xFD, b"validity"))
    assert decode_data(data_of(N, info, VALUE)).signature.kind == t.DIGEST_SHA256


def interest_of(*parts: bytes) -> bytes:
    return tlv.encode(t.INTEREST, b"".join(parts))


NONCE_PART = b"\x0a\x04" + NONCE
PARAMETERS = tlv.encode(t.PARAMETERS, b"p")
DIGEST = bytes((t.PARAMETERS_DIGEST, 32)) + bytes(32)
SIGNATURE = tlv.encode(t.INTEREST_SIGNATURE_INFO, Digest.information)
SIGNATURE_VALUE = tlv.encode(t.INTEREST_SIGNATURE_VALUE, bytes(32))
WITH_DIGEST = tlv.encode(t.NAME, NAME + DIGEST)


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (tlv.encode(t.NAME, b""), NONCE_PART),
        (N, b"\x0a\x03abc"),
        (N, NONCE_PART, b"\x21\x00"),
        (N, b"\x21\x00\x21\x00", NONCE_PART),
        (N, b"\x21\x01a", NONCE_PART),
        (N, b"\x12\x01a", NONCE_PART),
        (N, NONCE_PART, b"\x22\x02aa"),
        (N, NONCE_PART, b"\x0c\x03aaa"),
        (N, NONCE_PART, PARAMETERS),
        (tlv.encode(t.NAME, NAME + DIGEST + DIGEST), NONCE_PART, PARAMETERS),
        (tlv.encode(t.NAME, NAME + b"\x02\x01a"), NONCE_PART, PARAMETERS),
        (N, NONCE_PART, SIGNATURE, SIGNATURE_VALUE),
        (WITH_DIGEST, NONCE_PART, PARAMETERS, SIGNATURE),
        (WITH_DIGEST, NONCE_PART, PARAMETERS, SIGNATURE_VALUE),
        (WITH_DIGEST, NONCE_PART, PARAMETERS, SIGNATURE, tlv.encode(0xF0, b""), SIGNATURE_VALUE),
        (N, NONCE_PART, tlv.encode(0xF1, b"")),
    ],
)
def test_an_interest_of_another_shape_is_refused(parts: tuple[bytes, ...]) -> None:
    with pytest.raises(DecodeError):
        decode_interest(interest_of(*parts))


def test_too_many_hints_are_refused() -> None:
    hints = tlv.encode(t.FORWARDING_HINT, tlv.encode(t.NAME, NAME) * 9)
    with pytest.raises(DecodeError) as caught:
        decode_interest(interest_of(N, hints, NONCE_PART))
    assert caught.value.reason is Reason.TOO_COMPLEX


def test_a_wrong_digest_of_parameters_is_told() -> None:
    assert not decode_interest(interest_of(WITH_DIGEST, NONCE_PART, PARAMETERS)).digest_holds
    assert not decode_interest(interest_of(WITH_DIGEST, NONCE_PART)).digest_holds


def test_a_packet_is_not_mistaken_for_the_other_kind() -> None:
    with pytest.raises(DecodeError, match="not a Data"):
        decode_data(interest_of(N, NONCE_PART))
    with pytest.raises(DecodeError, match="not an Interest"):
        decode_interest(data_of(N, INFO, VALUE))
    with pytest.raises(DecodeError, match="not a Data"):
        decode_data(data_of(N, INFO, VALUE) + b"x")


def test_a_nonce_has_four_bytes() -> None:
    with pytest.raises(UsageError):
        encode_interest(NAME, nonce=b"123")


@given(st.binary(max_size=200))
def test_any_bytes_give_a_packet_or_a_decode_error(body: bytes) -> None:
    for decode, kind in ((decode_data, t.DATA), (decode_interest, t.INTEREST)):
        try:
            decode(tlv.encode(kind, body))
        except DecodeError:
            pass
