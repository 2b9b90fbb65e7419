"""The session: what to do with each notification that came, now or when its header is known.

Sans-I/O: events in, actions out; the time is an argument. A ticket is whatever the driver wants to get back with the
decision. Nothing is decided twice, and everything held is bounded: by peer, in all, in height and in time.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any, Final

import msgspec

from syncline.core.limits import (
    SHREX_AHEAD,
    SHREX_HEADERS,
    SHREX_HELD,
    SHREX_HELD_PER_PEER,
    SHREX_VALIDATION_SECONDS,
)
from syncline.core.verdict import Reason, Verdict
from syncline.protocols.shrex.rules.notifications import Known, judge_fields, verify
from syncline.protocols.shrex.session.peers import PeerManager
from syncline.protocols.shrex.wire.notification import Notification

# Blocks that listeners were told of. While a header is kept, at most so many others can be told of: those with a header
# kept before it and those after; so none of them is told of twice.
DELIVERED_KEPT: Final = 2 * SHREX_HEADERS


class Settle(msgspec.Struct, frozen=True):
    """A notification is decided."""

    ticket: Any
    verdict: Verdict


class CutPeer(msgspec.Struct, frozen=True):
    """A peer was blacklisted: it is to be disconnected."""

    peer: str


Action = Settle | CutPeer


class _Held(msgspec.Struct):
    ticket: Any
    peer: str
    notification: Notification
    deadline: float


class Session:
    """One node's side of ShrEx/Sub."""

    def __init__(
        self,
        manager: PeerManager,
        *,
        validation_seconds: float = SHREX_VALIDATION_SECONDS,
        refused_roots: frozenset[bytes] = frozenset(),
    ) -> None:
        self.manager = manager
        self._refused_roots = refused_roots
        self._validation_seconds = validation_seconds
        self._headers: OrderedDict[int, bytes] = OrderedDict()  # verified: height → data hash
        self._first = self._head = 0
        self._held: OrderedDict[int, _Held] = OrderedDict()  # in the order of their deadlines
        self._held_of: Counter[str] = Counter()
        self._waiting: dict[int, list[int]] = {}  # height → numbers of held notifications
        self._number = 0
        self._delivered: OrderedDict[tuple[int, bytes], None] = OrderedDict()

    @property
    def head(self) -> int:
        return self._head

    @property
    def held(self) -> int:
        return len(self._held)

    # events

    def arrived(self, ticket: Any, peer: str, notification: Notification, now: float) -> list[Action]:
        """A sane, properly signed notification came from a peer."""
        verdict = judge_fields(notification)
        if verdict.accepted:
            verdict = self.verdict(notification)
        if verdict.reason is Reason.HEADER_UNKNOWN and self._may_hold(peer, notification):
            self._hold(ticket, peer, notification, now)
            return []
        return [Settle(ticket, verdict)]

    def header(self, height: int, data_hash: bytes, now: float) -> list[Action]:
        """The header above the newest one was verified; what waited for it is decided."""
        self._headers[height] = data_hash
        if len(self._headers) > SHREX_HEADERS:
            self._headers.popitem(last=False)
        self._first, self._head = next(iter(self._headers)), height
        self.manager.header(height, data_hash, now)
        return [self._settle(number) for number in self._waiting.pop(height, ())]

    def tick(self, now: float) -> list[Action]:
        """Decide what has waited long enough."""
        self.manager.tick(now)
        actions: list[Action] = []
        while self._held and next(iter(self._held.values())).deadline <= now:
            number = next(iter(self._held))
            height = self._held[number].notification.height
            self._waiting[height].remove(number)
            if not self._waiting[height]:
                del self._waiting[height]
            actions.append(self._settle(number))
        return actions

    def settled(self, peer: str, notification: Notification, verdict: Verdict) -> list[Action]:
        """What was decided is on disk: credit or blacklist the peer that brought it."""
        if verdict.accepted:
            self.manager.credit(peer, notification.data_hash, notification.height)
            return []
        lied = verdict.blames_sender and verdict.reason is Reason.HEADER_MISMATCH
        return [CutPeer(peer)] if lied and self.manager.mismatch(peer, notification.data_hash) else []

    def is_news(self, notification: Notification) -> bool:
        """Whether listeners have not heard of this block yet. Each announcement counts for its peer, one for listeners."""
        key = (notification.height, notification.data_hash)
        if key in self._delivered:
            return False
        self._delivered[key] = None
        if len(self._delivered) > DELIVERED_KEPT:
            self._delivered.popitem(last=False)
        return True

    # deciding

    def known(self, height: int) -> Known:
        return Known(self._headers.get(height), self._first, self._head)

    def verdict(self, notification: Notification) -> Verdict:
        """What is to be said of a sane notification with what is known now."""
        return verify(notification, self.known(notification.height), self._refused_roots)

    def _may_hold(self, peer: str, notification: Notification) -> bool:
        near = not self._head or notification.height <= self._head + SHREX_AHEAD
        credible = near and not self.manager.is_bad_hash(notification.data_hash)
        return credible and self._held_of[peer] < SHREX_HELD_PER_PEER and len(self._held) < SHREX_HELD

    def _hold(self, ticket: Any, peer: str, notification: Notification, now: float) -> None:
        self._number += 1
        self._held[self._number] = _Held(ticket, peer, notification, now + self._validation_seconds)
        self._held_of[peer] += 1
        self._waiting.setdefault(notification.height, []).append(self._number)

    def _settle(self, number: int) -> Settle:
        held = self._held.pop(number)
        self._held_of[held.peer] -= 1
        if not self._held_of[held.peer]:
            del self._held_of[held.peer]
        return Settle(held.ticket, self.verdict(held.notification))

    def statistics(self, now: float) -> dict[str, int | float]:
        return {
            "head": self._head,
            "first": self._first,
            "headers": len(self._headers),
            "held": len(self._held),
            **self.manager.statistics(now),
        }
