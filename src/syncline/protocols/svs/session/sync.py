"""State Vector Sync, version 2: a node's vector, and when to send it.

Steady: a sync Interest every 30 s or so; a few at shorter intervals when joining, because a hello may be lost, or come
so soon after news that nobody answers it. Hearing from somebody who is behind, a node waits a short random time
(suppression) and speaks only if nobody else has told them in the meantime. Which claims to believe is decided before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from random import Random

import msgspec

from syncline.formats.ndn.names import Name
from syncline.protocols.svs.session.events import Options


class Update(msgspec.Struct, frozen=True):
    """Sequence numbers of a node that are new to us."""

    node: Name
    low: int
    high: int


class Sync:
    """The vector and the one timer of a group's member."""

    def __init__(self, options: Options, random: Random, now: float) -> None:
        self._options = options
        self._random = random
        self.vector: dict[Name, int] = {}
        self._updated: dict[Name, float] = {}
        self._heard: dict[Name, int] | None = None  # in suppression: what others have been told meanwhile
        self._lacked: set[Name] = set()  # and the nodes somebody lacked something of
        self._hellos = options.hellos
        self.tells: Callable[[Name], bool] = lambda node: True  # whether our vectors name a node
        self.may_be_cut: Callable[[Mapping[Name, int]], bool] = lambda vector: False  # for want of room in an Interest
        self.deadline = now  # say hello at once, so that others tell us where they are

    @property
    def suppressing(self) -> bool:
        return self._heard is not None

    def set(self, node: Name, seq: int) -> None:
        """Start from what was known before."""
        self.vector[node] = seq
        self._updated[node] = -math.inf

    def forget(self, node: Name) -> None:
        self.vector.pop(node, None)
        self._updated.pop(node, None)

    def publish(self, node: Name, seq: int, now: float) -> None:
        """Our own node has a new number: tell the group at once, whatever others have been told."""
        self.vector[node] = seq
        self._updated[node] = now
        self._heard = None
        self.deadline = now

    def learn(self, node: Name, seq: int, now: float) -> Update | None:
        """Take over a number that is believed; what is new to us."""
        known = self.vector.get(node, 0)
        if seq <= known:
            return None
        self.vector[node] = seq
        self._updated[node] = now
        return Update(node, known + 1, seq)

    def receive(self, vector: Mapping[Name, int], believed: Mapping[Name, int], now: float) -> list[Update]:
        """Take in a validated vector, of which `believed` may change ours; what is new to us."""
        if vector:
            self._hellos = 0
        behind = self._lacking(vector)
        learned = [self.learn(node, seq, now) for node, seq in believed.items()]
        updates = [update for update in learned if update is not None]
        if self._heard is not None:
            _merge(self._heard, vector)
            self._lacked.update(behind)
            return updates
        # A reply is due only if something the sender lacks is not brand new: what is, may still be on its way to them.
        settled = now - self._options.suppression
        if any(self._updated[node] <= settled for node in behind):
            self._heard, self._lacked = dict(vector), set(behind)
            self.deadline = now + self._suppression_delay()
        elif self.deadline > now and not self._hellos:
            self.deadline = now + self._periodic_delay()
        return updates

    def tick(self, now: float) -> bool:
        """Whether to send a sync Interest now."""
        if now < self.deadline:
            return False
        heard, self._heard = self._heard, None
        self._hellos -= self._hellos > 0
        self.deadline = now + (self._options.hello if self._hellos else self._periodic_delay())
        if heard is None:
            return True
        return any(heard.get(node, 0) < self.vector.get(node, 0) for node in self._lacked)

    def _lacking(self, vector: Mapping[Name, int]) -> list[Name]:
        """The nodes of which a vector says less than ours would.

        What we would not say either is no reason to speak, nor is what may only have found no room: otherwise everybody
        would answer everybody for ever.
        """
        cut = self.may_be_cut(vector)
        return [
            node
            for node, seq in self.vector.items()
            if vector.get(node, 0) < seq and (node in vector or not cut) and self.tells(node)
        ]

    def recent_first(self) -> list[Name]:
        """Nodes, those with news first: what to keep when a vector does not fit into one Interest."""
        return sorted(self.vector, key=lambda node: (-self._updated[node], node))

    def _periodic_delay(self) -> float:
        options = self._options
        return options.periodic * (1 + options.jitter * (2 * self._random.random() - 1))

    def _suppression_delay(self) -> float:
        """c·(1 − e^((v − c)/(c/f))) with v uniform in [0, c]: mostly close to c, seldom much shorter."""
        c, f = self._options.suppression, self._options.decay
        return -c * math.expm1((self._random.random() * c - c) / (c / f))


def _merge(into: dict[Name, int], vector: Mapping[Name, int]) -> None:
    for node, seq in vector.items():
        if seq > into.get(node, 0):
            into[node] = seq
