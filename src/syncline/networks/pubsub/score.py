"""How well a neighbour behaves in the mesh, as one number: what it brought first, against what it got wrong.

The terms are GossipSub 1.1's: time in mesh (P1), first deliveries (P2), invalid messages (P4, squared) and broken
behaviour (P7, squared). Left out: mesh delivery deficits (P3), which other implementations ship disabled, application
scores (P5), and colocation (P6), because the host limits connections per address. Scores outlive a connection, so that
leaving and coming back clears nothing.
"""

from __future__ import annotations

from typing import Final

from syncline.core.limits import ADDRESSES_WATCHED
from syncline.networks.decay import Decaying

GOSSIP: Final = -10.0  # below: no IHAVE or IWANT is exchanged with the peer
PUBLISH: Final = -30.0  # below: our own messages are not flooded to it
GRAYLIST: Final = -80.0  # below: nothing it says is heard

_HALF_LIFE: Final = 60.0
_FRESH: Final = 1.0  # seconds a score is used before it is computed anew; faults count at once
_MESH_SECOND: Final = 0.01
_MESH_BEST: Final = 10.0
_FIRST: Final = 0.05
_FIRST_BEST: Final = 5.0
_INVALID: Final = -1.0
_BEHAVIOUR: Final = -1.0
_BEHAVIOUR_FREE: Final = 4.0  # slips nobody is blamed for


class Scores:
    """Scores of all peers seen lately."""

    def __init__(self, limit: int = ADDRESSES_WATCHED) -> None:
        self._first = Decaying(_HALF_LIFE, limit)
        self._invalid = Decaying(_HALF_LIFE, limit)
        self._behaviour = Decaying(_HALF_LIFE, limit)
        self._mesh_since: dict[str, dict[str, float]] = {}  # peer → topic → since, only of present mesh members
        self._fresh: dict[str, tuple[float, float]] = {}  # peer → (score, until when it may be used again)
        self._limit = limit

    def of(self, peer: str, now: float) -> float:
        score, until = self._fresh.get(peer, (0.0, now))
        if until <= now:
            score = self._computed(peer, now)
            if len(self._fresh) >= self._limit:
                self._fresh.clear()
            self._fresh[peer] = (score, now + _FRESH)
        return score

    def _computed(self, peer: str, now: float) -> float:
        in_mesh = max((now - since for since in self._mesh_since.get(peer, {}).values()), default=0.0)
        slips = max(0.0, self._behaviour.at(peer, now) - _BEHAVIOUR_FREE)
        return (
            min(_MESH_BEST, in_mesh * _MESH_SECOND)
            + min(_FIRST_BEST, self._first.at(peer, now) * _FIRST)
            + _INVALID * self._invalid.at(peer, now) ** 2
            + _BEHAVIOUR * slips**2
        )

    def grafted(self, peer: str, topic: str, now: float) -> None:
        self._mesh_since.setdefault(peer, {})[topic] = now

    def pruned(self, peer: str, topic: str) -> None:
        topics = self._mesh_since.get(peer, {})
        topics.pop(topic, None)
        if not topics:
            self._mesh_since.pop(peer, None)

    def delivered_first(self, peer: str, now: float) -> None:
        self._first.add(peer, 1.0, now)

    def invalid(self, peer: str, now: float) -> None:
        self._invalid.add(peer, 1.0, now)
        self._fresh.pop(peer, None)

    def misbehaved(self, peer: str, now: float, weight: float = 1.0) -> None:
        self._behaviour.add(peer, weight, now)
        self._fresh.pop(peer, None)
