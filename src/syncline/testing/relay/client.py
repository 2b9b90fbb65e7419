"""A simulated client of a simulated relay."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import msgspec

from syncline.core.keys import NodeKey, public_of_did_key
from syncline.protocols.relay.session import durable
from syncline.protocols.relay.session.clients import Connection
from syncline.protocols.relay.session.outbox import Port
from syncline.protocols.relay.wire import rpc

if TYPE_CHECKING:
    from syncline.testing.relay.world import RelayWorld, SimServer


class SimClient:
    """A client that acknowledges what it gets and subscribes again after a reconnect."""

    def __init__(self, world: RelayWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.key = NodeKey(hashlib.sha256(b"client " + name.encode()).digest())
        self.topics: list[str] = []
        self.received: list[tuple[str, str]] = []  # topic, message
        self.published: list[tuple[str, str]] = []  # that were answered true
        self.errors: list[str] = []
        self.acknowledges = True
        self._server: SimServer | None = None
        self._connection: Connection | None = None
        self._calls: dict[int, Callable[[], None]] = {}
        self._numbers = count(1)

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    def connect(self, server: str) -> None:
        """Connect, and subscribe to what it was subscribed to."""
        self._server = self.world.servers[server]
        hub = self._server.running
        public = public_of_did_key(self.key.did)
        cursors = {
            durable.split_client_key(key)[1]: durable.cursor_value(value)
            for key, value in self._server.disk.scan(durable.CURSORS, public)
        }
        self._connection = hub.connect(self.key.did, cursors)
        self._server.ports[self._connection] = self
        if self.topics:
            self._call("irn_batchSubscribe", {"topics": self.topics})

    def disconnect(self) -> None:
        if self._connection is not None and self._server is not None and self._server.hub is not None:
            self._server.hub.disconnect(self._connection)
            del self._server.ports[self._connection]
            self._server.pump()
        self.dropped()

    def dropped(self) -> None:
        self._connection = None
        self._calls.clear()

    def subscribe(self, *topics: str) -> None:
        self.topics += [topic for topic in topics if topic not in self.topics]
        self._call("irn_batchSubscribe", {"topics": list(topics)})

    def unsubscribe(self, topic: str) -> None:
        self.topics.remove(topic)
        self._call("irn_unsubscribe", {"topic": topic, "id": ""})

    def publish(self, topic: str, message: str, ttl: int = 300, tag: int = 1_100) -> None:
        params = {"topic": topic, "message": message, "ttl": ttl, "tag": tag}
        self._call("irn_publish", params, lambda: self.published.append((topic, message)))

    def _call(self, method: str, params: object, then: Callable[[], None] = lambda: None) -> None:
        number = next(self._numbers)
        self._calls[number] = then
        self._send(rpc.request(number, method, params))

    def _send(self, payload: bytes) -> None:
        connection, server = self._connection, self._server

        def arrive() -> None:
            if server is not None and connection is not None and connection in server.ports and server.hub is not None:
                server.hub.receive(connection, payload)
                server.pump()

        self.world.later(self.world.some_delay(), arrive)

    def carry(self, port: Port) -> None:
        """Take what the server sends."""
        for _, payload in port.take():
            self.world.later(self.world.some_delay(), partial(self._arrive, port, payload))

    def _arrive(self, port: Port, payload: bytes) -> None:
        if port is not self._connection:
            return
        answer = rpc.decode_answer(payload)
        if answer.method:
            data = msgspec.json.decode(answer.params, type=rpc.SubscriptionParams).data
            self.received.append((data.topic, data.message))
            if self.acknowledges:
                self._send(msgspec.json.encode({"id": answer.id, "jsonrpc": "2.0", "result": True}))
        elif answer.error is not None:
            self.errors.append(answer.error.data)
        elif isinstance(answer.id, int):
            self._calls.pop(answer.id, lambda: None)()
