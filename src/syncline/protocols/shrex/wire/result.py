"""What became of a request for a block's data: kept so that the lake can tell which peers serve what they announce."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from syncline.core.errors import DecodeError


class Outcome(StrEnum):
    """The word of whoever asked the peer."""

    NOOP = "noop"  # it served, or failed for no fault of its own
    COOLDOWN = "cooldown"  # it could not serve now: not asked for a while
    BLACKLIST = "blacklist"  # it served something wrong, or nothing it had announced


class PeerResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One request and its result."""

    peer: str
    height: int
    data_hash: str  # hex
    result: Outcome
    source: str  # pool: it announced this hash; nodes: it had announced others


def encode(result: PeerResult) -> bytes:
    return msgspec.json.encode(result)


def decode(data: bytes) -> PeerResult:
    try:
        return msgspec.json.decode(data, type=PeerResult)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"not a result: {error}") from None
