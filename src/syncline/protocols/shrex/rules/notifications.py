"""Rules on notifications: first sanity, from the bytes alone, then verification against what is known of the chain.

Sanity is content: the lake comes to the same answer from the same bytes. Verification is context, because it depends on
the headers a node knew; the lake checks it again by joining with the headers.
"""

from __future__ import annotations

from typing import Final

import msgspec

from syncline.core.errors import DecodeError
from syncline.core.limits import SHREX_MESSAGE_BYTES, SHREX_NOTIFICATION_BYTES
from syncline.core.verdict import ACCEPT, Reason, Verdict, ignore, reject
from syncline.formats import pubsub
from syncline.protocols.shrex.wire.notification import HASH_BYTES, Notification, decode

EMPTY_ROOT: Final = bytes.fromhex("3d96b7d238e7e0456f6af8e7cdf0a67bd6cf9c2089ecb559c659dcaa1f880353")
"""The data root of a block without data: nobody needs to be told of it, and no honest peer does."""


class Known(msgspec.Struct, frozen=True):
    """What is known of the chain when a notification is verified. Heights 0 mean that no header is known yet."""

    data_hash: bytes | None  # of the verified header at the notification's height
    first: int  # the lowest height whose header is kept
    head: int  # the highest


def judge_message(raw: bytes, topic: str) -> tuple[pubsub.Signed | None, Notification | None, Verdict]:
    """A signed pubsub message: what it says, as far as it can be read, and whether it is sane."""
    if len(raw) > SHREX_MESSAGE_BYTES:
        return None, None, reject(Reason.OVERSIZE, f"{len(raw)} bytes")
    try:
        signed = pubsub.decode_message(raw)
    except DecodeError as error:
        return None, None, error.verdict
    if signed.topic != topic:
        return signed, None, reject(Reason.INVALID_TOPIC, signed.topic[:80])
    verdict = pubsub.judge(signed)
    if not verdict.accepted:
        return signed, None, verdict
    notification, verdict = judge_payload(signed.data)
    return signed, notification, verdict


def judge_payload(data: bytes) -> tuple[Notification | None, Verdict]:
    """The notification inside, and whether it is sane."""
    # ShrEx/Sub: message size MUST NOT exceed protocol limits
    if len(data) > SHREX_NOTIFICATION_BYTES:
        return None, reject(Reason.OVERSIZE, f"{len(data)} bytes")
    try:
        notification = decode(data)
    except DecodeError as error:
        return None, error.verdict
    return notification, judge_fields(notification)


def judge_fields(notification: Notification) -> Verdict:
    """Whether height and hash can be those of a block."""
    # ShrEx/Sub: hash length MUST be exactly 32 bytes
    if len(notification.data_hash) != HASH_BYTES:
        return reject(Reason.INVALID_FIELD, f"a hash of {len(notification.data_hash)} bytes")
    # ShrEx/Sub: hash MUST NOT be all zeros
    if not any(notification.data_hash):
        return reject(Reason.INVALID_FIELD, "a hash of zeros")
    if notification.data_hash == EMPTY_ROOT:
        return reject(Reason.INVALID_FIELD, "the root of an empty block")
    # ShrEx/Sub: height MUST be a non-zero positive integer
    if notification.height < 1:
        return reject(Reason.INVALID_FIELD, "height 0")
    return ACCEPT


def verify(notification: Notification, known: Known, refused_roots: frozenset[bytes] = frozenset()) -> Verdict:
    """Whether the notification is about a block of our chain, and not of those whose roots the operator refuses.

    # ShrEx/Sub: height MUST correspond to a verified header of the subjective chain, whose data root MUST match
    """
    if notification.data_hash in refused_roots:
        return reject(Reason.UNAUTHORISED, "a root that this node refuses")
    if known.data_hash is not None:
        if notification.data_hash == known.data_hash:
            return ACCEPT
        return reject(Reason.HEADER_MISMATCH, "another hash than the verified header's")
    if not known.head or notification.height > known.head:
        return ignore(Reason.HEADER_UNKNOWN)  # we may simply be behind: nobody is to blame
    if notification.height < known.first:
        return ignore(Reason.OUT_OF_WINDOW, "below the headers that are kept")
    return reject(Reason.HEADER_UNKNOWN, "our chain has passed this height")
