"""Ed25519 keys: the node's own, and the public names that carry one (libp2p PeerID, did:key).

One verifier is used everywhere (libsodium through PyNaCl), because libraries disagree on small-order and non-canonical
inputs. Other signature kinds belong to the protocols that use them.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

import base58
import nacl.bindings as sodium
from nacl.exceptions import BadSignatureError

from syncline.core.errors import DecodeError, KeyFileError
from syncline.core.verdict import Reason

PEER_ID_PREFIX: Final = bytes.fromhex("002408011220")  # identity multihash of a protobuf Ed25519 public key
DID_KEY_PREFIX: Final = bytes.fromhex("ed01")  # multicodec ed25519-pub
_NAME_CHARACTERS_MAX: Final = 64  # base58 is quadratic: longer text cannot be a key and is not decoded


class NodeKey:
    """A node's private key. Its text form never shows the secret."""

    __slots__ = ("_secret", "public")

    def __init__(self, seed: bytes) -> None:
        if len(seed) != 32:
            raise KeyFileError("an Ed25519 seed is 32 bytes")
        self.public, self._secret = sodium.crypto_sign_seed_keypair(seed)

    @classmethod
    def generate(cls) -> NodeKey:
        return cls(os.urandom(32))

    @property
    def seed(self) -> bytes:
        return self._secret[:32]

    @property
    def peer_id(self) -> str:
        return peer_id(self.public)

    @property
    def did(self) -> str:
        return did_key(self.public)

    def sign(self, message: bytes) -> bytes:
        return sodium.crypto_sign(message, self._secret)[:64]

    def __repr__(self) -> str:
        return f"NodeKey({self.peer_id})"

    def save(self, path: Path) -> None:
        """Write the seed as hex, readable by the owner alone. An existing file is never overwritten."""
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise KeyFileError(
                "a key is already there", hint="keep it, or move it away and try again", about=str(path)
            ) from None
        with os.fdopen(handle, "w") as file:
            file.write(self.seed.hex() + "\n")
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def load(cls, path: Path) -> NodeKey:
        """Read a key file, refusing one that others can read."""
        try:
            mode = path.stat().st_mode
            text = path.read_text().strip()
        except FileNotFoundError:
            raise KeyFileError("there is no key file", hint="run `syncline init`", about=str(path)) from None
        except (OSError, UnicodeDecodeError) as error:
            raise KeyFileError(f"the key file cannot be read: {error}", about=str(path)) from None
        if stat.S_IMODE(mode) & 0o077:
            raise KeyFileError("others can read the key file", hint=f"run `chmod 600 {path}`", about=str(path))
        try:
            return cls(bytes.fromhex(text))
        except (ValueError, KeyFileError):
            raise KeyFileError("the key file does not hold 64 hex digits", about=str(path)) from None


def verify(public: bytes, signature: bytes, message: bytes) -> bool:
    """Whether `signature` over `message` is by `public`."""
    if len(public) != 32 or len(signature) != 64:
        return False
    try:
        sodium.crypto_sign_open(signature + message, public)
    except BadSignatureError:
        return False
    return True


def peer_id(public: bytes) -> str:
    """The libp2p PeerID (`12D3KooW…`) that carries this key."""
    return base58.b58encode(PEER_ID_PREFIX + public).decode()


def public_of_peer_id(text: str) -> bytes:
    """The key inside a PeerID; other kinds of PeerID carry none and are refused."""
    raw = _base58(text, "a PeerID")
    if len(raw) != 38 or not raw.startswith(PEER_ID_PREFIX):
        raise DecodeError("not an Ed25519 PeerID", reason=Reason.INVALID_PUBLISHER, about=text[:80])
    return raw[6:]


def did_key(public: bytes) -> str:
    """The did:key form (`did:key:z6Mk…`) of this key."""
    return "did:key:z" + base58.b58encode(DID_KEY_PREFIX + public).decode()


def public_of_did_key(text: str) -> bytes:
    """The key inside an Ed25519 did:key."""
    if not text.startswith("did:key:z"):
        raise DecodeError("not a did:key in base58btc", reason=Reason.INVALID_PUBLISHER, about=text[:80])
    raw = _base58(text.removeprefix("did:key:z"), "a did:key")
    if len(raw) != 34 or not raw.startswith(DID_KEY_PREFIX):
        raise DecodeError("not an Ed25519 did:key", reason=Reason.INVALID_PUBLISHER, about=text[:80])
    return raw[2:]


def _base58(text: str, what: str) -> bytes:
    if len(text) > _NAME_CHARACTERS_MAX:
        raise DecodeError(f"too long for {what}", reason=Reason.INVALID_PUBLISHER, about=text[:80])
    try:
        return base58.b58decode(text)
    except ValueError:
        raise DecodeError(f"{what} must be base58", reason=Reason.INVALID_PUBLISHER, about=text[:80]) from None
