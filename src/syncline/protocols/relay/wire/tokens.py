"""Client tokens: JWTs signed with the Ed25519 key inside the issuer's did:key. One form is written and one is read.

Taking a token apart says nothing about whom to let in: audience and time are judged in rules.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

import msgspec

from syncline.core.errors import DecodeError
from syncline.core.keys import NodeKey, public_of_did_key
from syncline.core.limits import RELAY_TOKEN_BYTES
from syncline.core.verdict import Reason

ALGORITHM: Final = "EdDSA"


class Header(msgspec.Struct, frozen=True):
    alg: str
    typ: str = "JWT"
    crit: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class Claims(msgspec.Struct, frozen=True):
    """What a client says of itself. Times are in seconds."""

    iss: str  # did:key of the client
    sub: str  # a nonce of the client's
    aud: str  # the relay's address. One: a list would let a token work in several places
    iat: int
    exp: int


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token taken apart, its signature not checked yet."""

    claims: Claims
    public: bytes
    signed: bytes
    signature: bytes


def write(key: NodeKey, *, audience: str, subject: str, issued_at: int, seconds: int) -> str:
    """A token by `key`, good for `seconds` from `issued_at`."""
    claims = Claims(iss=key.did, sub=subject, aud=audience, iat=issued_at, exp=issued_at + seconds)
    signed = f"{_wrap(msgspec.json.encode(Header(alg=ALGORITHM)))}.{_wrap(msgspec.json.encode(claims))}"
    return f"{signed}.{_wrap(key.sign(signed.encode()))}"


def read(text: str) -> Token:
    """The parts of a token; raises DecodeError for any other algorithm or form."""
    if len(text) > RELAY_TOKEN_BYTES:
        raise DecodeError(f"a token is at most {RELAY_TOKEN_BYTES} bytes", reason=Reason.OVERSIZE, about="token")
    parts = text.split(".")
    if len(parts) != 3:
        raise DecodeError("a token has three parts", about="token")
    try:
        header = msgspec.json.decode(_unwrap(parts[0]), type=Header)
        claims = msgspec.json.decode(_unwrap(parts[1]), type=Claims)
        signature = _unwrap(parts[2])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise DecodeError(f"not a token: {error}", about="token") from None
    if header.alg != ALGORITHM or header.typ != "JWT" or header.crit is not msgspec.UNSET:
        raise DecodeError("only EdDSA tokens are accepted", reason=Reason.INVALID_SIGNATURE, about="token.alg")
    return Token(
        claims=claims,
        public=public_of_did_key(claims.iss),
        signed=f"{parts[0]}.{parts[1]}".encode(),
        signature=signature,
    )


def _wrap(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _unwrap(text: str) -> bytes:
    """Base64url without padding, in its one canonical spelling."""
    data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    if _wrap(data) != text:
        raise ValueError("not base64url")
    return data
