"""Strangers on libp2p: floods, lies and spam inside proper connections."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
from anyio.abc import SocketStream

from syncline.core.keys import NodeKey
from syncline.formats import pubsub
from syncline.formats.framing import encode_varint
from syncline.networks.libp2p.connection import Channel
from syncline.networks.libp2p.host import Libp2pHost, running_host
from syncline.protocols.shrex.wire import notification as shrex
from syncline.testing.badpeers.attack import Attack, shrug

MESHSUB: Final = "/meshsub/1.1.0"
FLOODSUB: Final = "/floodsub/1.0.0"


@asynccontextmanager
async def _channel(attack: Attack, protocol: str) -> AsyncIterator[tuple[Libp2pHost, str, Channel]]:
    """A stranger's host, connected, with a raw stream of a protocol."""
    async with running_host(NodeKey.generate()) as host:
        peer = await host.connect(attack.target.libp2p)
        yield host, peer, await host.open_channel(peer, [protocol])


async def _pour(attack: Attack, protocol: str, packets: Iterator[bytes], pause: float = 0.001) -> None:
    async with _channel(attack, protocol) as (host, peer, channel):
        for packet in packets:
            if not attack.going():
                return
            if peer not in {each.peer for each in host.peers()}:
                attack.cut()
                return
            await channel.send(encode_varint(len(packet)) + packet)
            attack.sent += 1
            await anyio.sleep(pause)


def _rpc(raw: bytes) -> bytes:
    return pubsub.encode_rpc(pubsub.Rpc(messages=(raw,)))


async def unsigned(attack: Attack) -> None:
    def packets() -> Iterator[bytes]:
        key, number = NodeKey.generate(), 0
        while True:
            number += 1
            yield _rpc(pubsub.compose(key, attack.target.topic, b"unsigned", number)[:-66])

    await _pour(attack, MESHSUB, packets())


async def forged(attack: Attack) -> None:
    def packets() -> Iterator[bytes]:
        key, number = NodeKey.generate(), 0
        while True:
            number += 1
            raw = pubsub.compose(key, attack.target.topic, b"forged", number)
            yield _rpc(raw[:-64] + os.urandom(64))

    await _pour(attack, MESHSUB, packets())


async def garbage_payloads(attack: Attack) -> None:
    """Properly signed, with a payload that is no message of the topic."""

    def packets() -> Iterator[bytes]:
        key, number = NodeKey.generate(), int(time.time() * 1e9)
        while True:
            number += 1
            yield _rpc(pubsub.compose(key, attack.target.topic, os.urandom(100), number))

    await _pour(attack, MESHSUB, packets())


async def replayed(attack: Attack) -> None:
    raw = _rpc(pubsub.compose(NodeKey.generate(), attack.target.topic, b"again", 1))

    def packets() -> Iterator[bytes]:
        while True:
            yield raw

    await _pour(attack, MESHSUB, packets(), 0.0005)


async def giant_length(attack: Attack) -> None:
    async with _channel(attack, MESHSUB) as (host, peer, channel):
        await channel.send(encode_varint(2**40) + bytes(1_000))
        attack.sent = 1
        while attack.going() and peer in {each.peer for each in host.peers()}:  # noqa: ASYNC110
            await anyio.sleep(0.02)
        if attack.going():
            attack.cut()


async def gossip_spam(attack: Attack) -> None:
    def packets() -> Iterator[bytes]:
        while True:
            ids = tuple(os.urandom(32) for _ in range(50))
            control = pubsub.Control(have=(pubsub.Have(attack.target.topic, ids),), want=ids)
            yield pubsub.encode_rpc(pubsub.Rpc(control=control))

    await _pour(attack, MESHSUB, packets(), 0.0005)


async def subscription_spam(attack: Attack) -> None:
    def packets() -> Iterator[bytes]:
        while True:
            topics = tuple(pubsub.Subscribe(os.urandom(8).hex(), True) for _ in range(200))
            yield pubsub.encode_rpc(pubsub.Rpc(subscriptions=topics))

    await _pour(attack, MESHSUB, packets(), 0.005)


async def wrong_hashes(attack: Attack) -> None:
    def packets() -> Iterator[bytes]:
        key, number = NodeKey.generate(), int(time.time() * 1e9)
        while True:
            number += 1
            note = shrex.encode(shrex.Notification(1 + number % 100, os.urandom(32)))
            yield _rpc(pubsub.compose(key, shrex.TOPIC, note, number))

    await _pour(attack, FLOODSUB, packets())


async def future_heights(attack: Attack) -> None:
    def packets() -> Iterator[bytes]:
        key, number = NodeKey.generate(), int(time.time() * 1e9)
        while True:
            number += 1
            note = shrex.encode(shrex.Notification(2**63 + number % 1_000, os.urandom(32)))
            yield _rpc(pubsub.compose(key, shrex.TOPIC, note, number))

    await _pour(attack, FLOODSUB, packets())


async def many_connections(attack: Attack) -> None:
    """Opens connections and says nothing on them."""
    parts = attack.target.libp2p.split("/")
    host, port = parts[2], int(parts[4])
    held: list[SocketStream] = []
    try:
        while attack.going():
            stream = await anyio.connect_tcp(host, port)
            attack.sent += 1
            held.append(stream)
            with anyio.move_on_after(0.01) as waited:
                with shrug():
                    await stream.receive(1_000)
                    continue
                attack.refused += 1
            if waited.cancelled_caught:
                continue
            attack.cut()
    finally:
        for stream in held:
            with anyio.CancelScope(shield=True), shrug():
                await stream.aclose()


async def sybils(attack: Attack) -> None:
    """Twenty strangers forge at once."""
    async with anyio.create_task_group() as tasks:
        parts = [Attack(attack.target) for _ in range(20)]

        async def one(part: Attack) -> None:
            with shrug():
                await forged(part)
            part.cut()

        for part in parts:
            tasks.start_soon(one, part)
        while attack.going() and any(part.cut_after is None for part in parts):
            await anyio.sleep(0.05)
            attack.sent = sum(part.sent for part in parts)
        for part in parts:
            part.stopping = True
        if all(part.cut_after is not None for part in parts):
            attack.cut()
