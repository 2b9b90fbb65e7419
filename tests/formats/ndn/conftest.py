"""The NDN vectors, with the keys they were signed with."""

from __future__ import annotations

import base64
from typing import Any

from syncline.formats.ndn import types as t
from syncline.formats.ndn.signing import Digest, EcdsaVerifier, Ed25519Verifier, Hmac, Verifier


def verifier_of(vector: dict[str, Any], kind: int) -> Verifier:
    """What checks a signature of this kind in this vector."""
    if kind == t.DIGEST_SHA256:
        return Digest()
    if kind == t.HMAC_SHA256:
        return Hmac(base64.b64decode(vector["hmac_key_base64"]))
    if kind == t.ED25519:
        return Ed25519Verifier(bytes.fromhex(vector["ed25519_public_key_hex"]))
    return EcdsaVerifier(bytes.fromhex(vector["public_key_spki_der_hex"]))
