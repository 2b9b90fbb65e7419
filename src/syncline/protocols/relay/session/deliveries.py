"""Deliveries to connected clients: at once when there is room, later from the journal, again until acknowledged.

Order is kept per topic. A connection has a window of unacknowledged deliveries; what does not fit stays in the cache, so a
slow client costs a number per topic and not its messages. What is acknowledged is never sent to that client again.
"""

from __future__ import annotations

from collections.abc import Sequence

from syncline.core.clock import Clock
from syncline.core.limits import RELAY_WINDOW_BYTES
from syncline.protocols.relay.session.cache import Cache, Entry
from syncline.protocols.relay.session.clients import Client, Connection, Delivery, Directory, Subscription
from syncline.protocols.relay.session.outbox import Load, Outbox
from syncline.protocols.relay.session.quotas import Quotas
from syncline.protocols.relay.wire import rpc
from syncline.protocols.relay.wire.messages import NetworkMessage, decode


class Deliveries:
    """Brings live entries to the connections that listen to their topics."""

    def __init__(self, cache: Cache, directory: Directory, outbox: Outbox, quotas: Quotas, clock: Clock) -> None:
        self._cache = cache
        self._directory = directory
        self._outbox = outbox
        self._quotas = quotas
        self._clock = clock
        self._monotonic = clock.monotonic
        self._waiting: dict[Connection, None] = {}  # connections with unacknowledged deliveries
        self.sent = 0
        self.resent = 0
        self.acked = 0
        self.abandoned = 0

    def fan_out(self, entry: Entry, message: NetworkMessage) -> None:
        """A message has just become live, so nobody has read it: on its way to whoever has room for it."""
        data, topic, source = b"", entry.topic, entry.source
        for subscription in self._directory.ears(topic):
            connection = subscription.connection
            if connection.client.did == source:  # it is never sent what it published itself
                if topic not in connection.behind:
                    subscription.sent = entry.position
            elif topic in connection.behind or not self._has_room(connection):
                connection.behind[topic] = None
            else:
                if not data:
                    data = _data(topic, message)
                self._push(subscription, entry, data)

    def catch_up(self, connection: Connection, topic: str) -> None:
        """Send what is cached on a topic just subscribed to."""
        connection.behind[topic] = None
        self._refill(connection)

    def drop(self, connection: Connection, topic: str) -> None:
        """The client no longer listens to this topic: do not send again what it has not acknowledged."""
        connection.behind.pop(topic, None)
        for number in [each for each, delivery in connection.pending.items() if delivery.entry.topic == topic]:
            self._settle(connection, connection.pending.pop(number))

    def forget(self, connection: Connection) -> None:
        """The connection is gone; what it did not acknowledge stays undelivered."""
        self._waiting.pop(connection, None)
        connection.pending.clear()
        connection.behind.clear()

    def acknowledge(self, connection: Connection, number: int) -> None:
        delivery = connection.pending.pop(number, None)
        if delivery is None:
            return
        self._settle(connection, delivery)
        self.acked += 1
        self.mark_read(connection.client, delivery.entry)
        if connection.behind:
            self._refill(connection)

    def mark_read(self, client: Client, entry: Entry) -> None:
        """The client has this message; it is not sent to it again, here or after a restart."""
        topic = entry.topic
        client.cursor(topic).ack(entry.position, self._cache.mailbox(topic), client.did)
        client.dirty[topic] = None

    def resend(self) -> None:
        """Send again what has waited too long for its acknowledgement; give up after a few times."""
        now, wall = self._clock.monotonic(), self._clock.now()
        for connection in list(self._waiting):
            while connection.pending:
                number, delivery = next(iter(connection.pending.items()))
                if delivery.due > now:
                    break
                del connection.pending[number]
                again = delivery.tries <= self._quotas.resends and delivery.entry.expires_at > wall
                if again and connection.client.wants(delivery.entry):
                    delivery.tries += 1
                    delivery.due = now + self._quotas.resend_seconds
                    connection.pending[number] = delivery
                    connection.text(delivery.payload)
                    self.resent += 1
                else:
                    self.abandoned += connection.client.wants(delivery.entry)
                    self._settle(connection, delivery)
            self._refill(connection)

    def _settle(self, connection: Connection, delivery: Delivery) -> None:
        connection.pending_bytes -= len(delivery.payload)
        if not connection.pending:
            self._waiting.pop(connection, None)

    def _has_room(self, connection: Connection) -> bool:
        return len(connection.pending) < self._quotas.window and connection.pending_bytes < RELAY_WINDOW_BYTES

    def _push(self, subscription: Subscription, entry: Entry, data: bytes) -> None:
        connection = subscription.connection
        number = connection.next_number
        connection.next_number = number + 1
        payload = rpc.delivery(number, subscription.id, data)
        due = self._monotonic() + self._quotas.resend_seconds
        connection.pending[number] = Delivery(entry, payload, due)
        connection.pending_bytes += len(payload)
        self._waiting[connection] = None
        subscription.sent = entry.position
        connection.text(payload)
        self.sent += 1

    def _refill(self, connection: Connection) -> None:
        """Ask for the bodies of what comes next, if there is room and nothing is on its way from the journal."""
        if connection.loading or not connection.behind or not self._has_room(connection):
            return
        room = self._quotas.window - len(connection.pending)
        wanted: list[Entry] = []
        for topic in list(connection.behind):
            subscription = connection.subscriptions.get(topic)
            found = self._missing(subscription, room - len(wanted)) if subscription is not None else []
            if not found:
                del connection.behind[topic]
            wanted += found
            if len(wanted) >= room:
                break
        if wanted:
            connection.loading = True
            self._outbox.loads.append(Load(wanted, lambda bodies: self._loaded(connection, wanted, bodies)))

    def _missing(self, subscription: Subscription, room: int) -> list[Entry]:
        """The next messages this subscription has not been sent."""
        mailbox, client = self._cache.mailbox(subscription.topic), subscription.connection.client
        found: list[Entry] = []
        for entry in mailbox.after(subscription.sent) if mailbox is not None else ():
            if len(found) == room:
                break
            if client.wants(entry):
                found.append(entry)
        return found

    def _loaded(self, connection: Connection, entries: Sequence[Entry], bodies: Sequence[bytes | None]) -> None:
        connection.loading = False
        now = self._clock.now()
        for entry, body in zip(entries, bodies, strict=True):
            subscription = connection.subscriptions.get(entry.topic)
            if subscription is None or connection.end is not None or entry.position <= subscription.sent:
                continue
            if body is None or entry.expires_at <= now:
                subscription.sent = entry.position
            else:
                self._push(subscription, entry, _data(entry.topic, decode(body)))
        self._refill(connection)


def _data(topic: str, message: NetworkMessage) -> bytes:
    return rpc.delivery_data(topic, message.message.decode(), message.timestamp, message.tag)
