"""One relay without sockets, for tests that look at single requests and answers."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from syncline.core.keys import NodeKey
from syncline.core.record import Arrival
from syncline.protocols.relay.session.clients import Connection
from syncline.protocols.relay.session.handshake import Identity
from syncline.protocols.relay.session.hub import Hub
from syncline.protocols.relay.session.quotas import Quotas
from syncline.testing.clock import FakeClock
from syncline.testing.relay import MemoryDisk

KEY = NodeKey(bytes(range(32)))


class Desk:
    """A hub, its disk, and the answers of its clients as Python objects."""

    def __init__(self, **quotas: Any) -> None:
        self.clock = FakeClock()
        self.disk = MemoryDisk(self.clock)
        self.hub = Hub(
            identity=Identity(KEY, 1), quotas=Quotas(**quotas), clock=self.clock, random=Random(1), position=0
        )

    def client(self, name: int = 1) -> Connection:
        return self.hub.connect(NodeKey(bytes([name]) * 32).did)

    def run(self, *, commit: bool = True) -> None:
        """Commit and read until nothing waits."""
        while True:
            self.hub.settle()
            batch = self.hub.queue.take() if commit else None
            if batch is not None:
                batch.done(self.disk.append(batch.incoming, batch.state))
                continue
            loads = self.hub.outbox.take_loads()
            if not loads:
                return
            for load in loads:
                load.then([self.disk.body(entry) for entry in load.entries])

    def tell(self, connection: Connection, payload: Any) -> None:
        self.hub.receive(connection, payload if isinstance(payload, bytes) else json.dumps(payload).encode())

    def heard(self, connection: Connection) -> list[Any]:
        """What was sent to the client since the last time."""
        self.run()
        return [json.loads(payload) for _, payload in connection.take()]

    def ask(self, connection: Connection, method: str, params: Any, request_id: Any = 7) -> Any:
        """The answer to one request; deliveries that come with it are left out."""
        self.tell(connection, {"id": request_id, "jsonrpc": "2.0", "method": method, "params": params})
        answers = [each for each in self.heard(connection) if "method" not in each]
        assert len(answers) == 1, answers
        return answers[0]

    def acknowledge(self, connection: Connection, *deliveries: Any) -> None:
        for delivery in deliveries:
            self.tell(connection, {"id": delivery["id"], "jsonrpc": "2.0", "result": True})
        self.run()

    def publish(self, connection: Connection, topic: str, message: str, **params: Any) -> Any:
        return self.ask(connection, "irn_publish", {"topic": topic, "message": message, "ttl": 300, **params})

    def subscribe(self, connection: Connection, topic: str) -> Any:
        return self.ask(connection, "irn_subscribe", {"topic": topic})

    def last_arrival(self) -> Arrival:
        self.run()
        return self.disk.arrivals[-1]
