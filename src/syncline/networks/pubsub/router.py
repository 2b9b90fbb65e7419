"""What every router is: who subscribes to what, and which neighbours a message goes to. FloodSub is this and no more.

Sans-I/O: methods take events and the time, and return what is to be sent. The overlay does the sending.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import ClassVar, Final

import msgspec

from syncline.formats.pubsub import Control

FLOODSUB: Final = "/floodsub/1.0.0"


class Send(msgspec.Struct, frozen=True):
    """Control messages, and messages asked for, on their way to one peer."""

    peer: str
    control: Control | None = None
    messages: tuple[bytes, ...] = ()


class Router:
    """FloodSub: everything goes to every neighbour that wants the topic, except where it came from."""

    protocols: ClassVar[tuple[str, ...]] = (FLOODSUB,)
    heartbeat_seconds: ClassVar[float | None] = None

    def __init__(self) -> None:
        self.subscribers: dict[str, set[str]] = {}
        self.topics: set[str] = set()  # our own
        self.peers: dict[str, str] = {}  # peer → protocol

    def add_peer(self, peer: str, protocol: str, *, outbound: bool) -> None:
        """A neighbour can be sent to from now on."""
        self.peers[peer] = protocol

    def remove_peer(self, peer: str, now: float) -> None:
        self.peers.pop(peer, None)
        for topic in [topic for topic, peers in self.subscribers.items() if peer in peers]:
            self.subscribed(peer, topic, False, now)

    def subscribed(self, peer: str, topic: str, joins: bool, now: float) -> list[Send]:
        """A neighbour joins or leaves a topic."""
        if joins:
            self.subscribers.setdefault(topic, set()).add(peer)
        elif topic in self.subscribers:
            self.subscribers[topic].discard(peer)
            if not self.subscribers[topic]:
                del self.subscribers[topic]
        return []

    def join(self, topic: str, now: float) -> list[Send]:
        """We subscribe to a topic."""
        self.topics.add(topic)
        return []

    def leave(self, topic: str, now: float) -> list[Send]:
        self.topics.discard(topic)
        return []

    def neighbours(self, topic: str) -> set[str]:
        """Peers that want the topic and can be sent to."""
        return {peer for peer in self.subscribers.get(topic, ()) if peer in self.peers}

    def targets_of_ours(self, topic: str, now: float) -> set[str]:
        """Whom a message of our own goes to."""
        return self.neighbours(topic)

    def targets_to_forward(self, topic: str, id: bytes, without: Iterable[str]) -> set[str]:
        """Whom somebody else's message goes to, once it is accepted."""
        return self.neighbours(topic).difference(without)

    def hears(self, peer: str, now: float) -> bool:
        """Whether the peer is listened to at all."""
        return True

    def excuse(self, peer: str) -> None:
        """The peer is not read from for a while, because we are slow: what it owes us may be late."""

    def arrived(self, peer: str, topic: str, id: bytes, size: int, now: float) -> list[Send]:
        """A message came for the first time, properly signed; nothing is decided yet."""
        return []

    def accepted(self, peer: str | None, topic: str, id: bytes, raw: bytes, now: float) -> None:
        """A message was accepted; `peer` brought it, None if it is our own."""

    def rejected(self, peer: str, topic: str, id: bytes, now: float) -> None:
        """A message was refused because of its content."""

    def control(self, peer: str, control: Control, seen: Container[bytes], now: float) -> list[Send]:
        """Control messages came. FloodSub has none."""
        return []

    def heartbeat(self, now: float) -> list[Send]:
        return []

    def score(self, peer: str, now: float) -> float:
        return 0.0

    def statistics(self) -> dict[str, int | float]:
        return {"topics": len(self.topics), "neighbours": len(self.peers)}
