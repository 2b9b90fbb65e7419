"""The relay server as one sans-I/O machine: clients, links, cache and routing wired together.

A driver feeds events (connected, received, committed, time has passed) and then looks for what waits: batches to commit,
bodies to read, frames to send, webhooks to call. The same machine runs on sockets and in the simulation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Final

from syncline.core.buckets import TokenBucket
from syncline.core.clock import Clock
from syncline.core.errors import RefusedError
from syncline.core.keys import public_of_did_key
from syncline.core.limits import RELAY_CLOCK_SKEW, RELAY_TTL_MAX, SECOND
from syncline.core.ports import Receipt, StateChange
from syncline.core.verdict import Reason
from syncline.protocols.relay.session import durable
from syncline.protocols.relay.session.batches import CommitQueue
from syncline.protocols.relay.session.cache import Cache, Entry
from syncline.protocols.relay.session.clients import Client, Connection, Directory
from syncline.protocols.relay.session.deliveries import Deliveries
from syncline.protocols.relay.session.durable import CursorValue
from syncline.protocols.relay.session.handshake import Handshake, Identity, Trust
from syncline.protocols.relay.session.link import Link
from syncline.protocols.relay.session.links import Links
from syncline.protocols.relay.session.outbox import Outbox
from syncline.protocols.relay.session.prompts import Prompts
from syncline.protocols.relay.session.publishing import Publishing, Reply
from syncline.protocols.relay.session.quotas import Quotas
from syncline.protocols.relay.session.requests import Requests
from syncline.protocols.relay.session.routing import Routing
from syncline.protocols.relay.session.subscriptions import Subscriptions
from syncline.protocols.relay.wire.messages import NetworkMessage
from syncline.protocols.relay.wire.rpc import Problem, PublishParams

CURSOR_LIFE: Final = RELAY_TTL_MAX * SECOND + RELAY_CLOCK_SKEW  # then everything it speaks of has expired
REASONS: Final = {
    Problem.INVALID_TOPIC: Reason.INVALID_TOPIC,
    Problem.PAYLOAD_SIZE: Reason.OVERSIZE,
    Problem.MAILBOX_LIMIT: Reason.QUOTA_EXCEEDED,
}


class Hub:
    """A relay server without its sockets and its disk."""

    def __init__(self, *, identity: Identity, quotas: Quotas, clock: Clock, random: Random, position: int = 0) -> None:
        self.identity = identity
        self.outbox = Outbox()
        self.queue = CommitQueue()
        self.cache = Cache(quotas, position)
        self.directory = Directory()
        self.prompts = Prompts()
        self.routing = Routing(identity.key.peer_id, identity.epoch, quotas)
        self.publishing = Publishing(self.cache, self.queue, quotas, clock, self._announce, self.prompts.owed)
        self.links = Links(self.routing, self.cache, self.publishing, self.outbox, quotas, clock)
        self.deliveries = Deliveries(self.cache, self.directory, self.outbox, quotas, clock)
        self.subscriptions = Subscriptions(
            self.directory, self.deliveries, self.queue, quotas, clock, self.links.interest, self._listens
        )
        self.requests = Requests(
            cache=self.cache,
            publishing=self.publishing,
            subscriptions=self.subscriptions,
            deliveries=self.deliveries,
            queue=self.queue,
            outbox=self.outbox,
            quotas=quotas,
            clock=clock,
        )
        self._quotas = quotas
        self._clock = clock
        self._random = random
        self._clients: dict[bytes, Client] = {}
        self.connections = 0

    # -- what a former run left ---------------------------------------------------------------------------------

    def restore(self, entries: Iterable[Entry], subscriptions: Iterable[tuple[bytes, str, int]]) -> None:
        """Take in what is on disk, before anything else happens."""
        now = self._clock.now()
        for entry in entries:
            if entry.expires_at > now:
                self.cache.restore(entry)
        for public, topic, ends_at in subscriptions:
            self.subscriptions.restore(public, topic, ends_at)

    # -- clients ------------------------------------------------------------------------------------------------

    def knows(self, did: str) -> bool:
        """Whether this client's cursors are in memory; else `connect` needs them from disk."""
        return public_of_did_key(did) in self._clients

    def connect(self, did: str, cursors: Mapping[str, CursorValue] | None = None) -> Connection:
        """A client whose token is good; raises RefusedError when it has too many connections."""
        public = public_of_did_key(did)
        client = self._clients.get(public)
        if client is None:
            client = self._clients[public] = Client(did, public, cursors or {})
        if len(client.connections) >= self._quotas.connections_per_client:
            raise RefusedError(
                f"a client may have {self._quotas.connections_per_client} connections", reason=Reason.QUOTA_EXCEEDED
            )
        bucket = TokenBucket(self._quotas.requests_per_second, self._quotas.request_burst, self._clock.monotonic())
        first = self._clock.now() // 1_000 * 1_000 + self._random.randrange(1_000)  # below 2^53 for JavaScript
        connection = Connection(self.outbox, client, bucket, first)
        client.connections[connection] = None
        self.connections += 1
        return connection

    def disconnect(self, connection: Connection) -> None:
        connection.close(1000, "")
        self.outbox.ready.pop(connection, None)
        self.subscriptions.disconnect(connection)
        self.deliveries.forget(connection)
        connection.client.connections.pop(connection, None)
        self.connections -= 1

    def receive(self, connection: Connection, payload: bytes, is_text: bool = True) -> None:
        """One message of a client."""
        if connection.end is not None:
            return
        if is_text:
            self.requests.receive(connection, payload)
        else:
            connection.close(1003, "requests are text")

    def _listens(self, public: bytes, topic: str) -> bool:
        client = self._clients.get(public)
        return client is not None and any(topic in each.subscriptions for each in client.connections)

    # -- the node itself ----------------------------------------------------------------------------------------

    def publish(self, params: PublishParams, reply: Reply, state: Sequence[StateChange] = ()) -> None:
        """Publish as this server."""
        draft = self.publishing.draft(params, self.identity.key.peer_id, is_client=False)
        if draft.problem is None:
            self.publishing.admit(draft, is_client=False)
        if draft.problem is None:
            self.publishing.commit([draft], reply, state)
        else:
            self.publishing.refuse(draft)
            reason = REASONS.get(draft.problem, Reason.INVALID_FIELD)
            reply.failed(RefusedError(draft.detail or draft.problem.meaning, reason=reason))

    # -- links --------------------------------------------------------------------------------------------------

    def open_link(self, trust: Trust, *, dialed: bool) -> Link:
        """A WebSocket to another server, or from one; it must prove itself before anything else."""
        nonce = self._random.randbytes(32)
        return self.links.begin(
            Handshake("dialer" if dialed else "listener", self.identity, trust, nonce), dialed=dialed
        )

    # -- after a commit -----------------------------------------------------------------------------------------

    def _announce(self, entry: Entry, message: NetworkMessage, raw: bytes) -> None:
        self.deliveries.fan_out(entry, message)
        if self.links.count:
            self.links.forward(entry, raw)
        if message.prompt:
            self.prompts.fire(entry, message)

    def settle(self) -> None:
        """Call after every batch of events: tells neighbours what they have to know by now."""
        self.links.settle()

    # -- time ---------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Call about once a second."""
        self.links.emptied(self.cache.expire(self._clock.now()))
        self.deliveries.resend()
        self.subscriptions.expire()
        self.links.tick()
        self.write_down()
        self.settle()

    def write_down(self) -> None:
        """Queue what clients have acknowledged; forget clients that are gone and on disk."""
        ends_at = self._clock.now() + CURSOR_LIFE
        changes: list[StateChange] = []
        written: list[tuple[Client, dict[str, None]]] = []
        for public, client in list(self._clients.items()):
            if client.dirty:
                topics, client.dirty = client.dirty, {}
                changes += [
                    durable.cursor_change(public, topic, client.cursors[topic].value, ends_at) for topic in topics
                ]
                client.writing += 1
                written.append((client, topics))
            elif not client.connections and not client.writing:
                del self._clients[public]
        if changes:
            self.queue.put([], changes, _Written(written))

    def statistics(self) -> dict[str, int | float]:
        """Counters and gauges, as `/metrics` shows them."""
        return {
            "connections": self.connections,
            "links": len(list(self.links.open_links())),
            "servers": len(list(self.routing.servers)),
            "subscriptions": self.directory.count,
            "cached_messages": len(self.cache),
            "cached_bytes": self.cache.bytes,
            "queued": len(self.queue),
            "published": self.publishing.cached,
            "repeated": self.publishing.repeated,
            "delivered": self.deliveries.sent,
            "resent": self.deliveries.resent,
            "acknowledged": self.deliveries.acked,
            "abandoned": self.deliveries.abandoned,
            "forwarded": self.links.forwarded,
            "received_by_link": self.links.received,
            "prompts_dropped": self.prompts.dropped,
            "requests": self.requests.answered.total(),
            "refused": self.requests.refused.total(),
            "rate_limited": self.requests.refused["TooManyRequests"],
        }


class _Written:
    """After the commit of cursors."""

    __slots__ = ("_written",)

    def __init__(self, written: Sequence[tuple[Client, dict[str, None]]]) -> None:
        self._written = written

    def done(self, receipts: Sequence[Receipt]) -> None:
        for client, _ in self._written:
            client.writing -= 1

    def failed(self, error: Exception) -> None:
        for client, topics in self._written:
            client.writing -= 1
            client.dirty.update(topics)
