"""A network inside one process: named peers, topics, bounded mailboxes, and weather that loses, repeats or reorders.

Deterministic: the same seed and the same calls give the same deliveries. For tests, simulation and demos; nothing here
leaves the process.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterable, Iterable
from typing import Final

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from syncline.core.errors import UsageError

MAILBOX: Final = 1_024


class Packet(msgspec.Struct, frozen=True):
    """Bytes on their way from one peer to another."""

    sender: str
    topic: str
    payload: bytes


class Weather(msgspec.Struct, frozen=True, kw_only=True):
    """Chances, per delivery, that something goes wrong."""

    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0  # held back until the next packet to the same peer has passed


CLEAR: Final = Weather()


class MemoryNetwork:
    """Peers that hear each other's broadcasts.

    Guarantee in clear weather: every packet reaches every other connected peer once, in order per sender. A full mailbox
    makes the sender wait.
    """

    def __init__(self, *, weather: Weather = CLEAR, seed: int = 0) -> None:
        self.weather = weather
        self._random = random.Random(seed)
        self._peers: dict[str, MemoryPeer] = {}
        self._islands: dict[str, int] = {}
        self.dropped = 0
        self.delivered = 0

    def join(self, name: str) -> MemoryPeer:
        if name in self._peers:
            raise UsageError(f"a peer named {name!r} is already here")
        peer = self._peers[name] = MemoryPeer(self, name)
        return peer

    def leave(self, name: str) -> None:
        self._peers.pop(name, None)

    def partition(self, *islands: Iterable[str]) -> None:
        """Split the network; peers not named stay on an island of their own together."""
        self._islands = {name: number for number, island in enumerate(islands, 1) for name in island}

    def heal(self) -> None:
        self._islands = {}

    async def carry(self, packet: Packet) -> None:
        for name in sorted(self._peers):
            if name == packet.sender or self._islands.get(name, 0) != self._islands.get(packet.sender, 0):
                continue
            await self._deliver(self._peers[name], packet)

    async def _deliver(self, peer: MemoryPeer, packet: Packet) -> None:
        chance, weather = self._random.random, self.weather
        if chance() < weather.drop:
            self.dropped += 1
            return
        if peer.held is None and chance() < weather.reorder:
            peer.held = packet
            return
        for _ in range(2 if chance() < weather.duplicate else 1):
            await peer.put(packet)
            self.delivered += 1
        if peer.held is not None:
            late, peer.held = peer.held, None
            await peer.put(late)
            self.delivered += 1


class MemoryPeer:
    """One peer's end of the network."""

    def __init__(self, network: MemoryNetwork, name: str) -> None:
        self.name = name
        self.held: Packet | None = None
        self._network = network
        streams: tuple[MemoryObjectSendStream[Packet], MemoryObjectReceiveStream[Packet]]
        streams = anyio.create_memory_object_stream(MAILBOX)
        self._inbox, self._outlet = streams

    async def broadcast(self, topic: str, payload: bytes) -> None:
        """Send to every other connected peer; waits while a mailbox is full."""
        await self._network.carry(Packet(self.name, topic, payload))

    async def put(self, packet: Packet) -> None:
        try:
            await self._inbox.send(packet)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._network.leave(self.name)

    def packets(self) -> AsyncIterable[Packet]:
        """What arrives, until the peer leaves."""
        return self._outlet

    def close(self) -> None:
        self._network.leave(self.name)
        self._inbox.close()
        self._outlet.close()
