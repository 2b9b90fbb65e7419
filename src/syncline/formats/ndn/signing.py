"""Signatures of NDN packets: DigestSha256, HMAC, Ed25519 and ECDSA P-256; one class each for signing and for checking.

Keys are objects handed in; nothing here reads files or knows whom to trust. Ed25519 goes through `core.keys`, so that one
verifier is used everywhere.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Protocol

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from syncline.core.errors import UsageError
from syncline.core.keys import NodeKey, verify
from syncline.formats.ndn import types as t
from syncline.formats.tlv import encode

_ECDSA = ec.ECDSA(hashes.SHA256())


class Signer(Protocol):
    """Makes signatures. `information` is what goes into every SignatureInfo: the type and, if any, the key's name."""

    @property
    def information(self) -> bytes: ...

    def sign(self, signed: bytes) -> bytes: ...


class Verifier(Protocol):
    """Checks signatures of one key."""

    @property
    def kind(self) -> int:
        """The SignatureType it checks."""
        ...

    def verify(self, signed: bytes, value: bytes) -> bool: ...


class Digest:
    """DigestSha256: integrity without a key. Signs and verifies."""

    kind = t.DIGEST_SHA256
    information = bytes((t.SIGNATURE_TYPE, 1, t.DIGEST_SHA256))

    def sign(self, signed: bytes) -> bytes:
        return hashlib.sha256(signed).digest()

    def verify(self, signed: bytes, value: bytes) -> bool:
        return hashlib.sha256(signed).digest() == value


class Hmac:
    """HMAC-SHA256 with a shared secret. Signs and verifies."""

    kind = t.HMAC_SHA256

    def __init__(self, secret: bytes, key_name: bytes | None = None) -> None:
        if not secret:
            raise UsageError("an HMAC secret may not be empty")
        self._secret = secret
        self.information = information(self.kind, key_name)

    def sign(self, signed: bytes) -> bytes:
        return hmac.digest(self._secret, signed, "sha256")

    def verify(self, signed: bytes, value: bytes) -> bool:
        return hmac.compare_digest(hmac.digest(self._secret, signed, "sha256"), value)


class Ed25519Signer:
    """Signs with a node's key."""

    kind = t.ED25519

    def __init__(self, key: NodeKey, key_name: bytes | None = None) -> None:
        self._key = key
        self.information = information(self.kind, key_name)

    def sign(self, signed: bytes) -> bytes:
        return self._key.sign(signed)


class Ed25519Verifier:
    """Checks signatures by one Ed25519 public key."""

    kind = t.ED25519

    def __init__(self, public: bytes) -> None:
        if len(public) != 32:
            raise UsageError("an Ed25519 public key is 32 bytes")
        self._public = public

    def verify(self, signed: bytes, value: bytes) -> bool:
        return verify(self._public, value, signed)


class EcdsaSigner:
    """Signs with a P-256 private key."""

    kind = t.SHA256_ECDSA

    def __init__(self, private: ec.EllipticCurvePrivateKey, key_name: bytes | None = None) -> None:
        if not isinstance(private.curve, ec.SECP256R1):
            raise UsageError("NDN's ECDSA here is on P-256")
        self._private = private
        self.information = information(self.kind, key_name)

    @property
    def public(self) -> bytes:
        """The public key as DER SubjectPublicKeyInfo."""
        return self._private.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    def sign(self, signed: bytes) -> bytes:
        return self._private.sign(signed, _ECDSA)


class EcdsaVerifier:
    """Checks signatures by one P-256 public key, given as DER SubjectPublicKeyInfo."""

    kind = t.SHA256_ECDSA

    def __init__(self, public: bytes) -> None:
        try:
            key = serialization.load_der_public_key(public)
        except (ValueError, UnsupportedAlgorithm):
            raise UsageError("not a public key in DER") from None
        if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
            raise UsageError("not a P-256 public key")
        self._public = key

    def verify(self, signed: bytes, value: bytes) -> bool:
        try:
            self._public.verify(value, signed, _ECDSA)
        except InvalidSignature:
            return False
        return True


def information(kind: int, key_name: bytes | None) -> bytes:
    """SignatureType and, with a key's name, a KeyLocator."""
    found = bytes((t.SIGNATURE_TYPE, 1, kind))
    return found if key_name is None else found + encode(t.KEY_LOCATOR, encode(t.NAME, key_name))
