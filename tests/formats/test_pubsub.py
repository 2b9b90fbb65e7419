from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.core.errors import DecodeError
from syncline.core.keys import NodeKey, peer_id
from syncline.core.verdict import Outcome, Reason
from syncline.formats.framing import Framing
from syncline.formats.protobuf import bytes_field
from syncline.formats.pubsub import (
    SIGNING_PREFIX,
    Control,
    Have,
    Prune,
    Rpc,
    Subscribe,
    compose,
    decode_message,
    decode_rpc,
    ed25519_key,
    encode_rpc,
    judge,
)

Vectors = Callable[[str], list[dict[str, Any]]]
KEY = NodeKey(bytes(32))
OTHER = NodeKey(bytes(31) + b"\x01")


def _refusal(raw: bytes) -> Reason | None:
    try:
        return judge(decode_message(raw)).reason
    except DecodeError as error:
        return error.reason


@pytest.mark.parametrize("protocol", ["libp2p", "shrex"])
def test_messages_of_other_implementations_read_and_verify(vectors: Vectors, protocol: str) -> None:
    seen = 0
    for vector in vectors(protocol):
        for index, meaning in enumerate(vector.get("meaning", {}).get("publish", ())):
            rpc = decode_rpc(bytes.fromhex(vector["hex"]))
            message = decode_message(rpc.messages[index])
            assert message.author.hex() == meaning["from_hex"]
            assert message.data.hex() == meaning["data_hex"]
            assert message.seqno.hex() == meaning["seqno_hex"]
            assert message.topic == meaning["topic"]
            assert message.signature.hex() == meaning.get("signature_hex", "")
            assert message.key.hex() == meaning.get("key_field_hex", "")
            assert (SIGNING_PREFIX + message.signed).hex() == meaning["signed_bytes_hex"]
            assert message.id.hex() == meaning["default_message_id_hex"]
            assert judge(message).accepted == meaning["signature_valid"], vector["name"]
            public = ed25519_key(message.author)
            assert public is not None
            assert peer_id(public) == meaning["from_peer_id"]
            assert encode_rpc(rpc).hex() == vector["hex"]
            seen += 1
    assert seen >= 3


def test_frames_and_control_messages_of_other_implementations_read_and_write_alike(vectors: Vectors) -> None:
    named = {vector["name"]: vector for vector in vectors("libp2p")}
    two = decode_rpc(bytes.fromhex(named["rpc_subscribe_two_topics"]["hex"]))
    assert two.subscriptions == (
        Subscribe("/eds-sub/0.0.1", True),
        Subscribe("/spacedatanetwork/mainnet/OMM", True),
    )
    gone = decode_rpc(bytes.fromhex(named["rpc_unsubscribe"]["hex"]))
    assert gone.subscriptions == (Subscribe("/eds-sub/0.0.1", False),)
    control = decode_rpc(bytes.fromhex(named["rpc_control_all"]["hex"])).control
    assert control == Control(
        have=(Have("/t", (b"id-1", b"id-2")),),
        want=(b"id-3",),
        graft=("/t",),
        prune=(Prune("/q", 60),),
        unwanted=(b"id-4",),
    )
    for name, vector in named.items():
        if "framed_hex" in vector:
            [frame] = Framing("varint", 1_000_000).reader().feed(bytes.fromhex(vector["framed_hex"]))
            assert frame.hex() == vector["hex"], name
            assert encode_rpc(decode_rpc(frame)) == frame


@given(st.binary(max_size=400), st.text(min_size=1, max_size=200), st.integers(0, 2**64 - 1))
def test_what_we_sign_reads_back_and_verifies(data: bytes, topic: str, seqno: int) -> None:
    raw = compose(KEY, topic, data, seqno)
    message = decode_message(raw)
    assert (message.data, message.topic, message.seqno) == (data, topic, seqno.to_bytes(8, "big"))
    assert peer_id(message.author[6:]) == KEY.peer_id
    assert judge(message).accepted


def test_a_change_of_any_bit_is_refused() -> None:
    raw = compose(KEY, "/t", b"data", 7)
    for index in range(len(raw) * 8):
        changed = bytearray(raw)
        changed[index // 8] ^= 1 << index % 8
        assert _refusal(bytes(changed)) is not None, index


def test_a_message_cut_anywhere_is_refused() -> None:
    raw = compose(KEY, "/t", b"x" * 200, 7)
    for end in range(len(raw)):
        assert _refusal(raw[:end]) is not None


def test_each_kind_of_bad_message_has_its_reason() -> None:
    good = compose(KEY, "/t", b"data", 7)
    assert _refusal(good) is None
    assert _refusal(good + bytes_field(6, OTHER.public)) is Reason.INVALID_SIGNATURE
    assert _refusal(good + bytes_field(6, bytes.fromhex("08011220") + OTHER.public)) is Reason.INVALID_SIGNATURE
    assert _refusal(good + bytes_field(6, bytes.fromhex("08011220") + KEY.public)) is None
    assert _refusal(good + bytes_field(2, b"again")) is Reason.INVALID_FIELD
    assert _refusal(good + bytes_field(4, b"/other")) is Reason.INVALID_FIELD
    assert _refusal(good[:-66]) is Reason.INVALID_SIGNATURE
    assert _refusal(good + b"\x18\x01") is Reason.MALFORMED  # seqno as a number
    assert _refusal(good + b"\x3b") is Reason.MALFORMED  # a group
    assert _refusal(bytes_field(1, b"nobody") + bytes_field(3, b"1") + bytes_field(4, b"t")) is Reason.INVALID_PUBLISHER
    assert _refusal(bytes_field(3, bytes(9)) + bytes_field(4, b"t")) is Reason.INVALID_FIELD
    assert _refusal(bytes_field(3, b"1")) is Reason.INVALID_TOPIC
    assert _refusal(bytes_field(4, b"\xff")) is Reason.MALFORMED


def test_an_author_of_another_key_type_is_ignored_without_blame(vectors: Vectors) -> None:
    [secp] = [vector for vector in vectors("libp2p") if vector["name"] == "key_secp"]
    author = bytes.fromhex(secp["meaning"]["peer_id_multihash_hex"])
    verdict = judge(decode_message(bytes_field(1, author) + bytes_field(3, b"1") + bytes_field(4, b"t")))
    assert (verdict.outcome, verdict.reason) == (Outcome.IGNORE, Reason.INVALID_PUBLISHER)


def test_an_unknown_field_is_covered_by_the_signature() -> None:
    raw = compose(KEY, "/t", b"data", 7)
    assert _refusal(raw + b"\x78\x01") is Reason.INVALID_SIGNATURE
    body = raw[:-66] + b"\x78\x01"
    assert _refusal(b"\x2a\x40" + KEY.sign(SIGNING_PREFIX + body) + body) is None


@given(st.binary(max_size=200))
def test_any_bytes_give_a_message_or_a_typed_error(data: bytes) -> None:
    for decode in (decode_rpc, decode_message):
        with contextlib.suppress(DecodeError):  # anything else fails the test
            decode(data)


_ID = st.binary(max_size=50)
_CONTROL = st.builds(
    Control,
    st.lists(st.builds(Have, st.text(max_size=20), st.lists(_ID, max_size=3).map(tuple)), max_size=3).map(tuple),
    st.lists(_ID, max_size=3).map(tuple),
    st.lists(st.text(max_size=20), max_size=3).map(tuple),
    st.lists(st.builds(Prune, st.text(max_size=20), st.integers(0, 2**64 - 1)), max_size=3).map(tuple),
    st.lists(_ID, max_size=3).map(tuple),
)


@given(
    st.lists(st.builds(Subscribe, st.text(max_size=20), st.booleans()), max_size=4).map(tuple),
    st.lists(st.binary(max_size=50), max_size=4).map(tuple),
    st.none() | _CONTROL,
)
def test_an_rpc_reads_back(
    subscriptions: tuple[Subscribe, ...], messages: tuple[bytes, ...], control: Control | None
) -> None:
    rpc = Rpc(subscriptions, messages, control)
    assert decode_rpc(encode_rpc(rpc)) == rpc
