"""The overlay: runs a router on the streams of a host. Implements `networks.host.PubSub`.

Per neighbour there is one stream out, drained from its outbox by one task, and one stream in, read by the task that
serves it. Nothing is lost silently: publishing waits for room, a reader stops while too much of what it brought is
undecided, and a neighbour that takes nothing for too long is cut by name.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import Final

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from syncline.core.clock import Clock
from syncline.core.errors import ClosedError, DecodeError, RefusedError, SynclineError, UnreachableError, UsageError
from syncline.core.keys import PEER_ID_PREFIX, NodeKey, peer_id
from syncline.core.limits import (
    PUBSUB_MESSAGE_BYTES,
    PUBSUB_RPC_BYTES,
    PUBSUB_TOPIC_CHARACTERS,
    PUBSUB_TOPICS_PER_PEER,
    PUBSUB_WRITE,
    SLOW_PEER_BYTES,
)
from syncline.core.retry import Backoff
from syncline.core.verdict import Outcome, Reason, Verdict
from syncline.formats import pubsub as wire
from syncline.formats.framing import Framing
from syncline.networks.host import Cut, Drop, Message, Published, Subscription
from syncline.networks.pubsub.neighbour import Channel, Links, Neighbour
from syncline.networks.pubsub.outbox import message_frame
from syncline.networks.pubsub.router import Router, Send
from syncline.networks.pubsub.seen import Seen
from syncline.networks.pubsub.subscription import PubSubDelivery, TopicSubscription
from syncline.networks.signal import Signal

FRAMING: Final = Framing("varint", PUBSUB_RPC_BYTES)
READERS_PER_PEER: Final = 2  # streams of one neighbour that are read at a time: an old one may still be closing
BREATHER: Final = 16  # messages verified, or RPCs read, in a row before others get a turn; about a millisecond
BURST: Final = 32  # messages queued in a row before others get a turn, likewise
REOPEN: Final = Backoff(first=0.2, longest=10.0)
FLUSH_SECONDS: Final = 3.0
AUTHORS_KEPT: Final = 4_096


class Overlay:
    """One router at work."""

    def __init__(self, router: Router, key: NodeKey, links: Links, clock: Clock, *, slow_seconds: float) -> None:
        self.router = router
        self._key, self._links, self._clock, self._slow_seconds = key, links, clock, slow_seconds
        self._me = key.peer_id
        self._author_bytes = PEER_ID_PREFIX + key.public
        self._neighbours: dict[str, Neighbour] = {}
        self._subscriptions: dict[str, TopicSubscription] = {}
        self._seen = Seen()
        self._authors: dict[bytes, str] = {}
        self._seqno = 0
        self._to_forward: deque[PubSubDelivery] = deque()
        self._forwardable = Signal()
        self._changed = Signal()  # neighbours or their topics
        self._burst_count = self._burst_bytes = 0
        self._tasks: TaskGroup | None = None
        self.counts: Counter[str] = Counter()

    # life

    async def run(self, tasks: TaskGroup) -> None:
        """Work until cancelled, in the host's task group."""
        self._tasks = tasks
        tasks.start_soon(self._forward)
        tasks.start_soon(self._watch_slow)
        if self.router.heartbeat_seconds is not None:
            tasks.start_soon(self._beat, self.router.heartbeat_seconds)

    async def drain(self) -> None:
        """Give what is queued a moment to leave; what does not is counted as lost by closing."""
        with anyio.move_on_after(FLUSH_SECONDS):
            for neighbour in list(self._neighbours.values()):
                while (neighbour.outbox or neighbour.outbox.leaving) and neighbour.why is None:
                    await neighbour.outbox.room.wait()
        self._tasks = None
        for peer in list(self._neighbours):
            self.peer_left(peer, Cut.CLOSED)

    async def _beat(self, seconds: float) -> None:
        while True:
            await anyio.sleep(seconds)
            self._carry_out(self.router.heartbeat(anyio.current_time()))

    # neighbours

    def peer_joined(self, peer: str, protocols: Iterable[str] | None) -> None:
        """A peer is connected; `protocols` is what it says it speaks, None if it did not say."""
        if peer in self._neighbours or (protocols is not None and not set(protocols) & set(self.router.protocols)):
            return
        neighbour = self._neighbours[peer] = Neighbour(peer)
        if self._tasks is not None:
            self._tasks.start_soon(self._send_to, neighbour)

    def peer_left(self, peer: str, why: Cut) -> None:
        neighbour = self._neighbours.pop(peer, None)
        if neighbour is not None:
            neighbour.why = why
            self.counts[f"lost_{why}"] += neighbour.outbox.messages + neighbour.outbox.leaving
            self.counts["dropped_control"] += neighbour.outbox.dropped_control
            self.router.remove_peer(peer, anyio.current_time())
            for signal in (neighbour.outbox.ready, neighbour.outbox.room, neighbour.decided, self._changed):
                signal.set()

    async def _send_to(self, neighbour: Neighbour) -> None:
        """Keep a stream to the neighbour open and drain its outbox into it."""
        pauses = REOPEN.spans()
        while neighbour.why is None:
            try:
                channel = await self._links.open_channel(neighbour.peer, self.router.protocols)
            except RefusedError:
                self._refused(neighbour)
                return
            except SynclineError:
                await anyio.sleep(next(pauses))
                continue
            await self._drain(neighbour, channel)
            await anyio.sleep(next(pauses))

    def _refused(self, neighbour: Neighbour) -> None:
        """It does not speak this kind of pubsub after all, so it is not listened to either."""
        if neighbour.why is None:
            self.peer_left(neighbour.peer, Cut.CLOSED)
            if neighbour.readers:
                self._links.blame(neighbour.peer)  # it does speak, but does not listen

    async def _drain(self, neighbour: Neighbour, channel: Channel) -> None:
        peer, outbox = neighbour.peer, neighbour.outbox
        if neighbour.why is not None:  # it left while the stream was being opened
            channel.close()
            return
        for topic in self._subscriptions:
            outbox.announce(topic, True)
        self.router.add_peer(peer, channel.protocol, outbound=self._links.dialled(peer))
        for topic in neighbour.topics:
            self._carry_out(self.router.subscribed(peer, topic, True, anyio.current_time()))
        self._changed.set()
        try:
            while neighbour.why is None:
                if not outbox:
                    await outbox.ready.wait()
                    continue
                data = outbox.take(PUBSUB_WRITE)
                for start in range(0, len(data), SLOW_PEER_BYTES):  # a large message may take longer than a small one
                    neighbour.sending_since = anyio.current_time()
                    await channel.send(data[start : start + SLOW_PEER_BYTES])
                neighbour.sending_since = None
                outbox.left()
        except SynclineError:
            self.counts["streams_broken"] += 1
            if neighbour.why is None:  # else `peer_left` has counted them
                self.counts["lost_stream_broken"] += outbox.leaving
        finally:
            neighbour.sending_since = None
            channel.close()  # a reset would let the neighbour drop what it has not read yet

    async def _watch_slow(self) -> None:
        """Cut neighbours that take nothing. One look at all of them is far cheaper than a time-out around every write."""
        while True:
            await anyio.sleep(self._slow_seconds / 4)
            overdue = anyio.current_time() - self._slow_seconds
            for neighbour in list(self._neighbours.values()):
                if neighbour.sending_since is not None and neighbour.sending_since < overdue:
                    self._links.cut(neighbour.peer, Cut.SLOW_READER)

    def neighbours(self, topic: str) -> list[str]:
        return sorted(self.router.neighbours(topic))

    async def wait_for_neighbours(self, topic: str, count: int = 1) -> None:
        while len(self.router.neighbours(topic)) < count:
            await self._changed.wait()

    def topics_of(self, peer: str) -> tuple[str, ...]:
        neighbour = self._neighbours.get(peer)
        return tuple(sorted(neighbour.topics)) if neighbour else ()

    def queued_bytes(self, peer: str) -> int:
        neighbour = self._neighbours.get(peer)
        return neighbour.outbox.bytes if neighbour else 0

    # subscribing

    @asynccontextmanager
    async def subscribe(
        self, topic: str, *, forward: bool = True, repeats: bool = False, refused: bool = False
    ) -> AsyncIterator[Subscription]:
        if topic in self._subscriptions:
            raise UsageError("there is a subscription to this topic already", about=topic)
        if not 0 < len(topic) <= PUBSUB_TOPIC_CHARACTERS:
            raise UsageError(f"a topic has one to {PUBSUB_TOPIC_CHARACTERS} characters", about=topic[:80])
        subscription = self._subscriptions[topic] = TopicSubscription(topic, forward, repeats, refused)
        self._announce(topic, True)
        self._carry_out(self.router.join(topic, anyio.current_time()))
        try:
            yield subscription
        finally:
            del self._subscriptions[topic]
            subscription.close()
            self._carry_out(self.router.leave(topic, anyio.current_time()))
            self._announce(topic, False)

    def _announce(self, topic: str, joins: bool) -> None:
        for neighbour in self._neighbours.values():
            neighbour.outbox.announce(topic, joins)

    # publishing

    def compose(self, topic: str, data: bytes) -> Message:
        if len(data) > PUBSUB_MESSAGE_BYTES:
            raise UsageError(f"{len(data)} bytes, a message carries at most {PUBSUB_MESSAGE_BYTES}", about=topic)
        if not 0 < len(topic) <= PUBSUB_TOPIC_CHARACTERS:
            raise UsageError(f"a topic has one to {PUBSUB_TOPIC_CHARACTERS} characters", about=topic[:80])
        self._seqno = max(self._seqno + 1, self._clock.now() * 1_000)  # js refuses numbers that do not grow like time
        raw = wire.compose(self._key, topic, data, self._seqno)
        id = self._author_bytes + self._seqno.to_bytes(8, "big")
        return Message(topic, data, self._me, self._seqno, id, raw)

    async def publish(self, topic: str, data: bytes) -> Published:
        return await self.send(self.compose(topic, data))

    async def send(self, message: Message) -> Published:
        if self._tasks is None:
            raise ClosedError("the host is closed")
        now = anyio.current_time()
        self._seen.add(message.id, b"", now, accepted=True)
        self.router.accepted(None, message.topic, message.id, message.raw, now)
        sent, dropped = await self._offer(message, self.router.targets_of_ours(message.topic, now))
        self.counts["published"] += 1
        return Published(message, sent, dropped)

    async def _offer(self, message: Message, targets: set[str]) -> tuple[tuple[str, ...], tuple[Drop, ...]]:
        """Queue a message for each target, waiting for room; who leaves meanwhile is named."""
        framed = message_frame(message.raw)
        sent: list[str] = []
        dropped: list[Drop] = []
        waiting: list[Neighbour] = []
        for peer in sorted(targets) if len(targets) > 1 else targets:
            neighbour = self._neighbours[peer]
            if neighbour.outbox.offer(framed):
                sent.append(peer)
            else:
                waiting.append(neighbour)
        for neighbour in waiting:
            while neighbour.why is None and not neighbour.outbox.offer(framed):
                self.counts["waits_for_room"] += 1
                await neighbour.outbox.room.wait()
            if neighbour.why is None:
                sent.append(neighbour.peer)
            else:
                dropped.append(Drop(neighbour.peer, neighbour.why))
                self.counts[f"lost_{neighbour.why}"] += 1
        self._burst_count += 1
        self._burst_bytes += len(framed)
        if self._burst_count >= BURST or self._burst_bytes >= PUBSUB_WRITE:
            self._burst_count = self._burst_bytes = 0
            await anyio.lowlevel.checkpoint()  # not every time: what is published in a burst leaves in one write
        return tuple(sent), tuple(dropped)

    def _carry_out(self, sends: Iterable[Send]) -> None:
        """Queue what a router wants sent. Messages here answer an IWANT: without room they are dropped and counted."""
        for send in sends:
            neighbour = self._neighbours.get(send.peer)
            if neighbour is None:
                continue
            if send.control is not None:
                neighbour.outbox.tell(send.control)
            for raw in send.messages:
                self.counts["answered" if neighbour.outbox.offer(message_frame(raw)) else "dropped_answers"] += 1

    # receiving

    async def serve(self, channel: Channel) -> None:
        """Read a stream that a peer opened to us, until it ends."""
        peer = channel.peer
        self.peer_joined(peer, None)
        neighbour = self._neighbours.get(peer)
        if neighbour is None or neighbour.readers >= READERS_PER_PEER:
            return
        neighbour.readers += 1
        reader = FRAMING.reader()
        try:
            while neighbour.why is not Cut.CLOSED and (chunk := await channel.receive()):
                for count, frame in enumerate(reader.feed(chunk), 1):
                    await self._hear(neighbour, wire.decode_rpc(frame))
                    if count % BREATHER == 0:  # a chunk may hold thousands of empty ones
                        await anyio.lowlevel.checkpoint()
        except DecodeError as error:
            self.counts["malformed_rpcs"] += 1
            self._links.cut(peer, Cut.OVERSIZE if error.reason is Reason.OVERSIZE else Cut.MALFORMED)
        except UnreachableError:
            pass
        finally:
            neighbour.readers -= 1

    async def _hear(self, neighbour: Neighbour, rpc: wire.Rpc) -> None:
        now = anyio.current_time()
        if not self.router.hears(neighbour.peer, now):
            self.counts["unheard"] += len(rpc.messages)
            self._links.blame(neighbour.peer)  # whoever goes on talking is cut in the end
            return
        if rpc.subscriptions:
            self._note_subscriptions(neighbour, rpc.subscriptions, now)
        for count, raw in enumerate(rpc.messages, 1):
            topic = self._take(neighbour, raw, now)
            if count % BREATHER == 0:
                await anyio.lowlevel.checkpoint()
            while topic is not None and neighbour.owes(topic) and neighbour.why is None:
                self.counts["waits_for_verdicts"] += 1
                self.router.excuse(neighbour.peer)  # what it promised may be stuck behind this, by our fault
                await neighbour.decided.wait()
        if rpc.control is not None and neighbour.why is None:  # one that has gone would stay in a mesh for ever
            self._carry_out(self.router.control(neighbour.peer, rpc.control, self._seen, now))

    def _note_subscriptions(self, neighbour: Neighbour, subscriptions: Sequence[wire.Subscribe], now: float) -> None:
        if len(subscriptions) > PUBSUB_TOPICS_PER_PEER:
            self.counts["subscription_spam"] += 1
            self._links.cut(neighbour.peer, Cut.SPAM)
            return
        for each in subscriptions:
            if not each.joins:
                neighbour.topics.discard(each.topic)
            elif len(each.topic) <= PUBSUB_TOPIC_CHARACTERS and len(neighbour.topics) < PUBSUB_TOPICS_PER_PEER:
                neighbour.topics.add(each.topic)
            elif each.topic not in neighbour.topics:
                self.counts["subscription_spam"] += 1
                self._links.blame(neighbour.peer)
                continue
            if neighbour.peer in self.router.peers:
                self._carry_out(self.router.subscribed(neighbour.peer, each.topic, each.joins, now))
        self._changed.set()

    def _take(self, neighbour: Neighbour, raw: bytes, now: float) -> str | None:
        """Look at one message; returns its topic if it was handed to a subscription."""
        counts, peer = self.counts, neighbour.peer
        try:
            signed = wire.decode_message(raw)
        except DecodeError as error:
            counts[f"refused_{error.reason}"] += 1
            self._links.blame(peer)
            return None
        subscription = self._subscriptions.get(signed.topic)
        if not signed.topic:
            counts[f"refused_{Reason.INVALID_TOPIC}"] += 1
            self._links.blame(peer)
            return None
        if subscription is None:
            counts["ignored_not_subscribed"] += 1
            return None
        # Who wants repeats is handed their content, so all of it must be what was verified, not only the signature.
        token = blake2b(raw, digest_size=16).digest() if subscription.repeats else signed.signature
        sighting = self._seen.look(signed.id, token, now)
        if sighting == "repeat" or signed.author == self._author_bytes:
            counts["repeats"] += 1
            return self._deliver(neighbour, subscription, signed, None, True) if subscription.repeats else None
        verdict = wire.judge(signed)
        if not verdict.accepted:
            return self._refuse(neighbour, subscription, signed, verdict, now)
        if sighting == "differs":
            counts["equivocations"] += 1  # the author signed two messages with one number; who brings it is innocent
            return None
        self._seen.add(signed.id, token, now)
        self._carry_out(self.router.arrived(peer, signed.topic, signed.id, len(raw), now))
        counts["received"] += 1
        return self._deliver(neighbour, subscription, signed, None, False)

    def _refuse(
        self, neighbour: Neighbour, subscription: TopicSubscription, signed: wire.Signed, verdict: Verdict, now: float
    ) -> str | None:
        self.counts[f"refused_{verdict.reason}"] += 1
        if verdict.blames_sender:
            self.router.rejected(neighbour.peer, signed.topic, signed.id, now)
            self._links.blame(neighbour.peer)
        return self._deliver(neighbour, subscription, signed, verdict, False) if subscription.refused else None

    def _deliver(
        self,
        neighbour: Neighbour,
        subscription: TopicSubscription,
        signed: wire.Signed,
        verdict: Verdict | None,
        repeat: bool,
    ) -> str:
        message = Message(
            signed.topic,
            signed.data,
            self._author(signed.author),
            int.from_bytes(signed.seqno, "big"),
            signed.id,
            signed.raw,
        )
        neighbour.undecided[signed.topic] += 1
        neighbour.undecided_bytes += len(signed.raw)
        subscription.put(PubSubDelivery(self.decided, neighbour, message, verdict, repeat))
        return signed.topic

    def _author(self, binary: bytes) -> str:
        """The PeerID in text; kept, because base58 costs more than the rest of a message."""
        text = self._authors.get(binary)
        if text is None:
            public = wire.ed25519_key(binary)
            text = peer_id(public) if public else binary[:64].hex()
            if len(self._authors) >= AUTHORS_KEPT:
                self._authors.clear()
            self._authors[binary] = text
        return text

    # deciding and forwarding

    def decided(self, delivery: PubSubDelivery, neighbour: Neighbour, verdict: Verdict) -> None:
        """Called by a delivery, once."""
        message, peer = delivery.message, neighbour.peer
        now = anyio.current_time()
        if verdict.outcome is Outcome.ACCEPT and delivery.verdict is None and self._is_news(delivery, now):
            self.counts["accepted"] += 1
            self.router.accepted(peer, message.topic, message.id, message.raw, now)
            subscription = self._subscriptions.get(message.topic)
            if subscription is not None and subscription.forward and self._tasks is not None:
                self._to_forward.append(delivery)
                self._forwardable.set()
                return  # its place is given back when it is forwarded
        elif delivery.verdict is None:
            self.counts[f"{verdict.outcome}ed" if verdict.outcome is Outcome.REJECT else "ignored"] += 1
            if verdict.blames_sender:
                self.router.rejected(peer, message.topic, message.id, now)
                self._links.blame(peer)
        delivery.release()

    def _is_news(self, delivery: PubSubDelivery, now: float) -> bool:
        """Whether no copy was accepted before. The first to come may have been ignored, for want of a header, say."""
        acceptance = self._seen.accept(delivery.message.id, now)
        return acceptance == "first" or (acceptance == "forgotten" and not delivery.repeat)

    async def _forward(self) -> None:
        queue = self._to_forward
        while True:
            while not queue:
                await self._forwardable.wait()
            delivery = queue.popleft()
            message = delivery.message
            without = (delivery.forwarder, message.author, self._me)
            targets = self.router.targets_to_forward(message.topic, message.id, without)
            if targets:
                sent, _ = await self._offer(message, targets)
                self.counts["forwarded"] += len(sent)
            delivery.release()

    def statistics(self) -> dict[str, int | float]:
        neighbours = self._neighbours.values()
        return {
            **self.router.statistics(),
            **self.counts,
            "queued_bytes": sum(each.outbox.bytes for each in neighbours),
            "undecided": sum(sum(each.undecided.values()) for each in neighbours),
            "seen": len(self._seen),
        }
