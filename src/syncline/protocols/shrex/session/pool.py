"""A pool of peers that are asked in turn; one that failed rests for a while. Bounded; time is an argument."""

from __future__ import annotations

from collections import OrderedDict


class Pool:
    """Peers in the order in which they are to be asked next."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._resting: dict[str, float] = {}  # peer → until
        self._turns: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._turns)

    def __contains__(self, peer: object) -> bool:
        return peer in self._turns

    @property
    def peers(self) -> list[str]:
        return list(self._turns)

    def resting(self, now: float) -> list[str]:
        return [peer for peer, until in self._resting.items() if until > now]

    def add(self, peer: str) -> bool:
        """Whether the peer is new here. A full pool takes nobody in."""
        if peer in self._turns or len(self._turns) >= self._limit:
            return False
        self._turns[peer] = None
        return True

    def remove(self, peer: str) -> None:
        self._turns.pop(peer, None)
        self._resting.pop(peer, None)

    def take(self, now: float) -> str | None:
        """Whose turn it is; it then goes to the end of the line."""
        for peer in list(self._turns):
            if self._resting.get(peer, now) <= now:
                self._resting.pop(peer, None)
                self._turns.move_to_end(peer)
                return peer
        return None

    def rest(self, peer: str, until: float) -> None:
        """Do not ask the peer for a while."""
        if peer in self._turns:
            self._resting[peer] = until

    def next_rested(self, now: float) -> float | None:
        """When the next resting peer can be asked again; None if nobody rests."""
        return min((until for until in self._resting.values() if until > now), default=None)
