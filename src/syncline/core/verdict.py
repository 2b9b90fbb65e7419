"""The three-way verdict on a message and the closed list of reasons behind it.

A reason is about *content* (the same bytes get the same answer for ever, given the time they arrived) or about
*context* (what else was going on when they came). The lake judges content again and must agree with the node.
Who is punished for a reject, and how, is not decided here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec


class Outcome(StrEnum):
    """What became of a message."""

    ACCEPT = "accept"
    REJECT = "reject"  # the sender broke the protocol: dropped and counted against it
    IGNORE = "ignore"  # harmless: a duplicate, out of date, not for us


class Reason(StrEnum):
    """Why a message was not accepted. One list for node, metrics, pages and lake; every member has a line in docs."""

    about: Literal["content", "context"]
    doc: str

    def __new__(cls, value: str, about: Literal["content", "context"] = "content", doc: str = "") -> Reason:
        member = str.__new__(cls, value)
        member._value_ = value
        member.about = about
        member.doc = doc
        return member

    # content: judged from the bytes and the arrival time alone
    MALFORMED = "malformed", "content", "the bytes are not a message of this protocol"
    OVERSIZE = "oversize", "content", "the message, or what it unpacks to, is larger than the protocol allows"
    TOO_COMPLEX = "too_complex", "content", "nested deeper, or made of more parts, than the protocol allows"
    UNSUPPORTED_VERSION = "unsupported_version", "content", "a version of the protocol that nobody here speaks"
    INVALID_FIELD = (
        "invalid_field",
        "content",
        "a field holds a value, or a combination of values, the protocol forbids",
    )
    INVALID_PUBLISHER = "invalid_publisher", "content", "the publisher's name is not one a key can be read from"
    INVALID_SIGNATURE = "invalid_signature", "content", "missing, forged or of a kind that is not accepted"
    INVALID_PAYLOAD = "invalid_payload", "content", "the payload does not verify against its schema"
    INVALID_TOPIC = "invalid_topic", "content", "the topic is not of the form the protocol asks for"
    WRONG_HASH = "wrong_hash", "content", "the hash does not match the data or the verified header it names"
    FUTURE_TIMESTAMP = "future_timestamp", "content", "dated further ahead than clocks may differ"
    EXPIRED = "expired", "content", "its time to live had passed when it came"
    TOO_OLD = "too_old", "content", "older than the span in which repeats are remembered"

    # context: depends on what else the node knew or was doing
    DUPLICATE = "duplicate", "context", "a live accepted record of this id is already kept"
    RATE_LIMITED = "rate_limited", "context", "more than the sender's share for now"
    QUOTA_EXCEEDED = "quota_exceeded", "context", "a cap on what one sender or topic may keep here is reached"
    UNKNOWN_SCHEMA = "unknown_schema", "context", "a schema this installation does not know"
    UNKNOWN_ALGORITHM = "unknown_algorithm", "context", "no plug-in here can apply this delta algorithm"
    HEADER_UNKNOWN = "header_unknown", "context", "no verified header for this height was known in time"
    HEADER_MISMATCH = (
        "header_mismatch",
        "context",
        "another hash than the verified header of this height has, or a header that does not continue our chain",
    )
    NOT_SUBSCRIBED = "not_subscribed", "context", "nobody here asked for this topic"
    FORBIDDEN_ADDRESS = "forbidden_address", "context", "it points to an address that may not be fetched from here"
    UNAUTHORISED = "unauthorised", "context", "the sender may not do this here"
    PUBLISHER_MISMATCH = "publisher_mismatch", "context", "the object belongs to another publisher"
    SERIAL_JUMP = "serial_jump", "context", "a serial or sequence number further ahead than is believed"
    FROZEN = "frozen", "context", "the object was frozen by an earlier message and takes no more"
    FORK = "fork", "context", "another message with the same serial and other content came before"
    OUT_OF_WINDOW = "out_of_window", "context", "outside the range of heights or numbers being followed"
    LOOP = "loop", "context", "this server forwarded it before"
    OVERLOADED = "overloaded", "context", "a bounded queue or the disk had no room"
    JUDGE_FAILED = "judge_failed", "context", "a fault of ours while judging; logged, and nobody is punished"


class Verdict(msgspec.Struct, frozen=True):
    """What was decided of one message, why, and a line for people."""

    outcome: Outcome
    reason: Reason | None = None
    detail: str = ""

    @property
    def accepted(self) -> bool:
        return self.outcome is Outcome.ACCEPT

    @property
    def blames_sender(self) -> bool:
        """Whether it counts against the peer: a reject that is not a fault of ours."""
        return self.outcome is Outcome.REJECT and self.reason is not Reason.JUDGE_FAILED


ACCEPT = Verdict(Outcome.ACCEPT)


def reject(reason: Reason, detail: str = "") -> Verdict:
    """The sender broke the protocol."""
    return Verdict(Outcome.REJECT, reason, detail)


def ignore(reason: Reason, detail: str = "") -> Verdict:
    """Harmless, but not kept as valid."""
    return Verdict(Outcome.IGNORE, reason, detail)
