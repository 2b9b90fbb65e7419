"""RelayClient against a running relay."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import msgspec
import pytest
from anyio.abc import SocketAttribute, SocketStream

from syncline.core.errors import ClosedError, RefusedError, UnreachableError, UsageError
from syncline.core.keys import NodeKey
from syncline.core.retry import Backoff
from syncline.core.verdict import Reason
from syncline.networks.background import background
from syncline.networks.websocket import accept
from syncline.protocols.relay.client import RelayClient
from syncline.protocols.relay.wire import rpc
from tests.relays import MakeRelay, topic_of

NEWS = topic_of("news")
SOON = Backoff(first=0.01, longest=0.1)


async def test_a_published_message_reaches_a_subscriber(relay: MakeRelay) -> None:
    async with relay() as server, RelayClient(server.url) as alice, RelayClient(server.url) as bob:
        with anyio.fail_after(5):
            async with bob.subscribe(NEWS) as messages:
                await alice.publish(NEWS, "ключ → 🔑", ttl=300, tag=1_108)
                message = await anext(aiter(messages))
    assert (message.topic, message.message, message.tag) == (NEWS, "ключ → 🔑", 1_108)


async def test_what_was_published_while_a_client_was_away_waits_for_it(relay: MakeRelay) -> None:
    key = NodeKey.generate()
    async with relay() as server, RelayClient(server.url) as alice:
        with anyio.fail_after(5):
            async with RelayClient(server.url, key) as bob, bob.subscribe(NEWS):
                pass
            for number in range(3):
                await alice.publish(NEWS, str(number))
            async with RelayClient(server.url, key) as bob, bob.subscribe(NEWS) as messages:
                found = [(await anext(aiter(messages))).message for _ in range(3)]
    assert found == ["0", "1", "2"]


async def test_a_client_is_not_sent_what_it_published_itself(relay: MakeRelay) -> None:
    async with relay() as server, RelayClient(server.url) as alice, RelayClient(server.url) as bob:
        with anyio.fail_after(5):
            async with alice.subscribe(NEWS) as messages:
                await alice.publish(NEWS, "mine")
                await bob.publish(NEWS, "yours")
                message = await anext(aiter(messages))
    assert message.message == "yours"


async def test_a_subscriber_goes_on_after_the_relay_was_restarted(relay: MakeRelay) -> None:
    async with relay("a") as server:
        port = server.service.address[1]
    url = f"ws://127.0.0.1:{port}"
    restart, stopped = anyio.Event(), anyio.Event()

    async def run_twice() -> None:
        async with relay("a", **{"relay.port": port}):
            await restart.wait()
        stopped.set()
        async with relay("a", **{"relay.port": port}):
            await anyio.sleep_forever()

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_twice)
            async with RelayClient(url, backoff=SOON) as alice, RelayClient(url, backoff=SOON) as bob:
                async with bob.subscribe(NEWS) as messages:
                    await alice.publish(NEWS, "before")
                    received = [(await anext(aiter(messages))).message]
                    restart.set()
                    await stopped.wait()
                    await alice.publish(NEWS, "after")
                    received.append((await anext(aiter(messages))).message)
            tasks.cancel_scope.cancel()
    assert received == ["before", "after"]
    assert bob.connections == 2


async def test_a_publish_waits_until_the_relay_is_there(relay: MakeRelay) -> None:
    async with relay("a") as server:
        port = server.service.address[1]
    async with RelayClient(f"ws://127.0.0.1:{port}", backoff=SOON) as alice:
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(alice.publish, NEWS, "patience")
                await anyio.sleep(0.05)
                async with relay("a", **{"relay.port": port}) as server:
                    while server.service.hub.publishing.cached == 0:
                        await anyio.sleep(0.01)


async def test_nobody_there_is_said_after_the_timeout() -> None:
    async with RelayClient("ws://127.0.0.1:9", backoff=SOON) as client:
        with pytest.raises(UnreachableError, match=r"no answer in 0\.1 s"):
            await client.publish(NEWS, "hello", timeout=0.1)


async def test_a_relay_that_talks_nonsense_is_tried_again() -> None:
    """The first connection gets what no relay says; the client must neither crash nor give up."""
    opened = 0

    async def answer(stream: SocketStream) -> None:
        nonlocal opened
        socket, _ = await accept(stream, lambda request: None, max_message=1_000_000, seconds=5)
        opened += 1
        for _, payload in await socket.read():
            answered = rpc.yes(msgspec.json.decode(payload)["id"])
            socket.put(answered if opened > 1 else b"nonsense", is_text=True)
        await socket.flush()
        await socket.close(linger=1)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, background() as tasks:
        tasks.start_soon(listener.serve, answer)
        port = listener.extra(SocketAttribute.local_port)
        async with RelayClient(f"ws://127.0.0.1:{port}", backoff=SOON) as client:
            await client.publish(NEWS, "hello", timeout=5)
    assert opened == 2


async def test_a_relay_that_lets_us_not_in_ends_it_for_good(relay: MakeRelay) -> None:
    async with relay(**{"relay.project_ids": ["friends"]}) as server:
        async with RelayClient(server.url, project_id="friends") as friend:
            await friend.publish(NEWS, "hello", timeout=5)
        async with RelayClient(server.url, project_id="strangers") as stranger:
            with pytest.raises(RefusedError) as raised:
                await stranger.publish(NEWS, "hello", timeout=5)
    assert raised.value.reason is Reason.UNAUTHORISED
    assert "project" in str(raised.value)


async def test_a_refused_message_says_why(relay: MakeRelay) -> None:
    async with relay(**{"relay.message_bytes": 10}) as server, RelayClient(server.url) as client:
        with pytest.raises(RefusedError, match="a message may have 10 bytes, this one has 11") as raised:
            await client.publish(NEWS, "x" * 11)
        with pytest.raises(UsageError, match="64 lower-case hex digits"):
            await client.publish("news", "hello")
    assert raised.value.reason is Reason.OVERSIZE


async def test_messages_can_be_fetched_without_subscribing_once(relay: MakeRelay) -> None:
    async with relay() as server, RelayClient(server.url) as alice, RelayClient(server.url) as bob:
        for number in range(3):
            await alice.publish(NEWS, str(number), tag=number)
        first, second = await bob.fetch(NEWS), await bob.fetch(NEWS)
        other = await alice.fetch(NEWS)
    assert [(each.message, each.tag) for each in first] == [("0", 0), ("1", 1), ("2", 2)]
    assert second == other == []


async def test_a_closed_client_tells_whoever_waits(relay: MakeRelay) -> None:
    async with relay() as server:
        client = RelayClient(server.url)
        async with client:
            await client.publish(NEWS, "hello")
        with pytest.raises(ClosedError):
            await client.publish(NEWS, "again")


async def test_one_topic_is_subscribed_to_once_per_client(relay: MakeRelay) -> None:
    async with relay() as server, RelayClient(server.url) as client, client.subscribe(NEWS):
        with pytest.raises(UsageError, match="already subscribed"):
            async with client.subscribe(NEWS):
                pass


def test_an_address_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="not a relay's address"):
        RelayClient("https://relay.example.org")


async def test_the_client_works_under_asyncio_too(relay: MakeRelay, tmp_path: Path) -> None:
    script = tmp_path / "client.py"
    script.write_text(
        "import asyncio, sys\n"
        "from syncline.protocols.relay.client import RelayClient\n"
        "async def main(url, topic):\n"
        "    async with RelayClient(url) as alice, RelayClient(url) as bob, bob.subscribe(topic) as messages:\n"
        "        await alice.publish(topic, 'from asyncio')\n"
        "        print((await anext(aiter(messages))).message)\n"
        "asyncio.run(main(*sys.argv[1:]))\n"
    )
    async with relay() as server:
        done = await anyio.run_process([sys.executable, str(script), server.url, NEWS])
    assert done.stdout.decode().strip() == "from asyncio"
