"""Rules on headers: a header is verified when its recomputed hash links it to a header we trust.

Votes of validators are not checked: whoever configures the trusted header, or believes the source's first one, decides
whom to follow; from there on no header can be slipped in, because each names the hash of the one before.
"""

from __future__ import annotations

import msgspec

from syncline.core.verdict import ACCEPT, Reason, Verdict, ignore, reject
from syncline.protocols.shrex.wire.header import Header


class Trusted(msgspec.Struct, frozen=True):
    """The header everything is linked back to."""

    height: int
    hash: bytes


class Kept(msgspec.Struct, frozen=True):
    """What is remembered of a verified header."""

    hash: bytes
    data_hash: bytes

    def to_bytes(self) -> bytes:
        return self.hash + self.data_hash

    @classmethod
    def from_bytes(cls, data: bytes) -> Kept:
        return cls(data[:32], data[32:])


def link(header: Header, previous: Kept | None, trusted: Trusted | None, *, is_first: bool) -> Verdict:
    """Whether a header continues our chain. `previous` is the verified header one below; `is_first` if there is none at
    all yet."""
    found = header.hash
    if trusted is not None and header.height == trusted.height and found != trusted.hash:
        return reject(Reason.HEADER_MISMATCH, "not the trusted header")
    if previous is not None:
        if header.last_block_hash == previous.hash:
            return ACCEPT
        return reject(Reason.HEADER_MISMATCH, "does not continue our chain")
    if not is_first:
        return ignore(Reason.HEADER_UNKNOWN, "the header below it is not known")
    if trusted is None or header.height == trusted.height:
        return ACCEPT
    return ignore(Reason.HEADER_UNKNOWN, "not linked to the trusted header yet")
