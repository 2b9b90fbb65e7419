"""The relay inside a node: federation over real sockets, key rotation, the HTTP API, webhooks and metrics."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from anyio.abc import ByteStream, SocketAttribute, SocketStream

from syncline.core.errors import ConflictError, RefusedError, UsageError
from syncline.core.keys import NodeKey, public_of_did_key, verify
from syncline.core.ports import RecordQuery, StateChange
from syncline.core.record import Direction
from syncline.core.retry import Backoff
from syncline.core.verdict import Outcome, Reason
from syncline.networks.background import background
from syncline.node.node import Node
from syncline.protocols.relay.client import RelayClient
from syncline.protocols.relay.plugin import Relay
from syncline.protocols.relay.service.webhooks import signed_bytes
from tests.nodes import NodeThread
from tests.relays import MakeRelay, RunningRelay, topic_of

NEWS = topic_of("news")
SOON = Backoff(first=0.02, longest=0.1)


async def until(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    with anyio.fail_after(seconds):
        while not holds():
            await anyio.sleep(0.01)


def links(server: RunningRelay) -> int:
    return server.service.hub.links.count


# -- federation ----------------------------------------------------------------------------------------------------


async def test_three_servers_carry_a_message_from_end_to_end(relay: MakeRelay) -> None:
    async with relay("c") as c, relay("b", **{"relay.peers": [c.link_address]}) as b:
        c.service._known = frozenset({b.name})
        async with relay("a", **{"relay.peers": [b.link_address]}) as a:
            b.service._known |= {a.name}
            await until(lambda: links(b) == 2)
            async with RelayClient(a.url) as alice, RelayClient(c.url) as bob:
                with anyio.fail_after(10):
                    async with bob.subscribe(NEWS) as messages:
                        await until(lambda: list(a.service.hub.routing.ways(NEWS)) == [b.name])
                        await alice.publish(NEWS, "across", ttl=120)
                        message = await anext(aiter(messages))
            peers = a.service.peers()
            records = [server.node.journal.read(RecordQuery(topic=NEWS)) for server in (a, b, c)]
    assert message.message == "across"
    assert [each["peer"] for each in peers] == [b.name]
    assert [len(found) for found in records] == [1, 1, 1]
    assert len({found[0].expires_at for found in records}) == 1
    assert len({found[0].raw for found in records}) == 1
    assert [found[0].peer for found in records[1:]] == [a.name, b.name]


@asynccontextmanager
async def tapped(server: RunningRelay) -> AsyncIterator[tuple[bytearray, int]]:
    """What `server` sends to whoever dials the port, byte by byte."""
    heard = bytearray()

    async def carry(source: ByteStream, sink: ByteStream, record: bytearray) -> None:
        try:
            async for chunk in source:
                record += chunk
                await sink.send(chunk)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        await sink.aclose()

    async def join(stream: SocketStream) -> None:
        async with await anyio.connect_tcp(*server.service.address) as there, anyio.create_task_group() as tasks:
            tasks.start_soon(carry, stream, there, bytearray())
            await carry(there, stream, heard)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, background() as tasks:
        tasks.start_soon(listener.serve, join)
        yield heard, listener.extra(SocketAttribute.local_port)


async def test_no_byte_of_a_message_goes_to_a_server_where_nobody_listens(relay: MakeRelay) -> None:
    """On the wire: b is between a, where it is published, and c, where nobody wants it until somebody does."""
    async with relay("b") as b, tapped(b) as (wire, port):
        async with (
            relay("a", **{"relay.peers": [b.link_address]}) as a,
            relay("c", **{"relay.peers": [f"{b.name}@ws://127.0.0.1:{port}/link"]}) as c,
        ):
            b.service._known = frozenset({a.name, c.name})
            await until(lambda: links(b) == 2)
            async with RelayClient(a.url) as alice, RelayClient(b.url) as bob, RelayClient(c.url) as eve:
                with anyio.fail_after(20):
                    async with bob.subscribe(NEWS) as messages, eve.subscribe(topic_of("other")):
                        await until(lambda: list(a.service.hub.routing.ways(NEWS)) == [b.name])
                        await alice.publish(NEWS, "not for c")
                        assert (await anext(aiter(messages))).message == "not for c"
                        await until(lambda: list(b.service.hub.routing.ways(topic_of("other"))) == [c.name])
                        assert b"not for c" not in wire
                        async with eve.subscribe(NEWS) as late:
                            assert (await anext(aiter(late))).message == "not for c"
                    assert wire.count(b"not for c") == 1
            assert (c.service.hub.links.received, c.service.hub.publishing.cached) == (1, 1)


async def test_a_server_that_is_not_known_gets_no_link(relay: MakeRelay) -> None:
    async with relay("a") as a, relay("b", **{"relay.peers": [a.link_address]}) as b:
        for _ in range(50):
            await anyio.sleep(0.01)
            assert (links(a), links(b)) == (0, 0)


async def test_two_servers_that_dial_each_other_end_with_one_link(relay: MakeRelay) -> None:
    async with relay("a") as first:
        address = first.link_address
        port = first.service.address[1]
    async with relay("b", **{"relay.peers": [address]}) as b:
        async with relay("a", **{"relay.port": port, "relay.peers": [b.link_address]}) as a:
            await until(lambda: links(a) == links(b) == 1)
            async with RelayClient(a.url) as alice, RelayClient(b.url) as bob:
                with anyio.fail_after(10):
                    async with bob.subscribe(NEWS) as messages:
                        await alice.publish(NEWS, "hello")
                        assert (await anext(aiter(messages))).message == "hello"


async def test_a_server_changes_its_link_key_while_others_know_only_the_old_one(
    relay: MakeRelay, tmp_path: Path
) -> None:
    async with relay("a") as a, relay("b", **{"relay.peers": [a.link_address]}) as b:
        a.service._known = frozenset({b.name})
        await until(lambda: links(a) == 1)
        old, port = b.name, b.service.address[1]
        a_name, a_url = a.name, a.link_address
        # the operator of b makes a new key and restarts; nobody else changes anything
    NodeKey.generate().save(tmp_path / "b" / "link.key")
    port_of_a = int(a_url.rpartition(":")[2].partition("/")[0])
    rotated = {"relay.link_key": "link.key", "relay.link_key_former": "node.key", "relay.peers": [a_url]}
    async with relay("a", **{"relay.port": port_of_a, "relay.trusted": [old]}) as a:
        async with relay("b", **{**rotated, "relay.port": port}) as b:
            await until(lambda: links(a) == links(b) == 1)
            assert b.name != old
            assert [link.peer for link in a.service.hub.links.open_links()] == [b.name]
            async with RelayClient(a.url) as alice, RelayClient(b.url) as bob:
                with anyio.fail_after(10):
                    async with bob.subscribe(NEWS) as messages:
                        await alice.publish(NEWS, "after the change")
                        assert (await anext(aiter(messages))).message == "after the change"
    async with relay("a", **{"relay.port": port_of_a}) as a:  # the old key is no longer trusted
        async with relay("b", **{**rotated, "relay.port": port}):
            await anyio.sleep(0.5)
            assert (a.name, links(a)) == (a_name, 0)


# -- the API -------------------------------------------------------------------------------------------------------


async def test_a_node_publishes_in_its_own_name(relay: MakeRelay) -> None:
    async with relay() as server, RelayClient(server.url) as bob, bob.subscribe(NEWS) as messages:
        answer = await server.service.publish({"topic": NEWS, "message": "from the node", "tag": 7})
        with anyio.fail_after(5):
            message = await anext(aiter(messages))
        [record] = server.node.journal.read(RecordQuery(topic=NEWS))
    assert answer == {"topic": NEWS, "published": True}
    assert (message.message, message.tag) == ("from the node", 7)
    assert (record.direction, record.publisher, record.verdict) == (Direction.OUT, server.node.key.peer_id, "accept")


async def test_a_bad_publish_through_the_api_is_refused_with_its_reason(relay: MakeRelay) -> None:
    async with relay() as server:
        with pytest.raises(UsageError, match="takes topic and message"):
            await server.service.publish({"text": "hello"})
        with pytest.raises(RefusedError) as raised:
            await server.service.publish({"topic": "news", "message": "hello"})
        assert raised.value.reason is Reason.INVALID_TOPIC
        await until(lambda: server.node.journal.newest() == 1)
        [record] = server.node.journal.read(RecordQuery(verdict="reject"))
    assert (record.verdict, record.reason) == (Outcome.REJECT, Reason.INVALID_TOPIC)


async def test_a_conflict_of_one_publisher_is_nobody_elses(relay: MakeRelay) -> None:
    taken = StateChange(space="test", key=b"k", value=b"v", expect=b"something else")
    async with relay() as server, RelayClient(server.url) as alice:
        outcomes: list[Any] = []
        async with anyio.create_task_group() as tasks:

            async def conflicting() -> None:
                try:
                    await server.service.publish({"topic": NEWS, "message": "conflict"}, [taken])
                except ConflictError as error:
                    outcomes.append(error)

            for number in range(20):
                tasks.start_soon(alice.publish, NEWS, str(number))
            tasks.start_soon(conflicting)
        found = await RelayClientFetch(server.url)
    assert len(outcomes) == 1
    assert sorted(found, key=int) == [str(number) for number in range(20)]


async def test_what_cannot_be_kept_of_one_publisher_is_nobody_elses(relay: MakeRelay) -> None:
    impossible = StateChange(space="test", key=b"k", value=b"v", expires_at=-1)
    async with relay() as server:
        errors: list[UsageError] = []

        async def publish(message: str, *state: StateChange) -> None:
            try:
                await server.service.publish({"topic": NEWS, "message": message}, state)
            except UsageError as error:
                errors.append(error)

        async with anyio.create_task_group() as tasks:  # all at once, so that they are committed together
            for number in range(20):
                tasks.start_soon(publish, str(number))
            tasks.start_soon(publish, "impossible", impossible)
        found = await RelayClientFetch(server.url)
    assert len(errors) == 1
    assert sorted(found, key=int) == [str(number) for number in range(20)]


async def RelayClientFetch(url: str) -> list[str]:
    async with RelayClient(url) as reader:
        return [each.message for each in await reader.fetch(NEWS)]


async def test_a_record_can_be_read_by_people(relay: MakeRelay) -> None:
    async with relay() as server:
        await server.service.publish({"topic": NEWS, "message": "hello", "tag": 1_108, "prompt": True})
        [record] = server.node.journal.read(RecordQuery(topic=NEWS))
        decoded = server.node.decoded(record)
    assert {name: decoded[name] for name in ("version", "tag", "prompt", "ttl", "message")} == {
        "version": 2,
        "tag": 1_108,
        "prompt": True,
        "ttl": 21_600,
        "message": "hello",
    }


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeThread]:
    flags = {"relay.port": 0, "relay.webhook_networks": ["127.0.0.0/8"], "relay.drain_seconds": 0.5}
    thread = NodeThread(tmp_path, {"relay": Relay()}, **flags).start()
    try:
        yield thread
    finally:
        thread.stop()


def test_metrics_show_what_the_relay_does(node: NodeThread) -> None:
    with httpx.Client(base_url=node.url) as client:
        assert client.post("/api/v1/publish/relay", json={"topic": NEWS, "message": "hello"}).status_code == 200
        shown = client.get("/metrics").text
    lines = dict(line.rsplit(" ", 1) for line in shown.splitlines() if line.startswith("syncline_relay_"))
    assert float(lines["syncline_relay_published"]) == 1
    assert float(lines["syncline_relay_cached_messages"]) == 1
    for name in ("connections", "links", "rate_limited", "turned_away", "abandoned", "forwarded", "webhooks_failed"):
        assert float(lines[f"syncline_relay_{name}"]) == 0


# -- webhooks ------------------------------------------------------------------------------------------------------


class Receiver:
    """A webhook's server: answers with the given statuses, one after the other, then 200."""

    def __init__(self, statuses: list[int]) -> None:
        self.calls: list[tuple[dict[str, str], bytes]] = []
        self._statuses = list(statuses)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        self.calls.append((dict(handler.headers.items()), body))
        handler.send_response(self._statuses.pop(0) if self._statuses else 200)
        handler.send_header("Content-Length", "0")
        handler.end_headers()


@contextmanager
def receiver(*statuses: int) -> Iterator[tuple[Receiver, str]]:
    found = Receiver(list(statuses))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.answer(self)

        def log_message(self, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield found, f"http://127.0.0.1:{server.server_address[1]}/hook"
        server.shutdown()
        thread.join()


def wait_for(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    async def wait() -> None:
        await until(holds, seconds)

    anyio.run(wait)


def test_a_prompting_message_calls_its_webhook_with_a_signature(node: NodeThread) -> None:
    with receiver() as (called, url), httpx.Client(base_url=node.url) as client:
        made = client.post("/relay/webhooks", json={"topic": NEWS, "url": url})
        assert made.status_code == 201
        assert client.get("/relay/webhooks").json()["webhooks"] == [made.json()]
        client.post("/api/v1/publish/relay", json={"topic": NEWS, "message": "quiet"})
        client.post("/api/v1/publish/relay", json={"topic": NEWS, "message": "ring", "prompt": True, "tag": 1_108})
        wait_for(lambda: len(called.calls) == 1)
        headers, body = called.calls[0]
        assert client.delete(f"/relay/webhooks/{made.json()['id']}").status_code == 204
        client.post("/api/v1/publish/relay", json={"topic": NEWS, "message": "nobody", "prompt": True})
    told = json.loads(body)
    assert (told["topic"], told["message"], told["tag"], told["ttl"]) == (NEWS, "ring", 1_108, 21_600)
    signed = signed_bytes(headers["Syncline-Timestamp"], body)
    signer = public_of_did_key(headers["Syncline-Key"])
    assert headers["Syncline-Key"] == node.node.key.did
    assert verify(signer, bytes.fromhex(headers["Syncline-Signature"]), signed)
    assert len(called.calls) == 1


def test_a_failing_webhook_is_tried_again(node: NodeThread) -> None:
    with receiver(500, 302) as (called, url), httpx.Client(base_url=node.url) as client:
        client.post("/relay/webhooks", json={"topic": NEWS, "url": url})
        node.node.service("relay")._webhooks._backoff = SOON  # type: ignore[attr-defined]
        client.post("/api/v1/publish/relay", json={"topic": NEWS, "message": "ring", "prompt": True})
        wait_for(lambda: len(called.calls) == 3)
        wait_for(lambda: "syncline_relay_webhooks_called 1.0" in client.get("/metrics").text)
    assert len({body for _, body in called.calls}) == 1


def test_a_call_that_is_owed_is_made_after_a_restart(node: NodeThread) -> None:
    with receiver(*[500] * 2) as (called, url), httpx.Client(base_url=node.url) as client:
        client.post("/relay/webhooks", json={"topic": NEWS, "url": url})
        client.post("/api/v1/publish/relay", json={"topic": NEWS, "message": "ring", "prompt": True})
        wait_for(lambda: len(called.calls) == 1)
        node.stop()
        node.start()
        wait_for(lambda: len(called.calls) >= 2)
    assert len({body for _, body in called.calls}) == 1


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"topic": "news", "url": "https://example.org"}, 400),
        ({"topic": NEWS, "url": "ftp://example.org"}, 400),
        ({"topic": NEWS}, 400),
        ({"topic": NEWS, "url": "https://example.org", "more": 1}, 400),
    ],
)
def test_a_bad_registration_is_refused(node: NodeThread, body: dict[str, Any], status: int) -> None:
    with httpx.Client(base_url=node.url) as client:
        assert client.post("/relay/webhooks", json=body).status_code == status
        assert client.delete("/relay/webhooks/none").status_code == 404


def test_a_topic_has_ten_webhooks_at_most(node: NodeThread) -> None:
    with httpx.Client(base_url=node.url) as client:
        made = [
            client.post("/relay/webhooks", json={"topic": NEWS, "url": f"http://127.0.0.1:9/{number}"}).status_code
            for number in range(11)
        ]
    assert made == [201] * 10 + [403]


async def test_webhooks_never_reach_private_addresses_unless_they_are_allowed(relay: MakeRelay) -> None:
    with receiver() as (called, url):
        async with relay() as server:
            from syncline.protocols.relay.session.prompts import webhook_of

            server.service._webhooks._backoff = SOON
            server.service.hub.prompts.register(webhook_of(NEWS, url))
            await server.service.publish({"topic": NEWS, "message": "ring", "prompt": True})
            await until(lambda: server.service.statistics()["webhooks_failed"] == 1)
    assert called.calls == []


def test_the_node_can_stop_while_clients_are_connected(node: NodeThread) -> None:
    found: Node = node.node
    node.stop()
    assert found.state == "stopped"
