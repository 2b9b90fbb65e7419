from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from syncline.core.errors import DecodeError, KeyFileError
from syncline.core.keys import NodeKey, did_key, peer_id, public_of_did_key, public_of_peer_id, verify
from syncline.core.verdict import Reason

Vectors = Callable[[str], list[dict[str, Any]]]


def test_peer_ids_match_those_of_independent_libp2p_implementations(vectors: Vectors) -> None:
    keys = [vector["meaning"] for vector in vectors("libp2p") if vector["name"].startswith("key_")]
    ed25519 = [key for key in keys if key.get("key_type") == "Ed25519"]
    assert len(ed25519) >= 2
    for key in ed25519:
        node_key = NodeKey(bytes.fromhex(key["seed_hex"]))
        assert node_key.public.hex() == key["public_key_hex"]
        assert node_key.peer_id == key["peer_id"]
        assert public_of_peer_id(key["peer_id"]) == node_key.public


def test_did_keys_match_those_of_wallet_clients(vectors: Vectors) -> None:
    tokens = [v for v in vectors("relay") if v["name"].startswith("jwt_") and "public_key_hex" in v["meaning"]]
    assert len(tokens) >= 3
    for token in tokens:
        public = bytes.fromhex(token["meaning"]["public_key_hex"])
        name = token["meaning"]["payload"]["iss"]
        assert did_key(public) == name
        assert public_of_did_key(name) == public


def test_a_published_token_verifies_with_the_key_inside_its_did(vectors: Vectors) -> None:
    token = next(v for v in vectors("relay") if v["name"] == "jwt_published_test_vector")
    signed = token["text"].rpartition(".")[0].encode()
    public = public_of_did_key(token["meaning"]["payload"]["iss"])
    assert verify(public, bytes.fromhex(token["meaning"]["signature_hex"]), signed)


def test_a_signature_verifies_only_with_its_key_and_message() -> None:
    key, other = NodeKey.generate(), NodeKey.generate()
    signature = key.sign(b"message")
    assert verify(key.public, signature, b"message")
    assert not verify(key.public, signature, b"massage")
    assert not verify(other.public, signature, b"message")
    assert not verify(key.public, signature[:-1], b"message")
    assert not verify(key.public[:-1], signature, b"message")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "12D3KooW",
        "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N",  # an RSA PeerID is a hash and holds no key
        "0OIl" * 10,  # not base58
        "1" * 100_000,  # too long to be worth decoding
    ],
)
def test_a_name_that_carries_no_key_is_refused(text: str) -> None:
    with pytest.raises(DecodeError) as peer:
        public_of_peer_id(text)
    assert peer.value.reason is Reason.INVALID_PUBLISHER
    with pytest.raises(DecodeError) as did:
        public_of_did_key("did:key:z" + text)
    assert did.value.reason is Reason.INVALID_PUBLISHER


def test_a_did_key_of_another_kind_is_refused() -> None:
    with pytest.raises(DecodeError):
        public_of_did_key("did:web:example.com")
    with pytest.raises(DecodeError):
        public_of_did_key(peer_id(bytes(32)))


def test_a_key_file_is_private_and_read_back_the_same(tmp_path: Path) -> None:
    key, path = NodeKey.generate(), tmp_path / "deep" / "node.key"
    key.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert NodeKey.load(path).seed == key.seed


def test_a_key_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    NodeKey(bytes(32)).save(path)
    with pytest.raises(KeyFileError, match="already there"):
        NodeKey.generate().save(path)
    assert NodeKey.load(path).seed == bytes(32)


def test_a_key_file_that_others_can_read_is_refused_with_the_cure(tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    NodeKey.generate().save(path)
    path.chmod(0o644)
    with pytest.raises(KeyFileError) as error:
        NodeKey.load(path)
    assert error.value.hint == f"run `chmod 600 {path}`"


@pytest.mark.parametrize("content", ["", "zz", "00" * 31, "\x00\xff"])
def test_a_damaged_key_file_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "node.key"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(KeyFileError) as error:
        NodeKey.load(path)
    assert error.value.about == str(path)


def test_a_missing_key_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError) as error:
        NodeKey.load(tmp_path / "absent")
    assert "syncline init" in error.value.hint


def test_the_text_form_of_a_key_hides_the_secret() -> None:
    key = NodeKey.generate()
    assert key.seed.hex() not in repr(key) + str(key)
