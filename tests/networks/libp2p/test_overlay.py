"""Pubsub on running hosts: verdicts, forwarding, back-pressure, and what bad neighbours get."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import anyio
import pytest

from syncline.core.errors import ClosedError, UnreachableError, UsageError
from syncline.core.keys import NodeKey
from syncline.core.limits import PUBSUB_MESSAGE_BYTES, PUBSUB_UNDECIDED
from syncline.core.verdict import ACCEPT, Reason, ignore, reject
from syncline.formats.pubsub import Control, Have, Rpc, Subscribe, compose, encode_rpc
from syncline.networks.host import Cut, Delivery, Drop, PeerEvent, Subscription
from syncline.networks.libp2p.connection import Channel
from syncline.networks.libp2p.guard import Limits
from syncline.networks.libp2p.host import HostSettings, Libp2pHost
from syncline.networks.memory_host import MemoryFabric
from syncline.networks.pubsub.gossip import GossipRouter
from syncline.networks.pubsub.outbox import frame, message_frame
from syncline.networks.pubsub.router import Router

pytestmark = pytest.mark.anyio
KEYS = [NodeKey(bytes(31) + bytes((number,))) for number in range(5)]
T = "/t"
OVERLAYS = pytest.mark.parametrize("kind", ["gossip", "flood"])


async def receive(subscription: Subscription, count: int, seconds: float = 30.0) -> list[Delivery]:
    found: list[Delivery] = []
    with anyio.fail_after(seconds):
        while len(found) < count:
            found += await subscription.receive()
    return found


async def nothing(subscription: Subscription, seconds: float = 5.0) -> bool:
    """Whether nothing comes."""
    with anyio.move_on_after(seconds) as waited:
        await subscription.receive()
    return waited.cancelled_caught


async def settle(*pairs: tuple[Libp2pHost, int], kind: str = "gossip", topic: str = T) -> None:
    """Wait until each host knows so many subscribers."""
    with anyio.fail_after(30):
        for host, count in pairs:
            await getattr(host, kind).wait_for_neighbours(topic, count)


@OVERLAYS
async def test_an_accepted_message_goes_on_and_an_undecided_one_waits(fabric: MemoryFabric, kind: str) -> None:
    async with fabric.host(KEYS[0]) as a, fabric.host(KEYS[1]) as b, fabric.host(KEYS[2]) as c:
        await a.connect(b.addresses[0])
        await c.connect(b.addresses[0])
        async with getattr(b, kind).subscribe(T) as middle, getattr(c, kind).subscribe(T) as end:
            await settle((a, 1), (b, 1), kind=kind)
            await getattr(a, kind).publish(T, b"hello")
            [delivery] = await receive(middle, 1)
            assert await nothing(end)
            delivery.decide(ACCEPT)
            [arrived] = await receive(end, 1)
            assert arrived.message == delivery.message
            assert (arrived.message.author, arrived.forwarder) == (a.peer_id, b.peer_id)
            delivery.decide(ACCEPT)  # only the first counts
            assert await nothing(end)


@OVERLAYS
@pytest.mark.parametrize(("verdict", "faults"), [(reject(Reason.INVALID_PAYLOAD), 1.0), (ignore(Reason.EXPIRED), 0.0)])
async def test_what_is_not_accepted_stays_and_only_rejects_are_held_against_the_forwarder(
    fabric: MemoryFabric, kind: str, verdict: object, faults: float
) -> None:
    async with fabric.host(KEYS[0]) as a, fabric.host(KEYS[1]) as b, fabric.host(KEYS[2]) as c:
        await a.connect(b.addresses[0])
        await c.connect(b.addresses[0])
        async with getattr(b, kind).subscribe(T) as middle, getattr(c, kind).subscribe(T) as end:
            await settle((a, 1), (b, 1), kind=kind)
            await getattr(a, kind).publish(T, b"bad")
            [delivery] = await receive(middle, 1)
            delivery.decide(verdict)  # type: ignore[arg-type]
            assert b._guard.faults(a.peer_id, anyio.current_time()) == pytest.approx(faults)
            assert await nothing(end)


async def test_a_subscriber_that_does_not_forward_keeps_what_it_accepts(fabric: MemoryFabric) -> None:
    async with fabric.host(KEYS[0]) as a, fabric.host(KEYS[1]) as b, fabric.host(KEYS[2]) as c:
        await a.connect(b.addresses[0])
        await c.connect(b.addresses[0])
        async with b.flood.subscribe(T, forward=False) as middle, c.flood.subscribe(T) as end:
            await settle((a, 1), (b, 1), kind="flood")
            await a.flood.publish(T, b"mine")
            [delivery] = await receive(middle, 1)
            delivery.decide(ACCEPT)
            assert await nothing(end)
            assert b.statistics()["flood_accepted"] == 1


@OVERLAYS
async def test_four_thousand_quick_publishes_arrive_in_order_at_a_reader_that_dawdles(
    fabric: MemoryFabric, kind: str
) -> None:
    async with fabric.host(KEYS[0]) as a, fabric.host(KEYS[1]) as b:
        await a.connect(b.addresses[0])
        async with getattr(b, kind).subscribe(T) as subscription, anyio.create_task_group() as tasks:
            await settle((a, 1), kind=kind)

            async def publish() -> None:
                for number in range(4_000):
                    published = await getattr(a, kind).publish(T, b"%d" % number)
                    assert published.sent == (b.peer_id,)

            tasks.start_soon(publish)
            found: list[bytes] = []
            most = 0
            while len(found) < 4_000:
                await anyio.sleep(0.5)
                batch = await receive(subscription, 1)
                most = max(most, int(b.statistics()[f"{kind}_undecided"]))
                for delivery in batch:
                    delivery.decide(ACCEPT)
                found += [delivery.message.data for delivery in batch]
        assert found == [b"%d" % number for number in range(4_000)]
        assert most <= PUBSUB_UNDECIDED
        assert b.statistics()[f"{kind}_waits_for_verdicts"] > 0


async def test_a_subscriber_that_never_reads_is_cut_by_name_and_the_others_get_everything(fabric: MemoryFabric) -> None:
    async with fabric.host(KEYS[0]) as a, fabric.host(KEYS[1]) as slow, fabric.host(KEYS[2]) as quick:
        events: list[PeerEvent] = []
        a.watch(events.append)
        await a.connect(slow.addresses[0])
        await a.connect(quick.addresses[0])
        async with slow.gossip.subscribe(T), quick.gossip.subscribe(T) as subscription:
            await settle((a, 2))
            dropped: list[Drop] = []
            got = 0

            async def publish() -> None:
                for _ in range(1_000):
                    published = await a.gossip.publish(T, bytes(10_000))
                    dropped.extend(published.dropped)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(publish)
                while got < 1_000:
                    batch = await receive(subscription, 1, 60)
                    for delivery in batch:
                        delivery.decide(ACCEPT)
                    got += len(batch)
        assert dropped == [Drop(slow.peer_id, Cut.SLOW_READER)]  # the one that waited for room; the rest was queued
        assert PeerEvent(slow.peer_id, False, Cut.SLOW_READER) in events
        assert a.statistics()["cut_slow_reader"] == 1
        assert a.statistics()["gossip_lost_slow_reader"] > 100


async def test_a_publisher_that_waits_for_a_stalled_neighbour_is_told_who_was_dropped(fabric: MemoryFabric) -> None:
    async with fabric.host(KEYS[0]) as a, fabric.host(KEYS[1]) as slow:
        await a.connect(slow.addresses[0])
        async with slow.flood.subscribe(T):
            await settle((a, 1), kind="flood")
            dropped: list[Drop] = []
            for _ in range(2_000):
                published = await a.flood.publish(T, bytes(10_000))
                dropped += published.dropped
                if dropped:
                    break
        assert dropped == [Drop(slow.peer_id, Cut.SLOW_READER)]


class Attacker:
    """A bare peer that writes what it likes on a pubsub stream."""

    def __init__(self, host: Libp2pHost, victim: Libp2pHost, protocol: str) -> None:
        self.host, self.victim, self.protocol = host, victim, protocol
        self._channel: Channel | None = None

    async def write(self, data: bytes) -> None:
        self._channel = self._channel or await self.host.open_channel(self.victim.peer_id, [self.protocol])
        await self._channel.send(data)
        await anyio.sleep(0.1)


async def attack(fabric: MemoryFabric, victim: Libp2pHost, protocol: str, host: Libp2pHost) -> Attacker:
    await host.connect(victim.addresses[0])
    await anyio.sleep(0.1)
    return Attacker(host, victim, protocol)


async def test_forged_messages_are_refused_handed_over_if_asked_and_end_in_a_ban(fabric: MemoryFabric) -> None:
    forged = bytearray(compose(KEYS[3], T, b"forged", 1))
    forged[45] ^= 1
    async with fabric.host(KEYS[0]) as victim, fabric.host(KEYS[1]) as host:
        events: list[PeerEvent] = []
        victim.watch(events.append)
        async with victim.flood.subscribe(T, refused=True) as subscription:
            attacker = await attack(fabric, victim, "/floodsub/1.0.0", host)
            await attacker.write(message_frame(bytes(forged)))
            [delivery] = await receive(subscription, 1)
            assert delivery.verdict is not None
            assert (delivery.verdict.reason, delivery.message.raw) == (Reason.INVALID_SIGNATURE, bytes(forged))
            delivery.decide(ACCEPT)
            assert victim.statistics().get("flood_accepted", 0) == 0
            await attacker.write(message_frame(bytes(forged)) * 30)
            assert PeerEvent(host.peer_id, False, Cut.MISBEHAVING) in events
            assert victim.statistics()["flood_refused_invalid_signature"] >= 17  # cut after the seventeenth fault
            with pytest.raises(UnreachableError):
                await attacker.write(b"x")
            await host.connect(victim.addresses[0])  # the handshake ends well, the welcome does not
            await anyio.sleep(0.1)
            assert victim.statistics()["refused_banned"] == 1
            assert victim.peers() == []


async def test_an_unsigned_flood_costs_its_sender_the_connection(fabric: MemoryFabric) -> None:
    unsigned = compose(KEYS[3], T, b"x", 1)[:-66]
    async with fabric.host(KEYS[0]) as victim, fabric.host(KEYS[1]) as host, victim.gossip.subscribe(T) as subscription:
        attacker = await attack(fabric, victim, "/meshsub/1.2.0", host)
        await attacker.write(message_frame(unsigned) * 1_000)
        assert victim.peers() == []
        assert await nothing(subscription)
        assert victim.statistics()["cut_misbehaving"] == 1


async def test_copies_by_other_neighbours_are_repeats_and_forged_copies_are_not(fabric: MemoryFabric) -> None:
    raw = compose(KEYS[4], T, b"news", 7)
    forged = raw.replace(b"news", b"fake")
    hosts = fabric.host(KEYS[0]), fabric.host(KEYS[1]), fabric.host(KEYS[2])
    async with hosts[0] as victim, hosts[1] as one, hosts[2] as two:
        async with victim.flood.subscribe(T, repeats=True, refused=True) as subscription:
            first = await attack(fabric, victim, "/floodsub/1.0.0", one)
            second = await attack(fabric, victim, "/floodsub/1.0.0", two)
            await first.write(message_frame(raw))
            await second.write(message_frame(raw))
            await second.write(message_frame(forged))
            found = await receive(subscription, 3)
            assert [(each.forwarder, each.repeat) for each in found] == [
                (one.peer_id, False),
                (two.peer_id, True),
                (two.peer_id, False),
            ]
            assert [each.verdict.reason if each.verdict else None for each in found] == [
                None,
                None,
                Reason.INVALID_SIGNATURE,
            ]
            for delivery in found:
                delivery.decide(ACCEPT)
            assert victim.statistics()["flood_accepted"] == 1


@OVERLAYS
async def test_a_copy_accepted_after_the_first_was_ignored_goes_on_and_no_other_does(
    fabric: MemoryFabric, kind: str
) -> None:
    raw = compose(KEYS[4], T, b"news", 7)
    protocol = {"gossip": "/meshsub/1.1.0", "flood": "/floodsub/1.0.0"}[kind]
    hosts = [fabric.host(key) for key in KEYS[:4]]
    async with hosts[0] as middle, hosts[1] as end, hosts[2] as one, hosts[3] as two:
        await end.connect(middle.addresses[0])
        async with getattr(middle, kind).subscribe(T, repeats=True) as taken, getattr(end, kind).subscribe(T) as heard:
            await settle((middle, 1), (end, 1), kind=kind)
            first = await attack(fabric, middle, protocol, one)
            second = await attack(fabric, middle, protocol, two)
            await first.write(message_frame(raw))
            await second.write(message_frame(raw))
            too_early, in_time = await receive(taken, 2)
            too_early.decide(ignore(Reason.HEADER_UNKNOWN))
            assert await nothing(heard)
            in_time.decide(ACCEPT)
            [arrived] = await receive(heard, 1)
            assert (arrived.message.raw, arrived.forwarder) == (raw, middle.peer_id)
            for attacker in (first, second):
                await attacker.write(message_frame(raw))
            for delivery in await receive(taken, 2):
                delivery.decide(ACCEPT)
            await anyio.sleep(1)
            found = middle.statistics()
            assert (found[f"{kind}_accepted"], found[f"{kind}_forwarded"], found[f"{kind}_ignored"]) == (1, 1, 3)
            assert end.statistics().get(f"{kind}_repeats", 0) == 0


async def test_our_own_message_brought_back_and_accepted_is_not_sent_again(fabric: MemoryFabric) -> None:
    hosts = [fabric.host(key) for key in KEYS[:3]]
    async with hosts[0] as author, hosts[1] as end, hosts[2] as other:
        await end.connect(author.addresses[0])
        async with author.flood.subscribe(T, repeats=True) as taken, end.flood.subscribe(T) as heard:
            await settle((author, 1), kind="flood")
            published = await author.flood.publish(T, b"mine")
            [arrived] = await receive(heard, 1)
            assert arrived.message.data == b"mine"
            echo = await attack(fabric, author, "/floodsub/1.0.0", other)
            earlier = compose(KEYS[0], T, b"from an earlier life", 7)
            await echo.write(message_frame(published.message.raw) + message_frame(earlier))
            for delivery in await receive(taken, 2):
                assert delivery.repeat
                delivery.decide(ACCEPT)
            assert await nothing(heard)
            assert author.statistics().get("flood_forwarded", 0) == 0


async def test_a_forged_copy_that_comes_first_does_not_take_the_place_of_the_message(fabric: MemoryFabric) -> None:
    raw = compose(KEYS[4], T, b"news", 7)
    async with fabric.host(KEYS[0]) as victim, fabric.host(KEYS[1]) as host, victim.flood.subscribe(T) as subscription:
        attacker = await attack(fabric, victim, "/floodsub/1.0.0", host)
        await attacker.write(message_frame(raw.replace(b"news", b"fake")) + message_frame(raw))
        [delivery] = await receive(subscription, 1)
        assert delivery.message.data == b"news"


async def test_two_messages_signed_under_one_number_are_equivocation_and_nobody_else_is_blamed(
    fabric: MemoryFabric,
) -> None:
    async with fabric.host(KEYS[0]) as victim, fabric.host(KEYS[1]) as host, victim.flood.subscribe(T) as subscription:
        attacker = await attack(fabric, victim, "/floodsub/1.0.0", host)
        await attacker.write(
            message_frame(compose(KEYS[4], T, b"one", 7)) + message_frame(compose(KEYS[4], T, b"two", 7))
        )
        assert [each.message.data for each in await receive(subscription, 1)] == [b"one"]
        assert await nothing(subscription)
        assert victim.statistics()["flood_equivocations"] == 1
        assert victim._guard.faults(host.peer_id, anyio.current_time()) == 0


async def test_our_own_message_brought_back_is_not_taken_for_news(fabric: MemoryFabric) -> None:
    async with fabric.host(KEYS[0]) as victim, fabric.host(KEYS[1]) as host, victim.flood.subscribe(T) as subscription:
        attacker = await attack(fabric, victim, "/floodsub/1.0.0", host)
        await attacker.write(message_frame(compose(KEYS[0], T, b"from an earlier life", 7)))
        assert await nothing(subscription)
        assert victim.statistics()["flood_repeats"] == 1


def _subscriptions(count: int, per_rpc: int) -> bytes:
    rpcs = [
        encode_rpc(Rpc(tuple(Subscribe(f"/{first + number}", True) for number in range(per_rpc))))
        for first in range(0, count, per_rpc)
    ]
    return b"".join(map(frame, rpcs))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x05\xff\xff\xff\xff\xff", Cut.MALFORMED),
        (b"\xff\xff\xff\x7f", Cut.OVERSIZE),
        (_subscriptions(10_000, 10_000), Cut.SPAM),
        (_subscriptions(10_000, 100), Cut.MISBEHAVING),
    ],
)
async def test_broken_giant_and_spamming_streams_are_cut_by_name(fabric: MemoryFabric, data: bytes, why: Cut) -> None:
    async with fabric.host(KEYS[0]) as victim, fabric.host(KEYS[1]) as host:
        attacker = await attack(fabric, victim, "/meshsub/1.1.0", host)
        await attacker.write(data)
        assert victim.statistics()[f"cut_{why}"] == 1
        assert victim.gossip.router.subscribers == {}


async def test_announcing_and_asking_for_ids_without_end_costs_the_connection(fabric: MemoryFabric) -> None:
    """Also when it is no longer answered: 500 RPCs a second, which alone are not too many."""
    ids = tuple(bytes((number,)) * 32 for number in range(50))
    spam = frame(encode_rpc(Rpc(control=Control(have=(Have(T, ids),), want=ids))))
    async with fabric.host(KEYS[0]) as victim, fabric.host(KEYS[1]) as host, victim.gossip.subscribe(T):
        await host.connect(victim.addresses[0])
        await anyio.sleep(1)
        channel = await host.open_channel(victim.peer_id, ["/meshsub/1.1.0"])
        sent = 0
        with suppress(UnreachableError):
            while sent < 1_000:
                await channel.send(spam)
                sent += 1
                await anyio.sleep(0.002)
        assert 200 < sent < 300
        assert victim.statistics()["cut_misbehaving"] == 1


async def test_messages_without_a_topic_cost_their_sender_the_connection(fabric: MemoryFabric) -> None:
    async with fabric.host(KEYS[0]) as victim, fabric.host(KEYS[1]) as host:
        attacker = await attack(fabric, victim, "/floodsub/1.0.0", host)
        await attacker.write(frame(encode_rpc(Rpc(messages=(b"",) * 17))))
        assert victim.statistics()["flood_refused_invalid_topic"] == 17
        assert victim.statistics()["cut_misbehaving"] == 1


async def test_others_get_their_turn_while_a_peer_sends_nothing_by_the_thousand(fabric: MemoryFabric) -> None:
    async with fabric.host(KEYS[0]) as victim, fabric.host(KEYS[1]) as host, anyio.create_task_group() as tasks:
        await host.connect(victim.addresses[0])
        await anyio.sleep(0.1)
        channel = await host.open_channel(victim.peer_id, ["/floodsub/1.0.0"])
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                await anyio.lowlevel.checkpoint()
                turns += 1

        tasks.start_soon(others)
        await channel.send(frame(b"") * 30_000 + frame(encode_rpc(Rpc((Subscribe(T, True),)))))
        await victim.flood.wait_for_neighbours(T)
        assert turns > 30_000 / 32
        tasks.cancel_scope.cancel()


async def test_subscriptions_of_one_peer_are_bounded(fabric: MemoryFabric) -> None:
    async with fabric.host(KEYS[0]) as victim, fabric.host(KEYS[1]) as host:
        attacker = await attack(fabric, victim, "/meshsub/1.1.0", host)
        await attacker.write(_subscriptions(256, 256) + _subscriptions(260, 10))
        assert len(victim.gossip.topics_of(host.peer_id)) == 256
        assert victim.statistics()["gossip_subscription_spam"] == 4


async def test_a_peer_whose_messages_keep_being_rejected_is_cut(fabric: MemoryFabric) -> None:
    async with fabric.host(KEYS[0]) as a, fabric.host(KEYS[1]) as b:
        await a.connect(b.addresses[0])
        async with b.gossip.subscribe(T) as subscription:
            await settle((a, 1))
            for number in range(17):
                await a.gossip.publish(T, b"%d" % number)
            for delivery in await receive(subscription, 17):
                delivery.decide(reject(Reason.INVALID_PAYLOAD))
            await anyio.sleep(0.1)
            assert b.statistics()["cut_misbehaving"] == 1


async def test_a_fault_of_ours_while_judging_is_held_against_nobody(fabric: MemoryFabric) -> None:
    async with fabric.host(KEYS[0]) as a, fabric.host(KEYS[1]) as b:
        await a.connect(b.addresses[0])
        async with b.gossip.subscribe(T) as subscription:
            await settle((a, 1))
            for number in range(50):
                await a.gossip.publish(T, b"%d" % number)
            for delivery in await receive(subscription, 50):
                delivery.decide(reject(Reason.JUDGE_FAILED))
            await anyio.sleep(0.1)
            assert [peer.score for peer in b.peers()] == [0.0]


@OVERLAYS
async def test_leaving_a_topic_is_told_and_what_was_undecided_is_ignored(fabric: MemoryFabric, kind: str) -> None:
    async with fabric.host(KEYS[0]) as a, fabric.host(KEYS[1]) as b:
        await a.connect(b.addresses[0])
        async with getattr(b, kind).subscribe(T) as subscription:
            await settle((a, 1), kind=kind)
            with pytest.raises(UsageError):
                async with getattr(b, kind).subscribe(T):
                    pass
            await getattr(a, kind).publish(T, b"1")
            await receive(subscription, 1)
            await getattr(a, kind).publish(T, b"2")
            await anyio.sleep(0.1)
        with pytest.raises(ClosedError):
            await subscription.receive()
        assert [batch async for batch in subscription] == []
        await anyio.sleep(0.1)
        assert getattr(a, kind).neighbours(T) == []
        assert (await getattr(a, kind).publish(T, b"nobody")).sent == ()


async def test_what_cannot_be_published_is_refused(fabric: MemoryFabric) -> None:
    async with fabric.host(KEYS[0]) as a:
        with pytest.raises(UsageError):
            a.gossip.compose(T, bytes(PUBSUB_MESSAGE_BYTES + 1))
        for topic in ("", "x" * 257):
            with pytest.raises(UsageError):
                a.gossip.compose(topic, b"")
            with pytest.raises(UsageError):
                async with a.gossip.subscribe(topic):
                    pass
        first, second = a.gossip.compose(T, b"1"), a.gossip.compose(T, b"2")
        assert second.seqno > first.seqno
    with pytest.raises(ClosedError):
        await a.gossip.publish(T, b"too late")


@OVERLAYS
async def test_a_ring_of_five_delivers_each_message_once_to_everybody(fabric: MemoryFabric, kind: str) -> None:
    async with anyio.create_task_group() as tasks:
        hosts: list[Libp2pHost] = []
        heard: list[list[tuple[str, bytes]]] = [[] for _ in KEYS]
        up = anyio.Event()
        over = anyio.Event()

        async def live(index: int) -> None:
            async with fabric.host(KEYS[index]) as host, getattr(host, kind).subscribe(T) as subscription:
                hosts.append(host)
                if len(hosts) == len(KEYS):
                    up.set()
                async with anyio.create_task_group() as own:
                    own.start_soon(follow, index, subscription)
                    await over.wait()
                    own.cancel_scope.cancel()

        async def follow(index: int, subscription: Subscription) -> None:
            async for batch in subscription:
                for delivery in batch:
                    heard[index].append((delivery.message.author, delivery.message.data))
                    delivery.decide(ACCEPT)

        for index in range(len(KEYS)):
            tasks.start_soon(live, index)
        await up.wait()
        ring = sorted(hosts, key=lambda host: host.peer_id)
        for host, neighbour in zip(ring, ring[1:] + ring[:1], strict=True):
            await host.connect(neighbour.addresses[0])
        await settle(*((host, 2) for host in ring), kind=kind)
        await anyio.sleep(3)
        sent = set()
        for number in range(20):
            host = ring[number % 5]
            await getattr(host, kind).publish(T, b"%d" % number)
            sent.add((host.peer_id, b"%d" % number))
        await anyio.sleep(10)
        for key, found in zip(KEYS, heard, strict=True):
            assert sorted(found) == sorted(pair for pair in sent if pair[0] != key.peer_id)
        over.set()


async def test_a_closing_host_delivers_what_it_had_taken(fabric: MemoryFabric) -> None:
    async with fabric.host(KEYS[1]) as b, b.gossip.subscribe(T) as subscription:
        got: Sequence[Delivery] = []
        async with anyio.create_task_group() as tasks:

            async def follow() -> None:
                nonlocal got
                got = await receive(subscription, 500)

            tasks.start_soon(follow)
            async with fabric.host(KEYS[0]) as a:
                await a.connect(b.addresses[0])
                await settle((a, 1))
                for number in range(500):
                    await a.gossip.publish(T, b"%d" % number)
        assert [delivery.message.data for delivery in got] == [b"%d" % number for number in range(500)]


async def test_slow_peers_that_come_back_to_be_slow_again_are_banned_in_the_end(fabric: MemoryFabric) -> None:
    settings = HostSettings(limits=Limits(faults=16.0), slow_seconds=1.0)
    async with fabric.host(KEYS[0], settings) as a, fabric.host(KEYS[1]) as slow:
        for _ in range(3):
            await slow.connect(a.addresses[0])
            await anyio.sleep(0.1)
            a.cut(slow.peer_id, Cut.SLOW_READER)
            await anyio.sleep(0.1)
        assert a.statistics()["cut_slow_reader"] == 3
        await slow.connect(a.addresses[0])  # the handshake ends well, the welcome does not
        await anyio.sleep(0.1)
        assert a.peers() == []
        assert a.statistics()["refused_banned"] == 1


async def test_large_messages_at_a_high_rate_do_not_make_honest_neighbours_ban_one_another(
    fabric: MemoryFabric,
) -> None:
    """Every large message brings an IDONTWANT; many of them are no spam."""
    async with (
        fabric.host(KEYS[0]) as a,
        fabric.host(KEYS[1]) as b,
        fabric.host(KEYS[2]) as c,
        anyio.create_task_group() as tasks,
        b.gossip.subscribe(T) as at_b,
        c.gossip.subscribe(T) as at_c,
    ):
        for one, other in ((a, b), (b, c), (c, a)):
            await one.connect(other.addresses[0])
        await settle((a, 2), (b, 1), (c, 1))
        await anyio.sleep(3)
        got: dict[str, list[bytes]] = {b.peer_id: [], c.peer_id: []}

        async def follow(host: Libp2pHost, subscription: Subscription) -> None:
            async for batch in subscription:
                for delivery in batch:
                    got[host.peer_id].append(delivery.message.data)
                    delivery.decide(ACCEPT)

        tasks.start_soon(follow, b, at_b)
        tasks.start_soon(follow, c, at_c)
        sent = [number.to_bytes(4, "big") * 512 for number in range(1_000)]
        for data in sent:
            await a.gossip.publish(T, data)
        await anyio.sleep(5)
        assert [sorted(each) for each in got.values()] == [sent, sent]
        for host in (b, c):
            assert host.statistics()["gossip_control_spam"] == 0
            assert len(host.peers()) == 2
            assert all(peer.score >= 0 for peer in host.peers())
        tasks.cancel_scope.cancel()


async def test_a_peer_that_speaks_but_refuses_to_listen_is_not_heard_and_stays_in_no_mesh(fabric: MemoryFabric) -> None:
    deaf = Rpc((Subscribe(T, True),), control=Control(graft=(T,)))
    async with fabric.host(KEYS[0]) as victim, fabric.host(KEYS[1]) as host:
        host.gossip.router = Router()  # answers FloodSub streams only
        async with victim.gossip.subscribe(T) as subscription:
            attacker = await attack(fabric, victim, "/meshsub/1.1.0", host)
            await attacker.write(frame(encode_rpc(deaf)))
            await anyio.sleep(1)
            messages = [message_frame(compose(KEYS[3], T, bytes(10_000), seqno)) for seqno in range(1, 100)]
            with pytest.raises(UnreachableError):  # reading ends, so its window closes, and then the stream is reset
                await attacker.write(b"".join(messages))
            assert len(await receive(subscription, 1)) < 20
            router = victim.gossip.router
            assert isinstance(router, GossipRouter)
            assert router.mesh[T] == set()


async def test_a_graft_read_after_its_sender_left_puts_nobody_into_the_mesh(fabric: MemoryFabric) -> None:
    graft = frame(encode_rpc(Rpc((Subscribe(T, True),), control=Control(graft=(T,)))))
    async with fabric.host(KEYS[0]) as victim, victim.gossip.subscribe(T) as subscription:
        async with fabric.host(KEYS[1]) as host:
            attacker = await attack(fabric, victim, "/meshsub/1.1.0", host)
            messages = [compose(KEYS[3], T, b"x", seqno) for seqno in range(PUBSUB_UNDECIDED)]
            await attacker.write(b"".join(map(message_frame, messages)) + graft)
        await anyio.sleep(0.1)
        assert victim.peers() == []
        for delivery in await receive(subscription, PUBSUB_UNDECIDED):
            delivery.decide(ACCEPT)
        await anyio.sleep(0.1)
        router = victim.gossip.router
        assert isinstance(router, GossipRouter)
        assert (router.mesh[T], router.subscribers) == (set(), {})


async def test_a_neighbour_on_a_slow_line_is_given_time_for_a_large_message(fabric: MemoryFabric) -> None:
    """A megabyte at 100 kB/s takes ten seconds, twice as long as a neighbour may take nothing."""
    async with fabric.host(KEYS[0]) as a, fabric.host(KEYS[1]) as b, b.gossip.subscribe(T) as subscription:
        fabric.bytes_per_second = 100_000
        await a.connect(b.addresses[0])
        await settle((a, 1))
        data = bytes(PUBSUB_MESSAGE_BYTES)
        await a.gossip.publish(T, data)
        [delivery] = await receive(subscription, 1)
        assert delivery.message.data == data
        assert "cut_slow_reader" not in a.statistics()
