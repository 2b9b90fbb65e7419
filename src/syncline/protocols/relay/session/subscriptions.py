"""Subscriptions: remembered durably, so that messages are kept and attracted for clients that are away for a while.

A remembered subscription makes a topic wanted here; deliveries begin only when the client subscribes in a connection,
because a client that has not asked yet drops what it is sent. A change counts here as soon as it is asked for, so that
caps count what is on its way; if it cannot be kept, what the disk holds counts again.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence

from syncline.core.clock import Clock
from syncline.core.limits import SECOND
from syncline.core.ports import Receipt, StateChange
from syncline.protocols.relay.session import durable
from syncline.protocols.relay.session.batches import CommitQueue
from syncline.protocols.relay.session.clients import Client, Connection, Directory, Subscription
from syncline.protocols.relay.session.deliveries import Deliveries
from syncline.protocols.relay.session.publishing import Reply
from syncline.protocols.relay.session.quotas import Quotas
from syncline.protocols.relay.session.unsettled import Unsettled

Interest = Callable[[str, bool], None]  # topic, whether it is wanted now


class Subscriptions:
    """Who wants what, in memory and on disk."""

    def __init__(
        self,
        directory: Directory,
        deliveries: Deliveries,
        queue: CommitQueue,
        quotas: Quotas,
        clock: Clock,
        interest: Interest,
        is_connected: Callable[[bytes, str], bool],
    ) -> None:
        self._directory = directory
        self._deliveries = deliveries
        self._queue = queue
        self._quotas = quotas
        self._clock = clock
        self._interest = interest
        self._is_connected = is_connected
        self._unsettled = Unsettled()
        self._ends: list[tuple[int, bytes, str]] = []  # when to look again at what is settled

    def restore(self, public: bytes, topic: str, ends_at: int) -> None:
        """Take in what a former run remembered."""
        self._remember(public, topic, ends_at)
        self._look_again(public, topic, ends_at)

    def room(self, client: Client, topics: Sequence[str]) -> str:
        """Which cap these topics would break; empty if none."""
        new = sum(1 for topic in set(topics) if self._directory.ends_at(client.public, topic) is None)
        if self._directory.topics_of(client.public) + new > self._quotas.topics_per_client:
            return f"a client may subscribe to {self._quotas.topics_per_client} topics"
        if self._directory.count + new > self._quotas.subscriptions:
            return f"this server remembers {self._quotas.subscriptions} subscriptions"
        return ""

    def subscribe(self, connection: Connection, topics: Sequence[str], reply: Reply) -> None:
        """Deliveries begin, and the client is answered, with the commit."""
        ends_at = self._clock.now() + self._quotas.subscription_seconds * SECOND
        public = connection.client.public
        stale = [topic for topic in dict.fromkeys(topics) if self._is_stale(public, topic)]
        changes = [self._change(public, topic, ends_at) for topic in stale]
        self._queue.put([], changes, _Listening(self, connection, topics, stale, reply))

    def unsubscribe(self, client: Client, topics: Sequence[str], reply: Reply) -> None:
        """By client and topic: clients name subscriptions by ids of their own. Deliveries end with the commit."""
        once = list(dict.fromkeys(topics))
        changes = [self._change(client.public, topic, None) for topic in once]
        self._queue.put([], changes, _Leaving(self, client, once, reply))

    def settle(self, public: bytes, topics: Iterable[str], *, kept: bool) -> None:
        """The oldest change of each is on disk, or could not be kept."""
        for topic in topics:
            ends_at = self._unsettled.settle((public, topic), kept=kept)
            self._set(public, topic, ends_at)
            if ends_at is not None and (public, topic) not in self._unsettled:
                self._look_again(public, topic, ends_at)

    def listen(self, connection: Connection, topics: Sequence[str]) -> list[str]:
        """Begin to deliver; returns the subscriptions' ids."""
        ids = []
        for topic in topics:
            subscription = connection.subscriptions.get(topic)
            if subscription is None:
                cursor = connection.client.cursors.get(topic)
                subscription = Subscription(connection, topic, cursor.through if cursor is not None else 0)
                connection.subscriptions[topic] = subscription
                self._directory.listen(subscription)
            ids.append(subscription.id)
        return ids

    def leave(self, client: Client, topics: Iterable[str]) -> None:
        for topic in topics:
            for connection in client.connections:
                self._deliveries.drop(connection, topic)
                self._directory.unlisten(connection, topic)
                connection.subscriptions.pop(topic, None)

    def catch_up(self, connection: Connection, topics: Sequence[str]) -> None:
        for topic in topics:
            self._deliveries.catch_up(connection, topic)

    def disconnect(self, connection: Connection) -> None:
        """Stop delivering; the subscriptions are remembered until they end."""
        for topic in connection.subscriptions:
            self._directory.unlisten(connection, topic)
        connection.subscriptions.clear()

    def expire(self) -> None:
        """Prolong subscriptions of connected clients, and end those of clients that did not come back."""
        now, later = self._clock.now(), self._clock.now() + self._quotas.subscription_seconds * SECOND
        prolonged: list[tuple[bytes, str]] = []
        changes: list[StateChange] = []
        while self._ends and self._ends[0][0] <= now:
            due, public, topic = heapq.heappop(self._ends)
            ends_at = self._directory.ends_at(public, topic)
            if ends_at is None or (public, topic) in self._unsettled or due < self._halfway(ends_at):
                continue  # what is on its way, or came since, is looked at in its own time
            if self._is_connected(public, topic):
                prolonged.append((public, topic))
                changes.append(self._change(public, topic, later))
            elif ends_at <= now:
                self._forget(public, topic)
            else:
                heapq.heappush(self._ends, (ends_at, public, topic))
        if changes:
            self._queue.put([], changes, _Prolonging(self, prolonged))

    def _is_stale(self, public: bytes, topic: str) -> bool:
        """Whether what is on disk is not sure to stand for another subscription, or ends too soon."""
        ends_at = self._directory.ends_at(public, topic)
        if ends_at is None or (public, topic) in self._unsettled:
            return True
        return ends_at - self._clock.now() < self._quotas.subscription_seconds * SECOND * 3 // 4

    def _change(self, public: bytes, topic: str, ends_at: int | None) -> StateChange:
        """A change that is to be put on its way; from now on it counts here."""
        self._unsettled.begin((public, topic), self._directory.ends_at(public, topic), ends_at)
        self._set(public, topic, ends_at)
        return durable.subscription_change(public, topic, ends_at)

    def _set(self, public: bytes, topic: str, ends_at: int | None) -> None:
        if ends_at is None:
            self._forget(public, topic)
        else:
            self._remember(public, topic, ends_at)

    def _look_again(self, public: bytes, topic: str, ends_at: int) -> None:
        heapq.heappush(self._ends, (self._halfway(ends_at), public, topic))

    def _halfway(self, ends_at: int) -> int:
        return ends_at - self._quotas.subscription_seconds * SECOND // 2

    def _remember(self, public: bytes, topic: str, ends_at: int) -> None:
        was_wanted = self._directory.is_wanted(topic)
        self._directory.remember(public, topic, ends_at)
        if not was_wanted:
            self._interest(topic, True)

    def _forget(self, public: bytes, topic: str) -> None:
        if self._directory.forget(public, topic):
            self._interest(topic, False)


class _Listening:
    """What happens after the commit: the client is told, then it gets what is cached."""

    __slots__ = ("_changed", "_connection", "_reply", "_subscriptions", "_topics")

    def __init__(
        self,
        subscriptions: Subscriptions,
        connection: Connection,
        topics: Sequence[str],
        changed: Sequence[str],
        reply: Reply,
    ) -> None:
        self._subscriptions = subscriptions
        self._connection = connection
        self._topics = topics
        self._changed = changed
        self._reply = reply

    def done(self, receipts: Sequence[Receipt]) -> None:
        self._subscriptions.settle(self._connection.client.public, self._changed, kept=True)
        if self._connection not in self._connection.client.connections:
            return  # it has gone meanwhile
        self._reply.ok(self._subscriptions.listen(self._connection, self._topics))
        self._subscriptions.catch_up(self._connection, self._topics)

    def failed(self, error: Exception) -> None:
        self._subscriptions.settle(self._connection.client.public, self._changed, kept=False)
        self._reply.failed(error)


class _Leaving:
    """What happens after the commit: nothing more is delivered."""

    __slots__ = ("_client", "_reply", "_subscriptions", "_topics")

    def __init__(self, subscriptions: Subscriptions, client: Client, topics: Sequence[str], reply: Reply) -> None:
        self._subscriptions = subscriptions
        self._client = client
        self._topics = topics
        self._reply = reply

    def done(self, receipts: Sequence[Receipt]) -> None:
        self._subscriptions.settle(self._client.public, self._topics, kept=True)
        self._subscriptions.leave(self._client, self._topics)
        self._reply.ok(True)

    def failed(self, error: Exception) -> None:
        self._subscriptions.settle(self._client.public, self._topics, kept=False)
        self._reply.failed(error)


class _Prolonging:
    """What happens after the commit: nothing, or it is tried again at the next look."""

    __slots__ = ("_prolonged", "_subscriptions")

    def __init__(self, subscriptions: Subscriptions, prolonged: Sequence[tuple[bytes, str]]) -> None:
        self._subscriptions = subscriptions
        self._prolonged = prolonged  # client, topic

    def done(self, receipts: Sequence[Receipt]) -> None:
        self._settle(kept=True)

    def failed(self, error: Exception) -> None:
        self._settle(kept=False)

    def _settle(self, *, kept: bool) -> None:
        for public, topic in self._prolonged:
            self._subscriptions.settle(public, [topic], kept=kept)
