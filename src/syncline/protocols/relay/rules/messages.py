"""Judges one network message on its topic: what it says, whether it is good, and the record it becomes.

Only content is judged here, from the bytes and the arrival time, so the lake comes to the same verdict. Quotas, rates and
repeats are found by the session and travel as `Incoming.context`.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from syncline.core import limits
from syncline.core.errors import DecodeError
from syncline.core.record import Arrival, Direction, Incoming
from syncline.core.verdict import ACCEPT, Reason, Verdict, ignore, reject
from syncline.protocols.relay.wire.messages import V2, NetworkMessage, decode

PROTOCOL: Final = "relay"
KIND: Final = "message"
_TIME_MAX: Final = 2**63 - 1
_OUT: Final = Direction.OUT  # looking up a member of an enum takes as long as a check
_UNKEPT: Final = (Reason.EXPIRED, Reason.OVERSIZE)  # the raw bytes of these are not kept
_INVALID_TOPIC: Final = Reason.INVALID_TOPIC
is_topic: Final = re.compile(r"[0-9a-f]{64}").fullmatch


class Taken(Incoming, frozen=True, kw_only=True, gc=False):
    """A message the session has already taken apart, so that the judge need not do it again."""

    message: NetworkMessage
    digest: bytes


def judge_message(topic: str, raw: bytes, now: int) -> tuple[NetworkMessage | None, Verdict]:
    """What the bytes say and whether they are good at `now` (microseconds)."""
    if len(raw) > V2.size + limits.RELAY_MESSAGE_MAX:
        return None, reject(Reason.OVERSIZE, f"{len(raw)} bytes")
    try:
        message = decode(raw)
    except DecodeError as error:
        return None, error.verdict
    return message, verdict_on(topic, message, now)


def verdict_on(topic: str, message: NetworkMessage, now: int) -> Verdict:
    if not is_topic(topic):
        return reject(Reason.INVALID_TOPIC, "a topic is 64 lower-case hex digits")
    if len(message.message) > limits.RELAY_MESSAGE_MAX:
        return reject(Reason.OVERSIZE, f"{len(message.message)} bytes")
    if not 1 <= message.ttl <= limits.RELAY_TTL_MAX:
        return reject(Reason.INVALID_FIELD, f"ttl {message.ttl} s")
    # A server that could date messages ahead would keep them longer than their ttl everywhere.
    if message.published_at > now + limits.RELAY_CLOCK_SKEW:
        return reject(Reason.FUTURE_TIMESTAMP, f"timestamp {message.timestamp}")
    if message.expires_at <= now:
        return ignore(Reason.EXPIRED)
    return ACCEPT


def message_id(topic: str, digest: bytes) -> bytes:
    """The identity of a message: topic and hash. The same text on another topic is another message."""
    return bytes.fromhex(topic) + digest


class RelayJudge:
    """Implements `core.ports.Judge`."""

    def __call__(self, incoming: Incoming) -> Arrival:
        message: NetworkMessage | None
        if isinstance(incoming, Taken):
            message, digest = incoming.message, incoming.digest
            verdict = verdict_on(incoming.topic, message, incoming.received_at)
        else:
            message, verdict = judge_message(incoming.topic, incoming.raw, incoming.received_at)
            digest = message.hash if message is not None else b""
        reason, topic = verdict.reason, incoming.topic
        direction, peer = incoming.direction, incoming.peer
        wrote = direction is _OUT or peer.startswith("did:key:")
        return Arrival(
            protocol=PROTOCOL,
            topic=topic[: limits.TEXT_MAX],
            kind=KIND,
            id=message_id(topic, digest) if digest and reason is not _INVALID_TOPIC else _id(incoming),
            direction=direction,
            publisher=peer if wrote else "",  # a server hands on what somebody else wrote
            peer=peer,
            published_at=_time(message.published_at) if message else None,
            expires_at=_time(message.expires_at) if message else None,
            received_at=incoming.received_at,
            raw=incoming.raw if reason is None or reason not in _UNKEPT else None,
            verdict=verdict.outcome,
            reason=reason,
        )


def _id(incoming: Incoming) -> bytes:
    """A name for what has none of its own."""
    return hashlib.sha256(incoming.topic.encode("utf-8", "replace") + b"\0" + incoming.raw).digest()


def _time(microseconds: int) -> int | None:
    """Times of u64 milliseconds may be beyond what a record holds."""
    return microseconds if microseconds <= _TIME_MAX else None
