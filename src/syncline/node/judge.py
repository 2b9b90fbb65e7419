"""Judging: hands each message to its protocol's judge, and answers for it when that judge fails.

A judge of ours that raises is our fault: the message is kept with its bytes under `judge_failed`, nobody is punished, and
the node goes on. What makes a message good belongs to the protocols' rules.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import structlog

from syncline.core.limits import ID_MAX, RAW_MAX, TEXT_MAX
from syncline.core.ports import Judge
from syncline.core.record import Arrival, Incoming
from syncline.core.verdict import Reason, Verdict, reject

log = structlog.get_logger()


class Judges:
    """The judges of all running protocols."""

    def __init__(self, judges: Mapping[str, Judge]) -> None:
        self._judges = dict(judges)
        self.failures = 0

    def add(self, protocol: str, judge: Judge) -> None:
        self._judges[protocol] = judge

    def judge(self, incoming: Incoming) -> Arrival:
        """The message with its verdict. Never raises for what a peer sent."""
        if len(incoming.raw) > RAW_MAX:
            return _refused(incoming, reject(Reason.OVERSIZE, f"{len(incoming.raw)} bytes"), keep=False)
        try:
            arrival = self._judges[incoming.protocol](incoming)
        except Exception:
            self.failures += 1
            log.exception("judge_failed", protocol=incoming.protocol, topic=incoming.topic, peer=incoming.peer)
            return _refused(incoming, reject(Reason.JUDGE_FAILED), keep=True)
        if incoming.context is not None and arrival.accepted:
            arrival = arrival.judged(incoming.context)
        if (
            len(arrival.topic) > TEXT_MAX
            or len(arrival.key) > TEXT_MAX
            or len(arrival.publisher) > TEXT_MAX
            or len(arrival.peer) > TEXT_MAX
        ):
            return _refused(incoming, reject(Reason.OVERSIZE, "a name is too long"), keep=True)
        if len(arrival.id) > ID_MAX:
            return _refused(incoming, reject(Reason.OVERSIZE, "an id is too long"), keep=True)
        return arrival


def _refused(incoming: Incoming, verdict: Verdict, *, keep: bool) -> Arrival:
    return Arrival(
        protocol=incoming.protocol,
        topic=incoming.topic[:TEXT_MAX],
        kind="unknown",
        id=hashlib.sha256(incoming.raw).digest(),
        direction=incoming.direction,
        peer=incoming.peer[:TEXT_MAX],
        received_at=incoming.received_at,
        raw=incoming.raw if keep else None,
        verdict=verdict.outcome,
        reason=verdict.reason,
    )
