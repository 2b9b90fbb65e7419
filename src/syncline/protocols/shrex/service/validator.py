"""The validation interface, for whoever brings notifications over a network of their own.

# ShrEx/Sub: Validate(peerID PeerID, message []byte) -> ValidationResult
"""

from __future__ import annotations

from enum import StrEnum

import structlog

from syncline.core.verdict import Reason, Verdict, reject
from syncline.protocols.shrex.rules.notifications import judge_payload
from syncline.protocols.shrex.session.session import Session

log = structlog.get_logger()


class ValidationResult(StrEnum):
    """What the text knows. An ignore of ours is a reject without penalty."""

    ACCEPT = "accept"  # valid, and MUST be processed
    REJECT = "reject"  # invalid, and MUST be discarded


class MessageValidator:
    """Validates a notification and puts its bringer into the right pool."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def validate(self, peer: str, message: bytes) -> ValidationResult:
        """Accept or reject; never raises."""
        return ValidationResult.ACCEPT if self.judge(peer, message).accepted else ValidationResult.REJECT

    def judge(self, peer: str, message: bytes) -> Verdict:
        """The same with our three outcomes and a reason. `message` is the notification's protobuf."""
        try:
            return self._judge(peer, message)
        except Exception:  # a validator that fails rejects; it never takes the node down
            log.exception("shrex_validator_failed", peer=peer)
            return reject(Reason.JUDGE_FAILED)

    def _judge(self, peer: str, message: bytes) -> Verdict:
        notification, verdict = judge_payload(message)
        if notification is None or not verdict.accepted:
            return verdict
        verdict = self._session.verdict(notification)
        self._session.settled(peer, notification, verdict)
        return verdict
