"""Subscriptions: remembered durably, so that messages are kept and attracted for clients that are away for a while.

A remembered subscription makes a topic wanted here; deliveries begin only when the client subscribes in a connection,
because a client that has not asked yet drops what it is sent.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence

from syncline.core.clock import Clock
from syncline.core.limits import SECOND
from syncline.core.ports import Receipt, StateChange
from syncline.protocols.relay.session import durable
from syncline.protocols.relay.session.batches import CommitQueue
from syncline.protocols.relay.session.clients import Client, Connection, Directory, Subscription
from syncline.protocols.relay.session.deliveries import Deliveries
from syncline.protocols.relay.session.publishing import Reply
from syncline.protocols.relay.session.quotas import Quotas

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
        self._ends: list[tuple[int, bytes, str]] = []

    def restore(self, public: bytes, topic: str, ends_at: int) -> None:
        """Take in what a former run remembered."""
        self._remember(public, topic, ends_at)

    def room(self, client: Client, topics: Sequence[str]) -> str:
        """Which cap these topics would break; empty if none."""
        new = sum(1 for topic in set(topics) if self._directory.ends_at(client.public, topic) is None)
        if self._directory.topics_of(client.public) + new > self._quotas.topics_per_client:
            return f"a client may subscribe to {self._quotas.topics_per_client} topics"
        if self._directory.count + new > self._quotas.subscriptions:
            return f"this server remembers {self._quotas.subscriptions} subscriptions"
        return ""

    def subscribe(self, connection: Connection, topics: Sequence[str], reply: Reply) -> None:
        """Remember at once, so that caps count what is on its way; deliver and answer after the commit."""
        ends_at = self._clock.now() + self._quotas.subscription_seconds * SECOND
        public = connection.client.public
        stale = [topic for topic in dict.fromkeys(topics) if self._is_stale(public, topic)]
        new = [topic for topic in stale if self._directory.ends_at(public, topic) is None]
        for topic in stale:
            self._remember(public, topic, ends_at)
        changes = [durable.subscription_change(public, topic, ends_at) for topic in stale]
        self._queue.put([], changes, _Listening(self, connection, topics, new, reply))

    def unsubscribe(self, client: Client, topics: Sequence[str], reply: Reply) -> None:
        """By client and topic: clients name subscriptions by ids of their own.

        Forgotten at once, so that a subscribe that follows closely is a new one; deliveries end with the commit.
        """
        changes = [durable.subscription_change(client.public, topic, None) for topic in dict.fromkeys(topics)]
        former = {topic: self._directory.ends_at(client.public, topic) for topic in topics}
        self.forget(client.public, list(former))
        self._queue.put([], changes, _Leaving(self, client, former, reply))

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

    def stay(self, client: Client, former: Mapping[str, int | None]) -> None:
        """Leaving has failed: remember what is still on disk, unless it was subscribed to anew."""
        for topic, ends_at in former.items():
            if ends_at is not None and self._directory.ends_at(client.public, topic) is None:
                self._remember(client.public, topic, ends_at)

    def forget(self, public: bytes, topics: Sequence[str]) -> None:
        for topic in topics:
            self._forget(public, topic)

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
        now, changes = self._clock.now(), list[StateChange]()
        while self._ends and self._ends[0][0] <= now:
            _, public, topic = heapq.heappop(self._ends)
            ends_at = self._directory.ends_at(public, topic)
            if ends_at is None:
                continue
            if self._is_connected(public, topic):
                later = now + self._quotas.subscription_seconds * SECOND
                changes.append(durable.subscription_change(public, topic, later))
                self._remember(public, topic, later)
            elif ends_at <= now:
                self._forget(public, topic)
            else:
                heapq.heappush(self._ends, (ends_at, public, topic))
        if changes:
            self._queue.put([], changes)

    def _is_stale(self, public: bytes, topic: str) -> bool:
        """Whether what is on disk ends too soon to stand for another subscription."""
        ends_at = self._directory.ends_at(public, topic)
        return ends_at is None or ends_at - self._clock.now() < self._quotas.subscription_seconds * SECOND * 3 // 4

    def _remember(self, public: bytes, topic: str, ends_at: int) -> None:
        was_wanted = self._directory.is_wanted(topic)
        self._directory.remember(public, topic, ends_at)
        halfway = ends_at - self._quotas.subscription_seconds * SECOND // 2
        heapq.heappush(self._ends, (halfway, public, topic))
        if not was_wanted:
            self._interest(topic, True)

    def _forget(self, public: bytes, topic: str) -> None:
        if self._directory.forget(public, topic):
            self._interest(topic, False)


class _Listening:
    """What happens after the commit: the client is told, then it gets what is cached."""

    __slots__ = ("_connection", "_new", "_reply", "_subscriptions", "_topics")

    def __init__(
        self,
        subscriptions: Subscriptions,
        connection: Connection,
        topics: Sequence[str],
        new: Sequence[str],
        reply: Reply,
    ) -> None:
        self._subscriptions = subscriptions
        self._connection = connection
        self._topics = topics
        self._new = new
        self._reply = reply

    def done(self, receipts: Sequence[Receipt]) -> None:
        if self._connection not in self._connection.client.connections:
            return  # it has gone meanwhile
        self._reply.ok(self._subscriptions.listen(self._connection, self._topics))
        self._subscriptions.catch_up(self._connection, self._topics)

    def failed(self, error: Exception) -> None:
        self._subscriptions.forget(self._connection.client.public, self._new)
        self._reply.failed(error)


class _Leaving:
    """What happens after the commit: nothing more is delivered."""

    __slots__ = ("_client", "_former", "_reply", "_subscriptions")

    def __init__(
        self, subscriptions: Subscriptions, client: Client, former: Mapping[str, int | None], reply: Reply
    ) -> None:
        self._subscriptions = subscriptions
        self._client = client
        self._former = former  # topic → when the subscription would have ended
        self._reply = reply

    def done(self, receipts: Sequence[Receipt]) -> None:
        self._subscriptions.leave(self._client, self._former)
        self._reply.ok(True)

    def failed(self, error: Exception) -> None:
        self._subscriptions.stay(self._client, self._former)
        self._reply.failed(error)
