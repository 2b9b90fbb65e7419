"""What a running ShrEx/Sub peer must do, seen from outside: over libp2p, as two neighbours of it see it.

The subject is its address and the headers it follows; which program it is does not matter. One neighbour announces, the
other listens. What must not come through is followed by something that must, so that no check waits for silence alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import anyio
import msgspec

from syncline.core.keys import NodeKey
from syncline.core.limits import SHREX_NOTIFICATION_BYTES
from syncline.formats.protobuf import bytes_field, varint_field
from syncline.networks.host import Message, Subscription
from syncline.networks.libp2p.host import Libp2pHost, running_host
from syncline.networks.pubsub.outbox import message_frame
from syncline.protocols.shrex.rules.notifications import EMPTY_ROOT
from syncline.protocols.shrex.wire.header import Header
from syncline.protocols.shrex.wire.notification import TOPIC, Notification, encode
from syncline.testing.conformance.check import Check, expect

FLOODSUB: Final = "/floodsub/1.0.0"
QUIET_SECONDS: Final = 0.3


class ShrexPeer(msgspec.Struct, frozen=True, kw_only=True):
    """A running peer that has verified `headers`, at least two of them, the last being its head."""

    address: str  # a multiaddr that ends in its PeerID
    headers: Sequence[Header]
    topic: str = TOPIC
    relays: bool = True  # light nodes of the real network do not

    @property
    def head(self) -> Header:
        return self.headers[-1]


async def it_subscribes_to_the_topic(peer: ShrexPeer) -> None:
    async with running_host(NodeKey.generate()) as host:
        name = await host.connect(peer.address)
        await host.flood.wait_for_neighbours(peer.topic)
        expect(host.flood.neighbours(peer.topic), [name], "neighbours that subscribe to the topic")


async def a_true_notification_is_forwarded_as_it_was_signed(peer: ShrexPeer) -> None:
    async with _Neighbours.of(peer) as both:
        sent = await both.announce(_true(peer.head))
        [found] = await both.heard(1)
        expect(found.raw, sent.raw, "what was forwarded")


async def fields_it_does_not_know_are_no_fault(peer: ShrexPeer) -> None:
    async with _Neighbours.of(peer) as both:
        await both.announce(_true(peer.head) + bytes_field(9, b"of a later version") + varint_field(10, 7))
        expect(len(await both.heard(1)), 1, "notifications forwarded")


async def a_notification_is_forwarded_once_however_often_it_comes(peer: ShrexPeer) -> None:
    async with _Neighbours.of(peer) as both:
        message = both.announcer.flood.compose(peer.topic, _true(peer.head))
        for _ in range(3):
            await both.send(message.raw)
        await both.only_truth_follows([message.data])


async def what_is_no_sane_notification_is_not_forwarded(peer: ShrexPeer) -> None:
    head = peer.head
    async with _Neighbours.of(peer) as both:
        for data in (
            encode(Notification(0, head.data_hash)),
            encode(Notification(head.height, bytes(32))),
            encode(Notification(head.height, EMPTY_ROOT)),
            encode(Notification(head.height, head.data_hash[:31])),
            encode(Notification(head.height, head.data_hash + b"x")),
            b"not a notification",
            b"",
            _true(head) + bytes_field(9, bytes(SHREX_NOTIFICATION_BYTES)),
        ):
            await both.announce(data)
        await both.only_truth_follows()


async def another_hash_than_the_headers_is_not_forwarded(peer: ShrexPeer) -> None:
    async with _Neighbours.of(peer) as both:
        await both.announce(encode(Notification(peer.head.height, peer.headers[-2].data_hash)))
        await both.announce(encode(Notification(peer.headers[-2].height, peer.head.data_hash)))
        await both.only_truth_follows()


async def a_height_to_come_is_not_forwarded_before_its_header_is_known(peer: ShrexPeer) -> None:
    async with _Neighbours.of(peer) as both:
        for height in (peer.head.height + 1, peer.head.height + 1_000, 2**64 - 1):
            await both.announce(encode(Notification(height, b"\x77" * 32)))
        await both.only_truth_follows()


async def what_its_author_did_not_sign_is_not_forwarded(peer: ShrexPeer) -> None:
    async with _Neighbours.of(peer) as both:
        raw = both.announcer.flood.compose(peer.topic, _true(peer.head)).raw
        await both.send(raw[:-1] + bytes((raw[-1] ^ 1,)))
        await both.send(raw[:-66])
        await both.only_truth_follows()


def _true(header: Header) -> bytes:
    return encode(Notification(header.height, header.data_hash))


class _Neighbours:
    """Two hosts that know the peer and not each other: one announces, the other listens."""

    def __init__(self, peer: ShrexPeer, name: str, announcer: Libp2pHost, subscription: Subscription) -> None:
        self._peer, self._name, self._subscription = peer, name, subscription
        self.announcer = announcer

    @classmethod
    @asynccontextmanager
    async def of(cls, peer: ShrexPeer) -> AsyncIterator[_Neighbours]:
        async with running_host(NodeKey.generate()) as announcer, running_host(NodeKey.generate()) as listener:
            async with listener.flood.subscribe(peer.topic, forward=False) as subscription:
                for host in (listener, announcer):
                    name = await host.connect(peer.address)
                    await host.flood.wait_for_neighbours(peer.topic)
                await anyio.sleep(QUIET_SECONDS)  # for the peer to hear that the listener subscribes
                yield cls(peer, name, announcer, subscription)

    async def announce(self, data: bytes) -> Message:
        return (await self.announcer.flood.publish(self._peer.topic, data)).message

    async def send(self, raw: bytes) -> None:
        """Say any bytes as a message."""
        channel = await self.announcer.open_channel(self._name, [FLOODSUB])
        await channel.send(message_frame(raw))

    async def heard(self, number: int) -> list[Message]:
        found: list[Message] = []
        while len(found) < number:
            for delivery in await self._subscription.receive():
                found.append(delivery.message)
        return found

    async def only_truth_follows(self, before: Sequence[bytes] = ()) -> None:
        """A true notification now comes through; beside `before`, it is the only thing that does."""
        await anyio.sleep(QUIET_SECONDS)  # streams of their own may be read later than this
        truth = _true(self._peer.headers[-2])
        await self.announce(truth)
        found = await self.heard(len(before) + 1)
        with anyio.move_on_after(QUIET_SECONDS):
            found += await self.heard(1)
        expect([message.data for message in found], [*before, truth], "what was forwarded")


def _relays(peer: ShrexPeer) -> bool:
    return peer.relays


SHREX_PEER_CHECKS: Final[tuple[Check[ShrexPeer], ...]] = (
    Check(it_subscribes_to_the_topic),
    Check(a_true_notification_is_forwarded_as_it_was_signed, _relays),
    Check(fields_it_does_not_know_are_no_fault, _relays),
    Check(a_notification_is_forwarded_once_however_often_it_comes, _relays),
    Check(what_is_no_sane_notification_is_not_forwarded, _relays),
    Check(another_hash_than_the_headers_is_not_forwarded, _relays),
    Check(a_height_to_come_is_not_forwarded_before_its_header_is_known, _relays),
    Check(what_its_author_did_not_sign_is_not_forwarded, _relays),
)
