"""Whom to let in: a client's token is good here and now, or the reason it is not."""

from __future__ import annotations

from collections.abc import Collection

from syncline.core import limits
from syncline.core.errors import DecodeError, RefusedError
from syncline.core.keys import verify
from syncline.core.verdict import Reason
from syncline.protocols.relay.wire.tokens import Claims, read


def check_token(text: str, *, audiences: Collection[str], now: int) -> Claims:
    """The claims of a token that is good at `now` (microseconds); raises RefusedError with the reason."""
    try:
        token = read(text)
    except DecodeError as error:
        raise RefusedError(error.message, reason=error.reason, about=error.about) from None
    if not verify(token.public, token.signature, token.signed):
        raise RefusedError("the token is not signed by its issuer", reason=Reason.INVALID_SIGNATURE)
    claims, skew = token.claims, limits.RELAY_CLOCK_SKEW
    if claims.exp * limits.SECOND <= now:
        raise RefusedError("the token has expired", reason=Reason.EXPIRED)
    if claims.iat * limits.SECOND > now + skew:
        raise RefusedError("the token is not valid yet", reason=Reason.FUTURE_TIMESTAMP)
    if claims.exp - claims.iat > limits.RELAY_TOKEN_SECONDS:
        raise RefusedError(
            f"a token may live {limits.RELAY_TOKEN_SECONDS} s at most", reason=Reason.INVALID_FIELD, about="exp"
        )
    if canonical_address(claims.aud) not in audiences:
        raise RefusedError("the token is for another relay", reason=Reason.UNAUTHORISED, about=claims.aud[:200])
    return claims


def canonical_address(url: str) -> str:
    """An address as audiences are compared: clients differ in a slash at the end."""
    return url.rstrip("/")
