"""ShrEx notifications from and to js-libp2p's FloodSub, on real sockets, through a whole node."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path

import anyio
import pytest

from syncline.core.verdict import Outcome, Reason
from syncline.node.node import running
from syncline.protocols.shrex.plugin import Shrex
from syncline.protocols.shrex.service import ShrexService
from syncline.protocols.shrex.service.sources import MemorySource
from syncline.protocols.shrex.wire.notification import TOPIC, Notification, encode
from syncline.testing.headers import demo_headers
from tests.interop.libp2p.peers import js_peer
from tests.protocols.shrex.nodes import ShrexNode, decided, note, settings_of, until

pytestmark = [pytest.mark.interop, pytest.mark.anyio, pytest.mark.usefixtures("npm")]
HEADERS = demo_headers()


@pytest.mark.parametrize(("profile", "topic"), [("spec", TOPIC), ("celestia", "mocha-4/eds-sub/v0.2.0")])
async def test_js_peers_publish_notifications_to_us_and_receive_ours(tmp_path: Path, profile: str, topic: str) -> None:
    flags = {"libp2p.listen": ["/ip4/127.0.0.1/tcp/0"], "shrex.profile": profile, "shrex.network": "mocha-4"}
    plugins = {"shrex": Shrex(MemorySource(*HEADERS))}
    async with js_peer() as js, running(settings_of(tmp_path / "a", **flags), plugins=plugins) as node:
        host = await node.networks.libp2p()
        a = ShrexNode(node, host)
        service = a.service
        assert isinstance(service, ShrexService)
        tip = HEADERS[-1]
        await until(lambda: service.follower.synced)
        await js.tell("dial", address=host.addresses[0])
        await js.tell("subscribe", router="flood", topic=topic)
        await js.tell("awaitSubscribers", router="flood", topic=topic, count=1)
        with anyio.fail_after(30):
            await host.flood.wait_for_neighbours(topic)

        listener = service.subscribe()
        for notification in (note(tip), Notification(tip.height, b"\x11" * 32), Notification(1, b"\x22" * 32)):
            await js.tell("publish", router="flood", topic=topic, data=encode(notification))
        await js.tell("publish", router="flood", topic=topic, data=b"not a notification")
        await until(lambda: decided(a) == 4, 30)
        assert [(record.verdict, record.reason) for record in a.records()] == [
            (Outcome.ACCEPT, None),
            (Outcome.REJECT, Reason.HEADER_MISMATCH),
            (Outcome.IGNORE, Reason.OUT_OF_WINDOW),
            (Outcome.REJECT, Reason.MALFORMED),
        ]
        assert {(record.publisher, record.peer) for record in a.records()} == {(js.peer, js.peer)}
        assert await listener.next() == note(tip)
        assert service.session.manager.pool_peers(tip.data_hash) == [js.peer]

        answer = await service.publish({"height": tip.height, "data_hash": tip.data_hash.hex()})
        assert answer["sent"] == 1
        [message] = (await js.tell("received", router="flood", count=1))["messages"]
        assert (message["from"], message["topic"]) == (host.peer_id, topic)
        assert b64decode(message["text"]) == encode(note(tip))
