"""What a libp2p host offers to the floors above: topics with three-way verdicts, framed streams, peers, statistics.

Only the interface and its guarantees. `networks/libp2p` implements it on TCP, `networks/memory_host.py` inside one
process with the same pubsub code. Nothing above this file knows which library, if any, moves the bytes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import Protocol, Self

import msgspec

from syncline.core.verdict import Verdict
from syncline.formats.framing import Framing


class Cut(StrEnum):
    """Why a peer was disconnected, or something meant for it was not sent. Closed; statistics count each by name."""

    SLOW_READER = "slow_reader"  # took nothing from us for too long while we had something for it
    MISBEHAVING = "misbehaving"  # more rejected messages or broken frames than is forgiven
    MALFORMED = "malformed"  # bytes that are not pubsub, so the stream cannot be followed any further
    OVERSIZE = "oversize"  # announced more bytes than a pubsub RPC or a frame may have
    SPAM = "spam"  # more subscriptions or control messages than anybody needs
    BANNED = "banned"  # cut before and came back too early
    CROWDED = "crowded"  # a limit on connections, in all or from one address, is reached
    DISCONNECTED = "disconnected"  # it left by itself
    CLOSED = "closed"  # we are shutting down, or were asked to let it go


class Message(msgspec.Struct, frozen=True):
    """One pubsub message. `raw` is the exact signed protobuf, from which everything else can be read again."""

    topic: str
    data: bytes
    author: str  # PeerID that signed it
    seqno: int
    id: bytes  # binary PeerID and sequence number: what pubsub calls the message's identity
    raw: bytes


class Drop(msgspec.Struct, frozen=True):
    """A peer that a message did not go to, and why."""

    peer: str
    why: Cut


class Published(msgspec.Struct, frozen=True):
    """What became of a publication: the peers whose queue took it, and those that were dropped on the way."""

    message: Message
    sent: tuple[str, ...]
    dropped: tuple[Drop, ...] = ()


class Delivery(Protocol):
    """A message of a subscribed topic, waiting for a decision.

    `verdict` is set when pubsub itself refused the message (bad signature, forged author): it is then handed over only
    to be kept, and `decide` changes nothing. `repeat` marks a copy of a message that another peer brought before.
    """

    @property
    def message(self) -> Message: ...

    @property
    def forwarder(self) -> str:
        """PeerID of the neighbour that handed it to us."""
        ...

    @property
    def verdict(self) -> Verdict | None: ...

    @property
    def repeat(self) -> bool: ...

    def decide(self, verdict: Verdict) -> None:
        """Say what becomes of it; the first call counts. Call it after the commit.

        accept: forwarded to others who want the topic, unless a copy was before. reject: not forwarded, counted against
        the forwarder. ignore: not forwarded, nobody blamed. Never blocks: forwarding waits for room on its own, and keeps
        the message's place in the subscription's budget until it is done.
        """
        ...


class Subscription(Protocol):
    """Deliveries of one topic, in batches.

    Guarantee: every message a neighbour sent on the topic is handed over exactly once, in order per neighbour. Nothing
    is lost inside: at most `PUBSUB_UNDECIDED` deliveries per neighbour (or `PUBSUB_UNDECIDED_BYTES`) are undecided at any
    time, and its connection is not read further until some are decided.
    """

    async def receive(self) -> Sequence[Delivery]:
        """What has come in, at least one delivery. Raises ClosedError when the subscription has ended."""
        ...

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> Sequence[Delivery]:
        """`receive`, ending the loop with the subscription. Leaving the loop early loses nothing."""
        ...


class PubSub(Protocol):
    """One overlay (GossipSub or FloodSub) of a host."""

    def subscribe(
        self, topic: str, *, forward: bool = True, repeats: bool = False, refused: bool = False
    ) -> AbstractAsyncContextManager[Subscription]:
        """Join a topic for the length of the block.

        One subscription per topic: a second raises UsageError. With `forward=False` accepted messages stay here; with
        `repeats` copies brought by other neighbours are handed over too, with `refused` also what pubsub itself refused.
        What is undecided when the block ends is ignored.
        """
        ...

    def compose(self, topic: str, data: bytes) -> Message:
        """A signed message of ours, not sent yet, so that it can be kept before it leaves. Raises UsageError if too big."""
        ...

    async def send(self, message: Message) -> Published:
        """Hand a composed message to every neighbour it should go to.

        Waits for room in each neighbour's queue; one that stays full is cut and named in `dropped`. Returning means
        queued, in order, on every connection in `sent`; not yet received. Raises ClosedError when the host is closed.
        """
        ...

    async def publish(self, topic: str, data: bytes) -> Published:
        """`send(compose(topic, data))`."""
        ...

    def neighbours(self, topic: str) -> list[str]:
        """Connected peers that subscribe to the topic."""
        ...

    async def wait_for_neighbours(self, topic: str, count: int = 1) -> None:
        """Return when at least `count` connected peers subscribe to the topic."""
        ...


class Stream(Protocol):
    """Frames to and from one peer, both ways, in order, without loss while the stream lives."""

    @property
    def peer(self) -> str: ...

    @property
    def protocol(self) -> str: ...

    async def receive(self) -> bytes | None:
        """The next frame's content; None when the peer has ended its side.

        Raises DecodeError for a frame that is too big or cut short, UnavailableError when nothing comes for the stream's
        time-out, UnreachableError when the connection is gone.
        """
        ...

    async def send(self, frame: bytes) -> None:
        """Send one frame. Raises UnavailableError when the peer takes nothing for the stream's time-out."""
        ...

    async def send_many(self, frames: Sequence[bytes]) -> None:
        """Send frames in as few writes as possible."""
        ...

    async def end(self) -> None:
        """Say that nothing more will be sent; receiving goes on."""
        ...

    async def close(self) -> None:
        """End both sides, abruptly if the peer has not ended its own. Safe to call twice."""
        ...


StreamHandler = Callable[[Stream], Awaitable[None]]


class PeerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A connected peer."""

    peer: str
    address: str  # multiaddr
    direction: str  # "in": it dialled us, "out": we dialled it
    since: float  # seconds connected
    agent: str = ""
    protocols: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    score: float = 0.0
    queued_bytes: int = 0


class PeerEvent(msgspec.Struct, frozen=True):
    """A peer came or went."""

    peer: str
    connected: bool
    why: Cut | None = None


class Host(Protocol):
    """A node's place in a libp2p network. Used as `async with`; everything it started ends with the block."""

    @property
    def gossip(self) -> PubSub: ...

    @property
    def flood(self) -> PubSub: ...

    @property
    def peer_id(self) -> str: ...

    @property
    def addresses(self) -> Sequence[str]:
        """Multiaddrs to dial us at, each ending in our PeerID."""
        ...

    async def connect(self, address: str) -> str:
        """Dial a multiaddr that names a PeerID, unless already connected; returns the PeerID.

        Raises UsageError for an address that is none, UnreachableError when nobody (or somebody else) answers.
        """
        ...

    async def disconnect(self, peer: str, why: Cut = Cut.CLOSED, *, ban_seconds: float = 0.0) -> None:
        """Close the connections to a peer and, for a while, take no new ones from it."""
        ...

    def blame(self, peer: str, weight: float = 1.0) -> None:
        """Count a fault against a peer, e.g. a broken frame on a stream; beyond what is forgiven it is cut and banned."""
        ...

    async def open_stream(self, peer: str, protocol: str, framing: Framing, *, timeout: float = 10.0) -> Stream:
        """A new stream to a connected peer. `timeout` bounds the opening and, from then on, every wait on the stream.

        Raises UnreachableError when not connected or unanswered, RefusedError when the peer does not speak `protocol`.
        """
        ...

    def handle_stream(
        self, protocol: str, handler: StreamHandler, framing: Framing, *, timeout: float = 60.0, per_peer: int = 16
    ) -> None:
        """Answer streams of `protocol`: one task each, at most `per_peer` at a time for one peer; more are closed.

        The stream is closed when the handler returns. An error it raises ends that stream alone.
        """
        ...

    def watch(self, listener: Callable[[PeerEvent], None]) -> None:
        """Call `listener`, which must not block, whenever a peer comes or goes."""
        ...

    def peers(self) -> list[PeerInfo]: ...

    def statistics(self) -> Mapping[str, int | float]:
        """Counters and gauges, flat, as `/metrics` shows them; every loss is counted here under its name."""
        ...
