"""Our host against js-libp2p on real sockets: both overlays, both directions, both ways of dialling, and streams."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Literal

import anyio
import pytest

from syncline.core.keys import NodeKey
from syncline.core.verdict import ACCEPT
from syncline.formats.framing import Framing
from syncline.networks.host import Delivery, PubSub, Stream, Subscription
from syncline.networks.libp2p.host import Libp2pHost, running_host
from tests.interop.libp2p.peers import JsPeer, js_peer

pytestmark = [pytest.mark.interop, pytest.mark.anyio, pytest.mark.usefixtures("npm")]
TOPIC = "/interop/1"
FRAMES = Framing("u32le", 1_000_000)
ROUTERS = pytest.mark.parametrize("router", ["gossip", "flood"])
DIALS = pytest.mark.parametrize("dialler", ["we", "they"])


@asynccontextmanager
async def together(dialler: Literal["we", "they"]) -> AsyncIterator[tuple[Libp2pHost, JsPeer]]:
    async with js_peer() as js, running_host(NodeKey.generate()) as ours:
        if dialler == "we":
            assert await ours.connect(js.address) == js.peer
        else:
            await js.tell("dial", address=ours.addresses[0])
        yield ours, js


def overlay(host: Libp2pHost, router: str) -> PubSub:
    return host.gossip if router == "gossip" else host.flood


async def take(subscription: Subscription, count: int) -> list[Delivery]:
    found: list[Delivery] = []
    with anyio.fail_after(60):
        while len(found) < count:
            batch = await subscription.receive()
            for delivery in batch:
                delivery.decide(ACCEPT)
            found += batch
    return found


@ROUTERS
@DIALS
async def test_messages_go_both_ways_whoever_dialled(router: str, dialler: Literal["we", "they"]) -> None:
    async with together(dialler) as (ours, js):
        pubsub = overlay(ours, router)
        async with pubsub.subscribe(TOPIC) as subscription:
            await js.tell("subscribe", router=router, topic=TOPIC)
            await js.tell("awaitSubscribers", router=router, topic=TOPIC, count=1)
            with anyio.fail_after(30):
                await pubsub.wait_for_neighbours(TOPIC)
            await js.tell("publish", router=router, topic=TOPIC, data=b"from js")
            [delivery] = await take(subscription, 1)
            assert (delivery.message.data, delivery.message.author) == (b"from js", js.peer)
            assert delivery.forwarder == js.peer
            published = await pubsub.publish(TOPIC, b"from python")
            assert published.sent == (js.peer,)
            [message] = (await js.tell("received", router=router, count=1))["messages"]
            assert (message["from"], b64decode(message["text"])) == (ours.peer_id, b"from python")
            assert message["seqno"] == str(published.message.seqno)


@ROUTERS
async def test_two_thousand_quick_publishes_arrive_completely_at_js(router: str) -> None:
    async with together("we") as (ours, js):
        await js.tell("subscribe", router=router, topic=TOPIC)
        pubsub = overlay(ours, router)
        with anyio.fail_after(30):
            await pubsub.wait_for_neighbours(TOPIC)
        sent = [f"message {number}".encode() for number in range(2_000)]
        for data in sent:
            assert (await pubsub.publish(TOPIC, data)).sent == (js.peer,)
        messages = (await js.tell("received", router=router, count=2_000))["messages"]
        assert [b64decode(message["text"]) for message in messages] == sent


@ROUTERS
async def test_two_thousand_quick_publishes_of_js_arrive_completely_here(router: str) -> None:
    async with together("they") as (ours, js), overlay(ours, router).subscribe(TOPIC) as subscription:
        await js.tell("awaitSubscribers", router=router, topic=TOPIC, count=1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: js.tell("publish", router=router, topic=TOPIC, data=b"n", times=2_000))
            found = await take(subscription, 2_000)
        assert sorted(each.message.data for each in found) == sorted(b"n%d" % number for number in range(2_000))


@pytest.mark.parametrize("size", [0, 1, 300, 10_240, 1_000_000 - 4_096])
async def test_gossip_messages_of_any_size_arrive_unchanged(size: int) -> None:
    async with together("we") as (ours, js), ours.gossip.subscribe(TOPIC) as subscription:
        await js.tell("subscribe", router="gossip", topic=TOPIC)
        await js.tell("awaitSubscribers", router="gossip", topic=TOPIC, count=1)
        with anyio.fail_after(30):
            await ours.gossip.wait_for_neighbours(TOPIC)
        data = bytes(index * 7 % 251 for index in range(size))
        await ours.gossip.publish(TOPIC, data)
        [message] = (await js.tell("received", router="gossip", count=1))["messages"]
        assert (message["size"], message["sha256"]) == (size, sha256(data).hexdigest())
        await js.tell("publish", router="gossip", topic=TOPIC, data=data)
        [delivery] = await take(subscription, 1)
        assert delivery.message.data == data


@DIALS
@pytest.mark.parametrize("size", [0, 1_000, 1_000_000])
async def test_framed_streams_go_both_ways(dialler: Literal["we", "they"], size: int) -> None:
    async def echo(stream: Stream) -> None:
        while (frame := await stream.receive()) is not None:
            await stream.send(frame)

    data = bytes(index * 7 % 251 for index in range(size))
    async with together(dialler) as (ours, js):
        await js.tell("echo", protocol="/their-echo/1")
        stream = await ours.open_stream(js.peer, "/their-echo/1", FRAMES)
        await stream.send(data)
        assert await stream.receive() == data
        await stream.end()
        assert await stream.receive() is None
        ours.handle_stream("/our-echo/1", echo, FRAMES)
        framed = FRAMES.wrap(data)
        answer = await js.tell("exchange", address=ours.addresses[0], protocol="/our-echo/1", data=framed)
        assert (answer["size"], answer["sha256"]) == (len(framed), sha256(framed).hexdigest())


async def test_a_line_of_js_us_and_js_delivers_once_attributed_to_its_author() -> None:
    async with js_peer() as first, js_peer() as last, running_host(NodeKey.generate()) as ours:
        await ours.connect(first.address)
        await ours.connect(last.address)
        for router in ("gossip", "flood"):
            async with overlay(ours, router).subscribe(TOPIC) as subscription:
                await last.tell("subscribe", router=router, topic=TOPIC)
                await first.tell("awaitSubscribers", router=router, topic=TOPIC, count=1)
                with anyio.fail_after(30):
                    await overlay(ours, router).wait_for_neighbours(TOPIC)
                await first.tell("publish", router=router, topic=TOPIC, data=b"through the middle")
                await take(subscription, 1)
                [message] = (await last.tell("received", router=router, count=1))["messages"]
                assert (message["from"], b64decode(message["text"])) == (first.peer, b"through the middle")


async def test_a_triangle_with_js_stays_together_through_a_thousand_large_messages() -> None:
    """Each makes the js peer that did not publish tell us that it wants no copy: that is no spam."""
    async with js_peer() as first, js_peer() as other, running_host(NodeKey.generate()) as ours:
        await ours.connect(first.address)
        await ours.connect(other.address)
        await first.tell("dial", address=other.address)
        async with ours.gossip.subscribe(TOPIC) as subscription:
            for js in (first, other):
                await js.tell("subscribe", router="gossip", topic=TOPIC)
            await first.tell("awaitSubscribers", router="gossip", topic=TOPIC, count=2)
            with anyio.fail_after(30):
                await ours.gossip.wait_for_neighbours(TOPIC, 2)
            await anyio.sleep(3)  # meshes form with the heartbeat
            async with anyio.create_task_group() as tasks:
                publish = {"router": "gossip", "topic": TOPIC, "data": bytes(2_048), "times": 1_000}
                tasks.start_soon(lambda: first.tell("publish", **publish))
                found = await take(subscription, 1_000)
            assert len({each.message.id for each in found}) == len(found) == 1_000
            messages = (await other.tell("received", router="gossip", count=1_000))["messages"]
            assert len({message["seqno"] for message in messages}) == len(messages) == 1_000
            assert {peer.peer for peer in ours.peers()} == {first.peer, other.peer}
            assert ours.statistics()["gossip_control_spam"] == 0
            assert all(peer.score >= 0 for peer in ours.peers())


async def test_identify_tells_what_the_peer_is_and_disconnecting_is_noticed() -> None:
    async with together("they") as (ours, js):
        with anyio.fail_after(30):
            while not ours.peers()[0].agent:
                await anyio.sleep(0.05)
        [info] = ours.peers()
        assert (info.peer, info.direction) == (js.peer, "in")
        assert info.agent.startswith("js-libp2p/")
        assert "/floodsub/1.0.0" in info.protocols
        [connection] = (await js.tell("peers"))["peers"]
        assert connection == {"peer": ours.peer_id, "direction": "outbound"}
        await js.tell("hangUp", peer=ours.peer_id)
        with anyio.fail_after(30):
            while ours.peers():
                await anyio.sleep(0.05)
