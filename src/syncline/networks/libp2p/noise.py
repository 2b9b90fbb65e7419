"""libp2p's Noise channel: the XX handshake that proves both PeerIDs, and the ciphers that come out of it.

Sans-I/O and deterministic: handshake messages in and out, the two secret keys are arguments. Primitives are those of
`cryptography` and hashlib; only their composition (Noise_XX_25519_ChaChaPoly_SHA256) is here. Identities other than
Ed25519 are refused. Sockets and framing belong to `connection.py`.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from syncline.core.errors import DecodeError
from syncline.core.keys import NodeKey, verify
from syncline.core.verdict import Reason
from syncline.formats.protobuf import bytes_field, expect_bytes, expect_text, fields

PROTOCOL: Final = "/noise"
NAME: Final = b"Noise_XX_25519_ChaChaPoly_SHA256"  # exactly 32 bytes, so it is the first hash as it stands
SIGNED_PREFIX: Final = b"noise-libp2p-static-key:"
ED25519_KEY_PREFIX: Final = bytes.fromhex("08011220")  # protobuf of an Ed25519 public key
MESSAGE_MAX: Final = 65_535
TAG: Final = 16
PLAIN_MAX: Final = MESSAGE_MAX - TAG
KEY: Final = 32
MUXERS_MAX: Final = 100


class Cipher:
    """One direction of the channel. Messages must be opened in the order they were sealed."""

    __slots__ = ("_aead", "_count")

    def __init__(self, key: bytes) -> None:
        self._aead = ChaCha20Poly1305(key)
        self._count = 0

    def seal(self, plain: bytes, associated: bytes | None = None) -> bytes:
        return self._aead.encrypt(self._nonce(), plain, associated)

    def open(self, sealed: bytes, associated: bytes | None = None) -> bytes:
        try:
            return self._aead.decrypt(self._nonce(), sealed, associated)
        except InvalidTag:
            raise DecodeError("a message of the secure channel was changed", reason=Reason.INVALID_SIGNATURE) from None

    def _nonce(self) -> bytes:
        # A connection never lives for 2^64 messages, so the count needs no rekeying; to_bytes raises at the end anyway.
        nonce = b"\0\0\0\0" + self._count.to_bytes(8, "little")
        self._count += 1
        return nonce


class _Symmetric:
    """Noise's SymmetricState: the running hash, the chaining key and, once there is one, the handshake cipher."""

    def __init__(self) -> None:
        self.hash = self.chain = NAME
        self.cipher: Cipher | None = None
        self.mix_hash(b"")  # the prologue of libp2p is empty

    def mix_hash(self, data: bytes) -> None:
        self.hash = hashlib.sha256(self.hash + data).digest()

    def mix_key(self, secret: bytes) -> None:
        self.chain, key = _two_keys(self.chain, secret)
        self.cipher = Cipher(key)

    def seal(self, plain: bytes) -> bytes:
        sealed = self.cipher.seal(plain, self.hash) if self.cipher else plain
        self.mix_hash(sealed)
        return sealed

    def open(self, sealed: bytes) -> bytes:
        plain = self.cipher.open(sealed, self.hash) if self.cipher else sealed
        self.mix_hash(sealed)
        return plain

    def split(self) -> tuple[Cipher, Cipher]:
        first, second = _two_keys(self.chain, b"")
        return Cipher(first), Cipher(second)


def _two_keys(chain: bytes, secret: bytes) -> tuple[bytes, bytes]:
    """HKDF with two outputs, as Noise defines it."""
    extracted = hmac.digest(chain, secret, "sha256")
    first = hmac.digest(extracted, b"\x01", "sha256")
    return first, hmac.digest(extracted, first + b"\x02", "sha256")


class Handshake:
    """One side of the XX handshake. Feed `receive` until `done`; what it returns goes to the other side.

    `static` and `ephemeral` are fresh random secrets. With `expected`, a remote identity other than that key is refused.
    """

    def __init__(
        self,
        identity: NodeKey,
        *,
        initiator: bool,
        static: bytes,
        ephemeral: bytes,
        muxers: tuple[str, ...] = (),
        expected: bytes | None = None,
    ) -> None:
        self._identity, self._initiator, self._muxers, self._expected = identity, initiator, muxers, expected
        self._static = X25519PrivateKey.from_private_bytes(static)
        self._ephemeral = X25519PrivateKey.from_private_bytes(ephemeral)
        self._state = _Symmetric()
        self._their_ephemeral: X25519PublicKey | None = None
        self._step = 0
        self.done = False
        self.remote_key = b""  # the Ed25519 key proven by the other side
        self.remote_muxers: tuple[str, ...] = ()

    def start(self) -> bytes:
        """The initiator's first message."""
        return self._write_ephemeral() + self._state.seal(b"")

    def receive(self, message: bytes) -> bytes | None:
        """Take the other side's next message; returns ours, if it is our turn."""
        if self.done:
            raise DecodeError("the handshake is over")
        self._step += 1
        if self._initiator:
            return self._finish(message)
        if self._step == 1:
            return self._answer(message)
        self._read_static_and_payload(message, self._ephemeral)
        self.done = True
        return None

    def ciphers(self) -> tuple[Cipher, Cipher]:
        """(for sending, for receiving); to be called once, after `done`."""
        first, second = self._state.split()
        return (first, second) if self._initiator else (second, first)

    def _answer(self, message: bytes) -> bytes:
        """Responder: read `e`, write `e, ee, s, es`."""
        rest = self._read_ephemeral(message)
        if self._state.open(rest):
            raise DecodeError("a payload in the first handshake message")
        out = self._write_ephemeral()
        self._mix(self._ephemeral, self._their_ephemeral)
        out += self._state.seal(self._static.public_key().public_bytes_raw())
        self._mix(self._static, self._their_ephemeral)
        return out + self._state.seal(self._payload())

    def _finish(self, message: bytes) -> bytes:
        """Initiator: read `e, ee, s, es`, write `s, se`."""
        rest = self._read_ephemeral(message)
        self._mix(self._ephemeral, self._their_ephemeral)
        self._read_static_and_payload(rest, self._ephemeral)
        out = self._state.seal(self._static.public_key().public_bytes_raw())
        self._mix(self._static, self._their_ephemeral)
        out += self._state.seal(self._payload())
        self.done = True
        return out

    def _write_ephemeral(self) -> bytes:
        public = self._ephemeral.public_key().public_bytes_raw()
        self._state.mix_hash(public)
        return public

    def _read_ephemeral(self, message: bytes) -> bytes:
        if len(message) < KEY:
            raise DecodeError("a handshake message is cut short")
        self._their_ephemeral = X25519PublicKey.from_public_bytes(message[:KEY])
        self._state.mix_hash(message[:KEY])
        return message[KEY:]

    def _mix(self, ours: X25519PrivateKey, theirs: X25519PublicKey | None) -> None:
        assert theirs is not None
        try:
            self._state.mix_key(ours.exchange(theirs))
        except ValueError:  # the all-zero secret of a low-order point
            raise DecodeError("a key of low order", reason=Reason.INVALID_SIGNATURE) from None

    def _read_static_and_payload(self, message: bytes, ours: X25519PrivateKey) -> None:
        if len(message) < KEY + TAG:
            raise DecodeError("a handshake message is cut short")
        static = self._state.open(message[: KEY + TAG])
        self._mix(ours, X25519PublicKey.from_public_bytes(static))
        self._check_payload(self._state.open(message[KEY + TAG :]), static)

    def _payload(self) -> bytes:
        static = self._static.public_key().public_bytes_raw()
        payload = bytes_field(1, ED25519_KEY_PREFIX + self._identity.public)
        payload += bytes_field(2, self._identity.sign(SIGNED_PREFIX + static))
        if self._muxers:
            payload += bytes_field(4, b"".join(bytes_field(2, muxer.encode()) for muxer in self._muxers))
        return payload

    def _check_payload(self, payload: bytes, static: bytes) -> None:
        key = signature = b""
        muxers: list[str] = []
        for number, wire, value in fields(payload):
            if number == 1:
                key = expect_bytes(value, wire, "identity_key")
            elif number == 2:
                signature = expect_bytes(value, wire, "identity_sig")
            elif number == 4:
                muxers += _muxers(expect_bytes(value, wire, "extensions"))
        if len(key) != len(ED25519_KEY_PREFIX) + KEY or not key.startswith(ED25519_KEY_PREFIX):
            raise DecodeError("only Ed25519 identities are spoken to", reason=Reason.INVALID_PUBLISHER)
        public = key[len(ED25519_KEY_PREFIX) :]
        if not verify(public, signature, SIGNED_PREFIX + static):
            raise DecodeError("the identity does not sign its channel key", reason=Reason.INVALID_SIGNATURE)
        if self._expected is not None and public != self._expected:
            raise DecodeError("somebody else answers", reason=Reason.INVALID_PUBLISHER)
        self.remote_key, self.remote_muxers = public, tuple(muxers[:MUXERS_MAX])


def _muxers(extensions: bytes) -> list[str]:
    return [expect_text(value, wire, "stream_muxers") for number, wire, value in fields(extensions) if number == 2]
