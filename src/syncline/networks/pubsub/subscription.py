"""What a subscription hands over, and the deliveries in it: each waits for a verdict and keeps its place until then.

What becomes of a decided delivery is the overlay's business.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Self

from syncline.core.errors import ClosedError
from syncline.core.limits import PUBSUB_BATCH
from syncline.core.verdict import Verdict
from syncline.networks.host import Message
from syncline.networks.pubsub.neighbour import Neighbour
from syncline.networks.signal import Signal

Decided = Callable[["PubSubDelivery", Neighbour, Verdict], None]


class PubSubDelivery:
    """Implements `networks.host.Delivery`."""

    __slots__ = ("_decided", "_neighbour", "_pending", "message", "repeat", "verdict")

    def __init__(
        self, decided: Decided, neighbour: Neighbour, message: Message, verdict: Verdict | None, repeat: bool
    ) -> None:
        self._decided, self._neighbour, self._pending = decided, neighbour, True
        self.message, self.verdict, self.repeat = message, verdict, repeat

    @property
    def forwarder(self) -> str:
        return self._neighbour.peer

    def decide(self, verdict: Verdict) -> None:
        if self._pending:
            self._pending = False
            self._decided(self, self._neighbour, verdict)

    def release(self) -> None:
        """Give the place in the neighbour's budget back."""
        self._neighbour.undecided[self.message.topic] -= 1
        self._neighbour.undecided_bytes -= len(self.message.raw)
        self._neighbour.decided.set()


class TopicSubscription:
    """Implements `networks.host.Subscription`."""

    def __init__(self, topic: str, forward: bool, repeats: bool, refused: bool) -> None:
        self.topic, self.forward, self.repeats, self.refused = topic, forward, repeats, refused
        self._waiting: deque[PubSubDelivery] = deque()
        self._came = Signal()
        self._open = True

    def put(self, delivery: PubSubDelivery) -> None:
        self._waiting.append(delivery)
        self._came.set()

    async def receive(self) -> Sequence[PubSubDelivery]:
        waiting = self._waiting
        while not waiting:
            if not self._open:
                raise ClosedError("the subscription has ended", about=self.topic)
            await self._came.wait()
        if len(waiting) <= PUBSUB_BATCH:
            batch = list(waiting)
            waiting.clear()
            return batch
        return [waiting.popleft() for _ in range(PUBSUB_BATCH)]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[PubSubDelivery]:
        try:
            return await self.receive()
        except ClosedError:
            raise StopAsyncIteration from None

    def close(self) -> None:
        self._open = False
        for delivery in self._waiting:
            delivery.release()
        self._waiting.clear()
        self._came.set()
