"""The disk of a simulated relay: what a journal keeps of it. Survives the server."""

from __future__ import annotations

from collections.abc import Sequence

from syncline.core.ports import Receipt, StateChange
from syncline.core.record import Arrival, Incoming
from syncline.core.verdict import Reason, ignore
from syncline.protocols.relay.rules.messages import RelayJudge
from syncline.protocols.relay.session.cache import Entry
from syncline.testing.clock import FakeClock


class MemoryDisk:
    """What a journal keeps of a relay: one row per live accepted id, and state. Survives the server."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._judge = RelayJudge()
        self.accepted: dict[bytes, Arrival] = {}
        self.arrivals: list[Arrival] = []
        self.state: dict[tuple[str, bytes], tuple[bytes, int | None]] = {}

    def append(self, incoming: Sequence[Incoming], state: Sequence[StateChange]) -> list[Receipt]:
        for change in state:
            if change.value is None:
                self.state.pop((change.space, change.key), None)
            else:
                self.state[change.space, change.key] = (change.value, change.expires_at)
        return [self._keep(message) for message in incoming]

    def _keep(self, message: Incoming) -> Receipt:
        arrival = self._judge(message)
        if arrival.accepted and message.context is not None:
            arrival = arrival.judged(message.context)
        live = self.accepted.get(arrival.id)
        if arrival.accepted and live is not None and (live.expires_at or 0) > self._clock.now():
            arrival = arrival.judged(ignore(Reason.DUPLICATE))
        if arrival.accepted:
            self.accepted[arrival.id] = arrival
        self.arrivals.append(arrival)
        return Receipt(arrival=arrival)

    def body(self, entry: Entry) -> bytes | None:
        arrival = self.accepted.get(entry.id)
        return arrival.raw if arrival is not None else None

    def scan(self, space: str, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
        now = self._clock.now()
        return sorted(
            (key, value)
            for (drawer, key), (value, expires_at) in self.state.items()
            if drawer == space and key.startswith(prefix) and (expires_at is None or expires_at > now)
        )
