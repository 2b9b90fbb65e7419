"""Packets made by NDNts and python-ndn: read them, check their signatures, and write the same bytes."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from syncline.formats.ndn import names
from syncline.formats.ndn import types as t
from syncline.formats.ndn.packets import (
    Data,
    Interest,
    Signature,
    decode_data,
    decode_interest,
    encode_data,
    encode_interest,
)
from syncline.formats.ndn.signing import Digest, Hmac, Signer
from syncline.formats.tlv import encode, encode_integer
from tests.formats.ndn.conftest import verifier_of

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "vectors" / "svs.json").read_text())["vectors"]


def of_kind(packet: str) -> list[Any]:
    return [pytest.param(v, id=v["name"]) for v in VECTORS if v["meaning"].get("packet") == packet]


class Replayed:
    """Signs with a signature made elsewhere, for keys whose private half the vectors do not hold."""

    def __init__(self, signature: Signature, information: bytes) -> None:
        self.information = information
        self._value = signature.value

    def sign(self, signed: bytes) -> bytes:
        return self._value


def signer_of(vector: dict[str, Any], signature: Signature) -> Signer:
    if signature.kind == t.DIGEST_SHA256:
        return Digest()
    if signature.kind == t.HMAC_SHA256:
        return Hmac(base64.b64decode(vector["hmac_key_base64"]), signature.key_name)
    assert signature.key_name is not None
    locator = encode(t.KEY_LOCATOR, encode(t.NAME, signature.key_name))
    return Replayed(signature, bytes((t.SIGNATURE_TYPE, 1, signature.kind)) + locator)


def check_signature(vector: dict[str, Any], meaning: dict[str, Any], packet: Data | Interest) -> None:
    signature = packet.signature
    assert signature is not None
    told = meaning["signature"]
    assert signature.kind == told["type"]
    assert (names.text(signature.key_name) if signature.key_name is not None else None) == told.get("key_locator")
    assert verifier_of(vector, signature.kind).verify(packet.signed, signature.value) is told["valid"]


def check_data(vector: dict[str, Any], meaning: dict[str, Any], wire: bytes) -> None:
    data = decode_data(wire)
    assert data.name == names.parse(meaning["name"])
    assert data.content_type == meaning.get("content_type", 0)
    assert data.freshness == meaning.get("freshness_ms", 0)
    assert len(data.content) == meaning["content_bytes"]
    if "content_text" in meaning:
        assert data.content.decode() == meaning["content_text"]
    if "content_hex" in meaning:
        assert data.content.hex() == meaning["content_hex"]
    final = meaning.get("final_block_id")
    assert data.final_block == (names.parse("/" + final) if final else None)
    check_signature(vector, meaning, data)
    if "encapsulated" in meaning:
        check_data(vector, meaning["encapsulated"], data.content)
    again = encode_data(
        data.name,
        data.content,
        signer_of(vector, data.signature),
        content_type=data.content_type if "content_type" in meaning else None,
        freshness=data.freshness if "freshness_ms" in meaning else None,
        final_block=data.final_block,
    )
    assert again == wire


@pytest.mark.parametrize("vector", of_kind("Data"))
def test_a_data_means_what_its_maker_says_and_is_written_the_same(vector: dict[str, Any]) -> None:
    check_data(vector, vector["meaning"], bytes.fromhex(vector["hex"]))


@pytest.mark.parametrize("vector", of_kind("Interest"))
def test_an_interest_means_what_its_maker_says_and_is_written_the_same(vector: dict[str, Any]) -> None:
    meaning, wire = vector["meaning"], bytes.fromhex(vector["hex"])
    interest = decode_interest(wire)
    assert interest.name == names.parse(meaning["name"])
    assert interest.can_be_prefix is meaning.get("can_be_prefix", False)
    assert interest.must_be_fresh is meaning.get("must_be_fresh", False)
    assert interest.nonce == bytes.fromhex(meaning["nonce_hex"])
    assert interest.lifetime == meaning["lifetime_ms"]
    assert interest.hop_limit == meaning.get("hop_limit")
    assert interest.digest_holds is meaning.get("params_digest_valid", True)
    if "app_parameters_bytes" in meaning:
        assert interest.parameters is not None
        assert len(interest.parameters) == meaning["app_parameters_bytes"]
    if "app_parameters_hex" in meaning:
        assert interest.parameters == bytes.fromhex(meaning["app_parameters_hex"])
    if "app_parameters_data" in meaning:
        assert interest.parameters is not None
        check_data(vector, meaning["app_parameters_data"], interest.parameters)
    if "signature" in meaning:
        check_signature(vector, meaning, interest)
    assert rewritten(vector, interest) == wire


def rewritten(vector: dict[str, Any], interest: Interest) -> bytes:
    signature = interest.signature
    extra = b""
    if signature is not None and signature.nonce is not None:
        extra += encode(t.SIGNATURE_NONCE, signature.nonce)
    if signature is not None and signature.time is not None:
        extra += encode(t.SIGNATURE_TIME, encode_integer(signature.time))
    assert interest.nonce is not None
    return encode_interest(
        interest.name if interest.digest_at < 0 else interest.name[: interest.digest_at],
        nonce=interest.nonce,
        can_be_prefix=interest.can_be_prefix,
        must_be_fresh=interest.must_be_fresh,
        lifetime=interest.lifetime,
        hop_limit=interest.hop_limit,
        parameters=interest.parameters,
        signer=None if signature is None else signer_of(vector, signature),
        signature_extra=extra,
    )


def test_every_vector_is_one_of_the_kinds_tested() -> None:
    kinds = [v["meaning"].get("packet") or v["meaning"]["tlv"] for v in VECTORS]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "Interest": 25,
        "Data": 19,
        "StateVector (type 201)": 6,
    }
