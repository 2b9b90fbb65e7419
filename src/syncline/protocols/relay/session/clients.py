"""Clients as a server knows them: their connections, subscriptions, and how far each has come on each topic.

Only the bookkeeping; requests and deliveries act on it.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping

import msgspec

from syncline.core.buckets import TokenBucket
from syncline.protocols.relay.session.cache import Entry, Mailbox
from syncline.protocols.relay.session.durable import CursorValue
from syncline.protocols.relay.session.outbox import Outbox, Port


class Cursor:
    """What one client has acknowledged on one topic."""

    __slots__ = ("_acked", "through")

    def __init__(self, value: CursorValue = CursorValue(0, [])) -> None:  # noqa: B008 - frozen
        self.through = value.through
        self._acked = list(value.acked)  # sorted, all later than `through`

    @property
    def value(self) -> CursorValue:
        return CursorValue(self.through, list(self._acked))

    def has(self, position: int) -> bool:
        return position <= self.through or self._is_acked(position)

    def ack(self, position: int, mailbox: Mailbox | None, client: str) -> None:
        """Note an acknowledgement, and move up over all that leaves no gap."""
        if not self._acked and mailbox is not None and mailbox.is_next(position, self.through):
            self.through = position  # the usual case
            return
        if self.has(position):
            return
        insort(self._acked, position)
        for entry in mailbox.after(self.through) if mailbox is not None else ():
            if entry.source != client and not self._is_acked(entry.position):
                break
            self.through = entry.position
        del self._acked[: bisect_right(self._acked, self.through)]
        # One message that is never acknowledged keeps all later ones in this list: let go of those that have expired.
        if len(self._acked) > 2 * (len(mailbox) if mailbox is not None else 0):
            self._acked = mailbox.among(self._acked) if mailbox is not None else []

    def _is_acked(self, position: int) -> bool:
        index = bisect_left(self._acked, position)
        return index < len(self._acked) and self._acked[index] == position


class Client:
    """One did:key, over all its connections."""

    __slots__ = ("connections", "cursors", "did", "dirty", "public", "writing")

    def __init__(self, did: str, public: bytes, cursors: Mapping[str, CursorValue]) -> None:
        self.did = did
        self.public = public
        self.cursors = {topic: Cursor(value) for topic, value in cursors.items()}
        self.connections: dict[Connection, None] = {}
        self.dirty: dict[str, None] = {}  # topics whose cursor is not written down yet
        self.writing = 0  # commits of cursors on their way

    def cursor(self, topic: str) -> Cursor:
        found = self.cursors.get(topic)
        if found is None:
            found = self.cursors[topic] = Cursor()
        return found

    def wants(self, entry: Entry) -> bool:
        """Whether this message should still reach the client. It is never sent what it published itself."""
        if entry.source == self.did:
            return False
        cursor = self.cursors.get(entry.topic)
        return cursor is None or not cursor.has(entry.position)


class Subscription:
    """One connection's ear on one topic."""

    __slots__ = ("connection", "id", "sent", "topic")

    def __init__(self, connection: Connection, topic: str, sent: int) -> None:
        self.connection = connection
        self.topic = topic
        self.id = subscription_id(topic, connection.client.did)
        self.sent = sent  # every live message up to this position has been sent, or was not for this client


class Delivery(msgspec.Struct, eq=False, gc=False):
    """A message on its way, waiting for its acknowledgement."""

    entry: Entry
    payload: bytes
    due: float
    tries: int = 1


class Connection(Port):
    """One WebSocket of a client."""

    __slots__ = ("behind", "bucket", "client", "loading", "next_number", "pending", "pending_bytes",
                 "strikes", "subscriptions")  # fmt: skip

    def __init__(self, outbox: Outbox, client: Client, bucket: TokenBucket, first_number: int) -> None:
        super().__init__(outbox)
        self.client = client
        self.bucket = bucket
        self.subscriptions: dict[str, Subscription] = {}
        self.pending: dict[int, Delivery] = {}  # in the order they fall due
        self.pending_bytes = 0
        self.behind: dict[str, None] = {}  # topics with messages that are not on their way yet, in order
        self.loading = False
        self.next_number = first_number
        self.strikes = 0


def subscription_id(topic: str, did: str) -> str:
    """As clients compute it for themselves: sha256 of topic and client id."""
    return hashlib.sha256((topic + did).encode()).hexdigest()


class Directory:
    """Who is subscribed to what: connected clients to deliver to, and absent ones to keep messages for."""

    def __init__(self) -> None:
        self._ears: dict[str, dict[Connection, Subscription]] = {}
        self._remembered: dict[str, dict[bytes, int]] = {}  # topic → client → when the subscription ends
        self._topics: dict[bytes, int] = {}  # client → number of its topics
        self.count = 0

    def ears(self, topic: str) -> Iterable[Subscription]:
        """The subscriptions of connected clients."""
        found = self._ears.get(topic)
        return found.values() if found is not None else ()

    def listen(self, subscription: Subscription) -> None:
        self._ears.setdefault(subscription.topic, {})[subscription.connection] = subscription

    def unlisten(self, connection: Connection, topic: str) -> None:
        ears = self._ears.get(topic)
        if ears is not None and ears.pop(connection, None) is not None and not ears:
            del self._ears[topic]

    def ends_at(self, public: bytes, topic: str) -> int | None:
        return self._remembered.get(topic, {}).get(public)

    def is_wanted(self, topic: str) -> bool:
        return topic in self._remembered

    def topics_of(self, public: bytes) -> int:
        return self._topics.get(public, 0)

    def remember(self, public: bytes, topic: str, ends_at: int) -> None:
        """Note a subscription, or its new end."""
        clients = self._remembered.get(topic)
        if clients is None:
            clients = self._remembered[topic] = {}
        if public not in clients:
            self.count += 1
            self._topics[public] = self._topics.get(public, 0) + 1
        clients[public] = ends_at

    def forget(self, public: bytes, topic: str) -> bool:
        """Drop a subscription; whether it was the topic's last."""
        clients = self._remembered.get(topic)
        if clients is None or clients.pop(public, None) is None:
            return False
        self.count -= 1
        left = self._topics[public] - 1
        if left:
            self._topics[public] = left
        else:
            del self._topics[public]
        if clients:
            return False
        del self._remembered[topic]
        return True
