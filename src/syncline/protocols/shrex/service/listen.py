"""Listeners: who is told of each newly available block, once, in order. A slow one loses nothing unknowingly."""

from __future__ import annotations

from collections import deque

from syncline.core.errors import ClosedError, OverloadedError
from syncline.core.limits import SHREX_LISTENER_QUEUE, SHREX_LISTENERS
from syncline.networks.signal import Signal
from syncline.protocols.shrex.wire.notification import Notification


class Subscription:
    """Notifications that passed validation."""

    def __init__(self, listeners: Listeners) -> None:
        self._listeners = listeners
        self._waiting: deque[Notification] = deque()
        self._came = Signal()
        self._missed = 0
        self._open = True

    async def next(self) -> Notification:
        """Wait for the next notification.

        # ShrEx/Sub: returns only notifications which successfully pass validation
        Raises OverloadedError once, with their number, when some were missed because this was not called for too long;
        ClosedError when the subscription was closed.
        """
        while not self._waiting:
            if not self._open:
                raise ClosedError("the subscription has ended")
            await self._came.wait()
        if self._missed:
            missed, self._missed = self._missed, 0
            raise OverloadedError(f"{missed} notifications were missed", hint="the journal has them")
        return self._waiting.popleft()

    def put(self, notification: Notification) -> None:
        if len(self._waiting) >= SHREX_LISTENER_QUEUE:
            self._waiting.popleft()
            self._missed += 1
        self._waiting.append(notification)
        self._came.set()

    def close(self) -> None:
        self._open = False
        self._listeners.remove(self)
        self._came.set()


class Listeners:
    """All subscriptions of one service."""

    def __init__(self) -> None:
        self._all: list[Subscription] = []
        self.told = 0

    def __len__(self) -> int:
        return len(self._all)

    def subscribe(self) -> Subscription:
        if len(self._all) >= SHREX_LISTENERS:
            raise OverloadedError(f"there are {SHREX_LISTENERS} listeners already")
        subscription = Subscription(self)
        self._all.append(subscription)
        return subscription

    def tell(self, notification: Notification) -> None:
        self.told += 1
        for subscription in self._all:
            subscription.put(notification)

    def close(self) -> None:
        """End every subscription: nothing more will come."""
        for subscription in list(self._all):
            subscription.close()

    def remove(self, subscription: Subscription) -> None:
        if subscription in self._all:
            self._all.remove(subscription)
