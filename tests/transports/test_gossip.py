"""SDSP over GossipSub: two hosts, signed frames, objects that end up the same."""

from __future__ import annotations

import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path

import anyio
import pytest

from syncline.core.errors import DecodeError, UnreachableError, UsageError
from syncline.core.keys import NodeKey
from syncline.networks.libp2p.host import HostSettings, running_host
from syncline.protocols.sdsp.plugins import Delivery, Start
from syncline.protocols.sdsp.publisher import Publisher
from syncline.protocols.sdsp.subscriber import follow
from syncline.transports.gossip import UNREAD, GossipTransport, gossip_topic, open_gossip
from tests.transports.frames import delta, full, serials

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["trio", "asyncio"])]
ALICE, BOB = NodeKey(b"a" * 32), NodeKey(b"b" * 32)


@asynccontextmanager
async def two() -> AsyncIterator[tuple[GossipTransport, GossipTransport]]:
    """Alice listens, Bob is connected to her."""
    async with open_gossip("gossip:?listen=/ip4/127.0.0.1/tcp/0", key=ALICE) as alice:
        [address] = alice._host.addresses
        async with open_gossip(f"gossip:{address}", key=BOB) as bob:
            yield alice, bob


async def some(deliveries: AsyncIterator[Delivery], number: int) -> list[Delivery]:
    with anyio.fail_after(10):
        return [await anext(deliveries) for _ in range(number)]


async def put(transport: GossipTransport, payload: bytes, name: str) -> None:
    await transport.publish("sats/low", payload, dedupe_id=name, expect_serial=None)


def numbers(deliveries: list[Delivery]) -> list[int]:
    return serials([delivery.payload for delivery in deliveries])


@pytest.mark.parametrize("listening", [0, 1])
async def test_frames_arrive_once_each_by_their_author_whoever_dialled(listening: int) -> None:
    async with two() as pair:
        reader, writer = pair[listening], pair[1 - listening]
        author = (BOB, ALICE)[listening].peer_id
        async with reader.subscribe("sats/low", Start(uid="sat.1")) as deliveries:
            await put(writer, full("sat.1", 0), "0")
            await put(writer, full("sat.1", 0), "0")  # repeated
            await put(writer, full("other", 7), "other")
            await put(writer, delta("sat.1", 1, 1), "1")
            found = await some(deliveries, 2)
            assert numbers(found) == [0, 1]
            assert {delivery.publisher for delivery in found} == {author}
        assert await reader.replay("sats/low", uid="sat.1", first=0, last=9) == []
        assert await reader.newest("sats/low", uid="sat.1") is None


async def test_several_readers_here_share_a_topic_and_each_has_its_own_object_and_start() -> None:
    async with two() as (alice, bob):
        async with (
            alice.subscribe("sats/low", Start(uid="a")) as first,
            alice.subscribe("sats/low", Start(uid="a", after=1)) as second,
            alice.subscribe("sats/low", Start(uid="b")) as third,
        ):
            for serial in range(3):
                await put(bob, full("a", serial), f"a{serial}")
            await put(bob, full("b", 9), "b9")
            assert numbers(await some(first, 3)) == [0, 1, 2]
            assert numbers(await some(second, 1)) == [2]
            assert numbers(await some(third, 1)) == [9]
        async with alice.subscribe("sats/low", Start(uid="a")) as again:
            alice._patience = 0.05  # Bob does not listen
            await put(alice, full("a", 3), "a3")  # our own reach our own readers
            assert [delivery.publisher for delivery in await some(again, 1)] == [ALICE.peer_id]
        with anyio.fail_after(5):
            while alice._rooms:
                await anyio.sleep(0.01)


async def test_a_publish_nobody_listens_to_is_not_taken_and_may_be_repeated() -> None:
    async with open_gossip("gossip:?listen=/ip4/127.0.0.1/tcp/0", key=ALICE, listener_seconds=0.05) as alice:
        with pytest.raises(UnreachableError):
            await put(alice, full("sat.1", 0), "0")
        async with open_gossip(f"gossip:{alice._host.addresses[0]}", key=BOB) as bob:
            async with bob.subscribe("sats/low", Start(uid="sat.1")) as deliveries:
                await alice._host.gossip.wait_for_neighbours(gossip_topic("sats/low"))
                await put(alice, full("sat.1", 0), "0")
                assert numbers(await some(deliveries, 1)) == [0]


async def test_the_same_frame_on_another_topic_is_not_a_repeat() -> None:
    async with two() as (alice, bob):
        async with bob.subscribe("sats/low", Start(uid="a")), bob.subscribe("other", Start(uid="a")) as deliveries:
            await put(alice, full("a", 0), "0")
            await alice.publish("other", full("a", 0), dedupe_id="0", expect_serial=None)
            assert numbers(await some(deliveries, 1)) == [0]


async def test_a_reader_that_takes_nothing_loses_nothing() -> None:
    async with two() as (alice, bob), alice.subscribe("sats/low", Start(uid="a")) as deliveries:
        count = 10 * UNREAD
        for serial in range(count):
            await put(bob, full("a", serial), str(serial))
        assert numbers(await some(deliveries, count)) == list(range(count))


async def test_what_is_no_frame_is_held_against_who_sent_it() -> None:
    async with two() as (alice, bob), alice.subscribe("sats/low", Start(uid="a")) as deliveries:
        topic = gossip_topic("sats/low")
        await bob._host.gossip.wait_for_neighbours(topic)
        await bob._host.gossip.publish(topic, b"rubbish")
        await put(bob, full("a", 0), "0")
        assert numbers(await some(deliveries, 1)) == [0]
        assert alice._host.statistics()["gossip_rejected"] == 1
        with pytest.raises(DecodeError):
            await put(bob, b"rubbish", "r")


async def test_an_object_is_published_and_followed_over_gossip() -> None:
    async with two() as (alice, bob), follow(alice, "sat.1", topic="sats") as followed, Publisher(bob) as publisher:
        published = await publisher.create({"n": 0}, uid="sat.1", topic="sats")
        await published.update({"n": 1, "name": "one"})
        await published.update({"n": 2, "name": "two"})
        await published.freeze()
        with anyio.fail_after(10):
            async for _ in followed:
                if followed.state is not None and followed.state.serial == 3:
                    break
        assert followed.value == {"n": 2, "name": "two"}


async def test_a_frame_goes_on_through_a_host_between() -> None:
    async with two() as (alice, bob), alice.subscribe("sats/low", Start(uid="a")) as middle:
        [address] = alice._host.addresses
        async with open_gossip(f"gossip:{address}", key=NodeKey(b"c" * 32)) as carol:
            async with carol.subscribe("sats/low", Start(uid="a")) as far:
                await alice._host.gossip.wait_for_neighbours(gossip_topic("sats/low"))
                await put(bob, full("a", 0), "0")
                assert numbers(await some(middle, 1)) == [0]
                [found] = await some(far, 1)
                assert found.publisher == BOB.peer_id


@pytest.mark.parametrize("url", ["gossip:", "gossip:/ip4/127.0.0.1/tcp/1", "gossip:?fly=1", "gossip:/nowhere"])
async def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        async with open_gossip(url):
            pass


async def test_a_topic_too_long_for_gossip_is_refused() -> None:
    async with running_host(ALICE, HostSettings(listen=())) as host, anyio.create_task_group() as tasks:
        with pytest.raises(UsageError):
            await GossipTransport(host, tasks).publish("x" * 300, full("a", 0), dedupe_id="0", expect_serial=None)


async def test_it_is_registered_under_its_scheme() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    module, _, name = project["project"]["entry-points"]["syncline.sdsp.transports"]["gossip"].partition(":")
    assert getattr(import_module(module), name) is open_gossip
