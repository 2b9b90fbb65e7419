"""Whom a group trusts: separate validators, and separate signers, for sync Interests, outer, inner and mapping Data.

Keys also have a text form for settings:

    digest            integrity only
    hmac:BASE64       a secret the whole group shares
    ed25519:HEX       a public key
    ecdsa:BASE64      a P-256 public key as DER SubjectPublicKeyInfo

with `@/prefix` behind it a key is good only for nodes below that prefix.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Final, Literal, Protocol

import msgspec

from syncline.core.errors import SettingsError, UsageError
from syncline.core.keys import NodeKey
from syncline.formats.ndn.names import Name, parse
from syncline.formats.ndn.packets import Signature
from syncline.formats.ndn.signing import Digest, EcdsaVerifier, Ed25519Signer, Ed25519Verifier, Hmac, Signer, Verifier

Role = Literal["sync", "outer", "inner", "mapping"]
ROLES: Final[tuple[Role, ...]] = ("sync", "outer", "inner", "mapping")


class Signed(Protocol):
    """A packet with a signature."""

    @property
    def signed(self) -> bytes: ...

    @property
    def signature(self) -> Signature | None: ...


class Validator(Protocol):
    """Whether a packet may pass as one of `node`'s. For sync Interests, which name no node, it is empty."""

    def __call__(self, packet: Signed, node: Name) -> bool: ...


class TrustedKey(msgspec.Struct, frozen=True):
    """A key, and the nodes it may speak for."""

    verifier: Verifier
    scope: Name = b""


class Keys:
    """A validator that accepts what any of some keys signed."""

    def __init__(self, keys: Iterable[TrustedKey | Verifier]) -> None:
        self._keys = tuple(key if isinstance(key, TrustedKey) else TrustedKey(key) for key in keys)

    def __call__(self, packet: Signed, node: Name) -> bool:
        signature = packet.signature
        if signature is None:
            return False
        for key in self._keys:
            verifier = key.verifier
            if (
                verifier.kind == signature.kind
                and (not node or node.startswith(key.scope))
                and verifier.verify(packet.signed, signature.value)
            ):
                return True
        return False


class Anything:
    """Accepts every packet, signed or not: for closed networks and tests."""

    def __call__(self, packet: Signed, node: Name) -> bool:
        return True


DIGEST_ONLY: Final = Keys([Digest()])
ANYTHING: Final = Anything()


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    """The validators of a group. SVS-PS: one for each kind of packet."""

    sync: Validator = DIGEST_ONLY
    outer: Validator = DIGEST_ONLY
    inner: Validator = DIGEST_ONLY
    mapping: Validator = DIGEST_ONLY


UNCHECKED: Final = Trust(sync=ANYTHING, outer=ANYTHING, inner=ANYTHING, mapping=ANYTHING)  # for what was checked before


class Signers(msgspec.Struct, frozen=True, kw_only=True):
    """The signers of a group's member. SVS-PS: one for each kind of packet."""

    sync: Signer = Digest()
    outer: Signer = Digest()
    inner: Signer = Digest()
    mapping: Signer = Digest()


class KeyLine(msgspec.Struct, frozen=True):
    """One line of the setting `keys`: a group, the kinds of packets, and a key."""

    group: Name
    roles: tuple[Role, ...]
    key: str


def read_line(line: str) -> KeyLine:
    """`/group role[,role…]|all KEY`"""
    parts = line.split()
    if len(parts) != 3:
        raise SettingsError("a key is written as GROUP ROLE KEY", about=_without_secret(line))
    group, roles, key = parts
    names = ROLES if roles == "all" else tuple(roles.split("+"))
    for name in names:
        if name not in ROLES:
            raise SettingsError(f"{name!r} is not one of {', '.join(ROLES)} or all", about=_without_secret(line))
    return KeyLine(parse(group), names, key)  # type: ignore[arg-type]


def trust_of(group: Name, lines: Iterable[str]) -> Trust:
    """The validators that the lines of the setting `keys` give a group; digests where they say nothing."""
    found: dict[Role, list[TrustedKey]] = {}
    for line in map(read_line, lines):
        if line.group == group:
            for role in line.roles:
                found.setdefault(role, []).append(trusted_key(line.key))
    return Trust(**{role: Keys(keys) for role, keys in found.items()})


def signers_of(group: Name, lines: Iterable[str], node_key: NodeKey) -> Signers:
    """The signers that the lines of the setting `signers` give a member of a group.

    A key is `digest`, `hmac:BASE64`, or `node` for the node's own Ed25519 key.
    """
    found: dict[Role, Signer] = {}
    for line in map(read_line, lines):
        if line.group == group:
            signer = _signer(line.key, node_key)
            found.update(dict.fromkeys(line.roles, signer))
    return Signers(**_typed(found))


def trusted_key(text: str) -> TrustedKey:
    """A key from its text form."""
    text, _, scope = text.partition("@")
    try:
        return TrustedKey(_verifier(text), parse(scope) if scope else b"")
    except (ValueError, UsageError, binascii.Error):
        raise SettingsError(
            "not a key", hint="write digest, hmac:BASE64, ed25519:HEX or ecdsa:BASE64", about=text.partition(":")[0]
        ) from None


def _verifier(text: str) -> Verifier:
    kind, _, value = text.partition(":")
    if text == "digest":
        return Digest()
    if kind == "hmac":
        return Hmac(base64.b64decode(value, validate=True))
    if kind == "ed25519":
        return Ed25519Verifier(bytes.fromhex(value))
    if kind == "ecdsa":
        return EcdsaVerifier(base64.b64decode(value, validate=True))
    raise ValueError


def _signer(text: str, node_key: NodeKey) -> Signer:
    kind, _, value = text.partition(":")
    if text == "digest":
        return Digest()
    if text == "node":
        return Ed25519Signer(node_key)
    try:
        if kind == "hmac":
            return Hmac(base64.b64decode(value, validate=True))
    except (ValueError, UsageError, binascii.Error):
        pass
    raise SettingsError("not a key to sign with", hint="write digest, hmac:BASE64 or node", about=kind)


def _typed(found: Mapping[Role, Signer]) -> dict[str, Signer]:
    return {str(role): signer for role, signer in found.items()}


def _without_secret(line: str) -> str:
    return " ".join(line.split()[:2])[:80]
