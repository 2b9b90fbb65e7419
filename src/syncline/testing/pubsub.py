"""A simulated pubsub network: the real GossipSub and FloodSub routers, real RPC bytes and signatures, in virtual time.

Links lose, repeat and delay (`testing.ndn.LinkWeather`), which connections of a real network do not; what comes through
here comes through there. Nothing sleeps or opens a socket; the same seed gives the same run, packet for packet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

import msgspec

from syncline.core.errors import DecodeError
from syncline.core.keys import NodeKey, peer_id
from syncline.core.verdict import ACCEPT, Outcome, Verdict
from syncline.formats import pubsub as wire
from syncline.networks.pubsub.gossip import GossipRouter
from syncline.networks.pubsub.router import Router, Send
from syncline.networks.pubsub.seen import Seen
from syncline.testing.ndn import Link, LinkWeather, World

_verdict = lru_cache(65_536)(lambda raw: wire.judge(wire.decode_message(raw)))  # the same bytes, the same answer


class Heard(msgspec.Struct, frozen=True):
    """A message as it came to a node for the first time."""

    topic: str
    data: bytes
    author: str
    forwarder: str
    at: float  # virtual seconds


Decide = Callable[["PubSubNode", Heard], Verdict]


def accept_all(node: PubSubNode, heard: Heard) -> Verdict:
    return ACCEPT


class PubSubNode:
    """One node of an overlay: a router, a memory of what it saw, and links to its neighbours."""

    def __init__(self, world: World, number: int, *, router: Router | None = None, decide: Decide = accept_all) -> None:
        self.world = world
        self.number = number
        self.key = NodeKey((number + 1).to_bytes(32, "big"))
        self.router = router if router is not None else GossipRouter(world.random)
        self.links: dict[str, Link] = {}
        self.nodes: dict[str, PubSubNode] = {}
        self.heard: list[Heard] = []
        self.counts: Counter[str] = Counter()
        self.sent_bytes = 0
        self._decide = decide
        self._seen = Seen()
        self._seqno = 0
        self._author = wire.decode_message(wire.compose(self.key, "", b"", 0)).author
        if self.router.heartbeat_seconds is not None:
            world.after(world.random.uniform(0, self.router.heartbeat_seconds), self._beat)

    @property
    def name(self) -> str:
        return self.key.peer_id

    @property
    def remembered(self) -> int:
        """Message ids in memory."""
        return len(self._seen)

    def connect(self, other: PubSubNode, weather: LinkWeather) -> None:
        """A line in both directions; each tells the other its topics, again and again, as they may be lost."""
        for one, two in ((self, other), (other, self)):
            one.nodes[two.name] = two
            one.links[two.name] = Link(
                self.world,
                weather,
                lambda packets, one=one, two=two: two.receive(one.name, packets),  # type: ignore[misc]
            )
            one.router.add_peer(two.name, one.router.protocols[0], outbound=one is self)
        for one, two in ((self, other), (other, self)):
            one._introduce(two.name)

    def line(self, other: PubSubNode, *, up: bool) -> None:
        """Cut the line to another node, or mend it; mended, both introduce themselves anew."""
        self.links[other.name].up = other.links[self.name].up = up
        if up:
            self._introduce(other.name)
            other._introduce(self.name)

    def join(self, topic: str) -> None:
        self._carry_out(self.router.join(topic, self.world.now))
        for name in self.links:
            self._introduce(name)

    def publish(self, topic: str, data: bytes) -> bytes:
        """Sign and send; returns the message's id."""
        self._seqno += 1
        raw = wire.compose(self.key, topic, data, self._seqno)
        id = wire.decode_message(raw).id
        self._seen.add(id, b"", self.world.now)
        self.router.accepted(None, topic, id, raw, self.world.now)
        self._offer(raw, self.router.targets_of_ours(topic, self.world.now))
        return id

    def receive(self, sender: str, packets: list[bytes]) -> None:
        for packet in packets:
            try:
                rpc = wire.decode_rpc(packet)
            except DecodeError:
                self.counts["malformed"] += 1
                continue
            if not self.router.hears(sender, self.world.now):
                self.counts["unheard"] += len(rpc.messages)
                continue
            for each in rpc.subscriptions:
                self._carry_out(self.router.subscribed(sender, each.topic, each.joins, self.world.now))
            for raw in rpc.messages:
                self._take(sender, raw)
            if rpc.control is not None:
                self._carry_out(self.router.control(sender, rpc.control, self._seen, self.world.now))

    def send(self, peer: str, rpc: wire.Rpc) -> None:
        """Put an RPC on the line, whatever it says: bad peers use this too."""
        packet = wire.encode_rpc(rpc)
        self.sent_bytes += len(packet)
        self.links[peer].carry([packet])

    def _take(self, sender: str, raw: bytes) -> None:
        now = self.world.now
        try:
            signed = wire.decode_message(raw)
        except DecodeError:
            self.counts["malformed"] += 1
            return
        if self._seen.look(signed.id, signed.signature, now) == "repeat" or signed.author == self._author:
            self.counts["repeats"] += 1
            return
        verdict = _verdict(raw)
        if verdict.accepted:
            self._seen.add(signed.id, signed.signature, now)
            self._carry_out(self.router.arrived(sender, signed.topic, signed.id, len(raw), now))
            public = wire.ed25519_key(signed.author)
            heard = Heard(signed.topic, signed.data, peer_id(public) if public else "", sender, now)
            verdict = self._decide(self, heard)
            if verdict.accepted:
                self.heard.append(heard)
        self.counts[verdict.outcome] += 1
        if verdict.outcome is Outcome.REJECT:
            self.router.rejected(sender, signed.topic, signed.id, now)
        elif verdict.accepted:
            self.router.accepted(sender, signed.topic, signed.id, raw, now)
            without = (sender, heard.author, self.name)
            self._offer(raw, self.router.targets_to_forward(signed.topic, signed.id, without))

    def _offer(self, raw: bytes, targets: Iterable[str]) -> None:
        for peer in sorted(targets):
            self.send(peer, wire.Rpc(messages=(raw,)))

    def _carry_out(self, sends: Iterable[Send]) -> None:
        for each in sends:
            self.send(each.peer, wire.Rpc(messages=each.messages, control=each.control))

    def _introduce(self, peer: str) -> None:
        topics = tuple(wire.Subscribe(topic, True) for topic in sorted(self.router.topics))
        if topics:
            self.send(peer, wire.Rpc(subscriptions=topics))

    def _beat(self) -> None:
        self._carry_out(self.router.heartbeat(self.world.now))
        self.world.after(self.router.heartbeat_seconds or 1.0, self._beat)


def mesh(
    world: World,
    count: int,
    *,
    degree: int = 6,
    weather: LinkWeather | None = None,
    router: Callable[[], Router] | None = None,
    decide: Decide = accept_all,
) -> list[PubSubNode]:
    """So many nodes in a connected random graph of about this degree."""
    nodes = [PubSubNode(world, number, router=router() if router else None, decide=decide) for number in range(count)]
    for number, node in enumerate(nodes[1:], 1):
        node.connect(nodes[world.random.randrange(number)], weather or LinkWeather())
    for node in nodes:
        while len(node.links) < min(degree, count - 1):
            other = world.random.choice(nodes)
            if other is not node and other.name not in node.links:
                node.connect(other, weather or LinkWeather())
    return nodes


def partition(nodes: Sequence[PubSubNode], one: set[int], *, up: bool) -> None:
    """Cut (or mend) every line between the nodes with these numbers and the others."""
    for node in nodes:
        for other in list(node.nodes.values()):
            if node.number in one and other.number not in one:
                node.line(other, up=up)
