"""How two servers make sure of each other: each signs a number the other chose. Then, and only then, a link is open.

A proof covers role, both numbers and both keys, so it is of no use to anybody else or at another time. Between machines,
TLS must keep third parties off the wire; the handshake says who is there, not that nobody listens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from syncline.core.errors import DecodeError, RefusedError
from syncline.core.keys import NodeKey, public_of_peer_id, verify
from syncline.core.verdict import Reason
from syncline.protocols.relay.wire.links import LINK_VERSION, Challenge, Control, Hello, encode_control, proof_bytes

Role = Literal["dialer", "listener"]
Trust = Callable[[str], bool]  # whether a link with this key is wanted


class Identity(msgspec.Struct, frozen=True):
    """Who we are on links. `former` is a key this one replaces, while neighbours still know the old one."""

    key: NodeKey
    epoch: int
    name: str = ""
    former: NodeKey | None = None


class Neighbour(msgspec.Struct, frozen=True):
    """A server that has proven its key."""

    key: str
    epoch: int
    name: str
    former: str = ""


class Handshake:
    """One side of it. Feed `receive` until it returns the neighbour; raises RefusedError when there will be none."""

    def __init__(self, role: Role, identity: Identity, trust: Trust, nonce: bytes) -> None:
        self._role = role
        self._identity = identity
        self._trust = trust
        self._nonce = nonce
        self._theirs: Challenge | None = None

    def open(self) -> bytes:
        """The first word."""
        identity = self._identity
        former = identity.former.peer_id if identity.former else ""
        return encode_control(
            Challenge(version=LINK_VERSION, key=identity.key.peer_id, nonce=self._nonce.hex(), former=former)
        )

    def receive(self, told: Control) -> bytes | Neighbour:
        """The answer to a challenge, or the neighbour whose proof is good."""
        if isinstance(told, Challenge) and self._theirs is None:
            self._check(told)
            self._theirs = told
            return encode_control(self._hello(told))
        if isinstance(told, Hello) and self._theirs is not None:
            return self._neighbour(told, self._theirs)
        raise _refused("not the time for this", Reason.MALFORMED)

    def _check(self, told: Challenge) -> None:
        if told.version != LINK_VERSION:
            raise _refused(f"link version {told.version} is not spoken here", Reason.UNSUPPORTED_VERSION)
        if len(told.nonce) != 64 or told.nonce == self._nonce.hex():
            raise _refused("not a fresh challenge", Reason.MALFORMED)
        if told.key == self._identity.key.peer_id:
            raise _refused("this is ourselves", Reason.LOOP)
        # Strangers are turned away before they learn our proof, so neither side ever believes in the link.
        if not self._trust(told.key) and not (told.former and self._trust(told.former)):
            raise _refused("this server is not known here", Reason.UNAUTHORISED)

    def _hello(self, told: Challenge) -> Hello:
        key, former = self._identity.key, self._identity.former
        return Hello(
            server=self._identity.name,
            version=LINK_VERSION,
            key=key.peer_id,
            proof=key.sign(self._signed(self._role, key.public, told)).hex(),
            epoch=self._identity.epoch,
            former_proof=former.sign(self._signed(self._role, key.public, told)).hex() if former else "",
        )

    def _signed(self, role: Role, signer: bytes, told: Challenge) -> bytes:
        """What the side in `role`, whose present key is `signer`, signs."""
        try:
            theirs, their_key = bytes.fromhex(told.nonce), public_of_peer_id(told.key)
        except (ValueError, DecodeError):
            raise _refused("not a challenge", Reason.MALFORMED) from None
        nonces = (self._nonce, theirs) if self._role == "dialer" else (theirs, self._nonce)
        other = their_key if role == self._role else self._identity.key.public
        return proof_bytes(role, *nonces, signer, other)

    def _neighbour(self, hello: Hello, challenge: Challenge) -> Neighbour:
        role: Role = "listener" if self._role == "dialer" else "dialer"
        public = public_of_peer_id(challenge.key)
        signed = self._signed(role, public, challenge)
        if hello.key != challenge.key or not _proves(public, hello.proof, signed):
            raise _refused("the proof is not by the key it names", Reason.INVALID_SIGNATURE)
        if challenge.former:
            try:
                vouched = _proves(public_of_peer_id(challenge.former), hello.former_proof, signed)
            except DecodeError:
                vouched = False
            if not vouched:
                raise _refused("the proof is not by the former key it names", Reason.INVALID_SIGNATURE)
        return Neighbour(key=hello.key, epoch=hello.epoch, name=hello.server[:64], former=challenge.former)


def _proves(public: bytes, proof: str, signed: bytes) -> bool:
    try:
        return verify(public, bytes.fromhex(proof), signed)
    except ValueError:
        return False


def _refused(message: str, reason: Reason) -> RefusedError:
    return RefusedError(message, reason=reason)
