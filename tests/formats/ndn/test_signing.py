"""Signatures: each kind verifies its own and nothing else."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from syncline.core.errors import UsageError
from syncline.core.keys import NodeKey
from syncline.formats.ndn import names
from syncline.formats.ndn.packets import decode_data, encode_data
from syncline.formats.ndn.signing import (
    Digest,
    EcdsaSigner,
    EcdsaVerifier,
    Ed25519Signer,
    Ed25519Verifier,
    Hmac,
    Signer,
    Verifier,
)

KEY = NodeKey(bytes(range(32)))
ECDSA = EcdsaSigner(ec.derive_private_key(7, ec.SECP256R1()), names.parse("/ec"))
PAIRS: list[tuple[Signer, Verifier]] = [
    (Digest(), Digest()),
    (Hmac(b"k"), Hmac(b"k")),
    (Ed25519Signer(KEY), Ed25519Verifier(KEY.public)),
    (ECDSA, EcdsaVerifier(ECDSA.public)),
]


@pytest.mark.parametrize(("signer", "verifier"), PAIRS)
def test_a_signature_holds_for_its_bytes_alone(signer: Signer, verifier: Verifier) -> None:
    data = decode_data(encode_data(names.parse("/a"), b"content", signer))
    assert data.signature.kind == verifier.kind
    assert verifier.verify(data.signed, data.signature.value)
    assert not verifier.verify(data.signed + b"x", data.signature.value)
    assert not verifier.verify(data.signed, data.signature.value[:-1])
    assert not verifier.verify(data.signed, b"")


def test_another_key_does_not_verify() -> None:
    other = EcdsaSigner(ec.derive_private_key(8, ec.SECP256R1()))
    assert not EcdsaVerifier(other.public).verify(b"x", ECDSA.sign(b"x"))
    assert not Ed25519Verifier(NodeKey(bytes(32)).public).verify(b"x", KEY.sign(b"x"))
    assert not Hmac(b"j").verify(b"x", Hmac(b"k").sign(b"x"))


def test_keys_of_another_kind_are_refused() -> None:
    with pytest.raises(UsageError):
        EcdsaSigner(ec.derive_private_key(7, ec.SECP384R1()))
    p384 = ec.derive_private_key(7, ec.SECP384R1()).public_key()
    spki = p384.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    with pytest.raises(UsageError, match="not a P-256"):
        EcdsaVerifier(spki)
    with pytest.raises(UsageError, match="not a public key in DER"):
        EcdsaVerifier(b"nonsense")
    with pytest.raises(UsageError):
        Ed25519Verifier(b"short")
    with pytest.raises(UsageError):
        Hmac(b"")
