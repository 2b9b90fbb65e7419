"""The handshake against itself, against an independent implementation, and against tampering."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from noise.connection import Keypair, NoiseConnection

from syncline.core.errors import DecodeError
from syncline.core.keys import NodeKey
from syncline.core.verdict import Reason
from syncline.formats.protobuf import bytes_field
from syncline.networks.libp2p.noise import ED25519_KEY_PREFIX, NAME, SIGNED_PREFIX, Handshake

ALICE, BOB = NodeKey(bytes(32)), NodeKey(bytes(31) + b"\x01")


def side(key: NodeKey, *, initiator: bool, **options: Any) -> Handshake:
    mark = b"i" if initiator else b"r"
    return Handshake(key, initiator=initiator, static=mark * 32, ephemeral=mark.upper() * 32, **options)


def shake(alice: Handshake, bob: Handshake, change: Callable[[int, bytes], bytes] = lambda step, data: data) -> None:
    first = change(0, alice.start())
    second = bob.receive(first)
    assert second is not None
    third = alice.receive(change(1, second))
    assert third is not None
    assert bob.receive(change(2, third)) is None


def test_both_sides_learn_who_the_other_is_and_understand_each_other() -> None:
    alice = side(ALICE, initiator=True, muxers=("/yamux/1.0.0",), expected=BOB.public)
    bob = side(BOB, initiator=False)
    shake(alice, bob)
    assert (alice.remote_key, bob.remote_key) == (BOB.public, ALICE.public)
    assert (alice.remote_muxers, bob.remote_muxers) == ((), ("/yamux/1.0.0",))
    (a_seal, a_open), (b_seal, b_open) = alice.ciphers(), bob.ciphers()
    for number in range(3):
        plain = bytes(number * 100)
        assert b_open.open(a_seal.seal(plain)) == plain
        assert a_open.open(b_seal.seal(plain)) == plain
    with pytest.raises(DecodeError):
        bob.receive(b"more")


def test_a_message_opened_twice_or_out_of_turn_is_refused() -> None:
    alice, bob = side(ALICE, initiator=True), side(BOB, initiator=False)
    shake(alice, bob)
    seal, open_ = alice.ciphers()[0], bob.ciphers()[1]
    first = seal.seal(b"once")
    assert open_.open(first) == b"once"
    with pytest.raises(DecodeError) as refused:
        open_.open(first)
    assert refused.value.reason is Reason.INVALID_SIGNATURE


@pytest.mark.parametrize("step", [0, 1, 2])
def test_a_changed_or_shortened_handshake_never_completes(step: int) -> None:
    lengths: list[int] = []

    def measured(at: int, data: bytes) -> bytes:
        lengths.append(len(data))
        return data

    shake(side(ALICE, initiator=True), side(BOB, initiator=False), measured)
    for position in range(0, lengths[step], 7):

        def flipped(at: int, data: bytes, position: int = position) -> bytes:
            return data[:position] + bytes((data[position] ^ 1,)) + data[position + 1 :] if at == step else data

        def cut(at: int, data: bytes, position: int = position) -> bytes:
            return data[:position] if at == step else data

        for change in (flipped, cut):
            with pytest.raises(DecodeError):
                shake(side(ALICE, initiator=True), side(BOB, initiator=False), change)


def test_somebody_else_at_the_address_is_refused() -> None:
    with pytest.raises(DecodeError) as refused:
        shake(side(ALICE, initiator=True, expected=ALICE.public), side(BOB, initiator=False))
    assert refused.value.reason is Reason.INVALID_PUBLISHER


@pytest.mark.parametrize("point", [bytes(32), b"\x01" + bytes(31), b"\xec" + b"\xff" * 30 + b"\x7f"])
def test_keys_of_low_order_are_refused(point: bytes) -> None:
    with pytest.raises(DecodeError) as refused:
        side(BOB, initiator=False).receive(point)
    assert refused.value.reason is Reason.INVALID_SIGNATURE


def independent(*, initiator: bool) -> tuple[NoiseConnection, bytes]:
    other = NoiseConnection.from_name(NAME)
    other.set_keypair_from_private_bytes(Keypair.STATIC, b"s" * 32)
    other.set_as_initiator() if initiator else other.set_as_responder()
    other.start_handshake()
    return other, other.noise_protocol.keypairs["s"].public_bytes


def payload(key: NodeKey, static: bytes, **changes: bytes) -> bytes:
    identity = changes.get("identity", ED25519_KEY_PREFIX + key.public)
    signature = changes.get("signature", key.sign(SIGNED_PREFIX + static))
    return bytes_field(1, identity) + bytes_field(2, signature)


def test_an_independent_responder_understands_us() -> None:
    alice = side(ALICE, initiator=True)
    other, static = independent(initiator=False)
    assert other.read_message(alice.start()) == b""
    answer = alice.receive(bytes(other.write_message(payload(BOB, static))))
    assert answer is not None
    assert bytes(other.read_message(answer)).startswith(bytes_field(1, ED25519_KEY_PREFIX + ALICE.public))
    assert alice.done
    assert other.handshake_finished
    assert alice.remote_key == BOB.public
    seal, open_ = alice.ciphers()
    assert other.decrypt(seal.seal(b"to them")) == b"to them"
    assert open_.open(other.encrypt(b"to us")) == b"to us"


def test_an_independent_initiator_understands_us() -> None:
    bob = side(BOB, initiator=False)
    other, static = independent(initiator=True)
    answer = bob.receive(bytes(other.write_message()))
    assert answer is not None
    other.read_message(answer)
    assert bob.receive(bytes(other.write_message(payload(ALICE, static)))) is None
    assert bob.remote_key == ALICE.public
    seal, open_ = bob.ciphers()
    assert other.decrypt(seal.seal(b"to them")) == b"to them"
    assert open_.open(other.encrypt(b"to us")) == b"to us"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"signature": bytes(64)}, Reason.INVALID_SIGNATURE),
        ({"signature": b""}, Reason.INVALID_SIGNATURE),
        ({"identity": ED25519_KEY_PREFIX + BOB.public}, Reason.INVALID_SIGNATURE),
        ({"identity": bytes.fromhex("08021221") + bytes(33)}, Reason.INVALID_PUBLISHER),
        ({"identity": b""}, Reason.INVALID_PUBLISHER),
    ],
)
def test_a_proper_handshake_with_a_bad_identity_is_refused(changes: dict[str, bytes], reason: Reason) -> None:
    bob = side(BOB, initiator=False)
    other, static = independent(initiator=True)
    answer = bob.receive(bytes(other.write_message()))
    assert answer is not None
    other.read_message(answer)
    with pytest.raises(DecodeError) as refused:
        bob.receive(bytes(other.write_message(payload(ALICE, static, **changes))))
    assert refused.value.reason is reason
    assert not bob.done
