"""A neighbour as one overlay sees it, and what an overlay asks of the host to reach it. Decides nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from syncline.core.limits import PUBSUB_UNDECIDED, PUBSUB_UNDECIDED_BYTES
from syncline.networks.host import Cut
from syncline.networks.pubsub.outbox import Outbox
from syncline.networks.signal import Signal


class Channel(Protocol):
    """A stream of the host, as far as pubsub needs it."""

    protocol: str

    @property
    def peer(self) -> str: ...

    async def receive(self, most: int = ...) -> bytes: ...

    async def send(self, data: bytes) -> None: ...

    def close(self) -> None:
        """End our side; the peer still gets all that was sent."""
        ...


class Links(Protocol):
    """What pubsub asks of the host."""

    async def open_channel(self, peer: str, protocols: Sequence[str]) -> Channel: ...

    def cut(self, peer: str, why: Cut) -> None: ...

    def blame(self, peer: str, weight: float = 1.0) -> None: ...

    def dialled(self, peer: str) -> bool:
        """Whether we opened the connection to this peer."""
        ...


class Neighbour:
    """A connected peer, as one overlay sees it."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.outbox = Outbox()
        self.topics: set[str] = set()
        self.undecided: Counter[str] = Counter()
        self.undecided_bytes = 0
        self.decided = Signal()
        self.readers = 0
        self.sending_since: float | None = None
        self.why: Cut | None = None  # why it has gone

    def owes(self, topic: str) -> bool:
        """Whether so much of what it brought is undecided that it is not listened to for now."""
        return self.undecided[topic] >= PUBSUB_UNDECIDED or self.undecided_bytes >= PUBSUB_UNDECIDED_BYTES
