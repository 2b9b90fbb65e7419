"""One link as a server keeps it: what was sent, what is confirmed, what is behind. What to send is decided in `links`."""

from __future__ import annotations

from collections import deque

from syncline.protocols.relay.session.cache import Entry
from syncline.protocols.relay.session.handshake import Handshake, Neighbour
from syncline.protocols.relay.session.outbox import Outbox, Port
from syncline.protocols.relay.wire.links import encode_parcel


class Link(Port):
    """One WebSocket to another server."""

    __slots__ = ("_unacked", "behind", "dialed", "handshake", "heard_at", "loading", "neighbour", "pinged_at",
                 "received", "sent", "strikes", "unconfirmed_bytes")  # fmt: skip

    def __init__(self, outbox: Outbox, handshake: Handshake, *, dialed: bool, now: float) -> None:
        super().__init__(outbox)
        self.handshake = handshake
        self.dialed = dialed
        self.neighbour: Neighbour | None = None  # once it has proven who it is
        self.heard_at = now
        self.pinged_at = now
        self.received = 0  # parcels dealt with
        self.sent: dict[str, int] = {}  # topic → position up to which everything is sent
        self.behind: dict[str, None] = {}
        self.loading = False
        self.strikes = 0
        self._unacked: deque[tuple[str, int, int]] = deque()
        self.unconfirmed_bytes = 0

    @property
    def peer(self) -> str:
        return self.neighbour.key if self.neighbour is not None else ""

    @property
    def unconfirmed(self) -> int:
        return len(self._unacked)

    def forward(self, entry: Entry, raw: bytes) -> None:
        self.binary(encode_parcel(entry.topic, raw))
        self.sent[entry.topic] = entry.position
        self._unacked.append((entry.topic, entry.position, len(raw)))
        self.unconfirmed_bytes += len(raw)

    def confirm(self, count: int) -> list[tuple[str, int]]:
        """The next `count` parcels, in the order they were sent, are on the neighbour's disk."""
        done = []
        for _ in range(min(count, len(self._unacked))):
            topic, position, size = self._unacked.popleft()
            self.unconfirmed_bytes -= size
            done.append((topic, position))
        return done


class Memory:
    """What a neighbour is known to have, kept over reconnects as long as it is the same run of that server."""

    __slots__ = ("confirmed", "epoch")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.confirmed: dict[str, int] = {}
