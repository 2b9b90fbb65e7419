"""Taking in what comes by gossip: judged, kept, and only then decided, so that nothing is forwarded that is not on disk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import anyio.to_thread
from anyio.abc import TaskStatus

from syncline.core import limits
from syncline.core.buckets import TokenBuckets
from syncline.core.errors import DecodeError, OverloadedError
from syncline.core.ports import Ground
from syncline.core.record import Incoming
from syncline.core.verdict import Reason, Verdict, ignore
from syncline.networks.host import Delivery, Host
from syncline.protocols.sds.rules import PROTOCOL, Context, content
from syncline.protocols.sds.service.taken import News
from syncline.protocols.sds.wire import Publish, decode

OVER_RATE: Final = ignore(Reason.RATE_LIMITED, "more than its publisher's share")


class GossipIntake:
    """Listens on topics. The author of a message is its publisher, never the neighbour that handed it on."""

    def __init__(self, ground: Ground, news: News, context: Context, *, publish_rate: float) -> None:
        self._ground = ground
        self._news = news
        self._context = context
        # A publisher counts when it sends, we when it arrives: what came in bunches on its way must not look like more.
        burst = max(publish_rate, 1.0) + publish_rate * limits.SDS_GOSSIP_SLACK
        self._rates = TokenBuckets(publish_rate, burst, limits.SDS_RATED_PEERS) if publish_rate else None
        self.received = 0
        self.overloaded = 0

    async def listen(self, host: Host, topic: str, *, task_status: TaskStatus[None]) -> None:
        """Take part in a topic until cancelled."""
        async with host.gossip.subscribe(topic) as subscription:
            task_status.started()
            async for batch in subscription:
                await self.take(topic, batch)

    async def take(self, topic: str, batch: Sequence[Delivery]) -> None:
        now, steady = self._ground.clock.now(), self._ground.clock.monotonic()
        contexts = await self._contexts(topic, [delivery.message.data for delivery in batch], now, steady)
        incoming = [
            Incoming(
                protocol=PROTOCOL,
                topic=topic,
                raw=delivery.message.data,
                peer=delivery.forwarder,
                received_at=now,
                context=context,
            )
            for delivery, context in zip(batch, contexts, strict=True)
        ]
        try:
            receipts = await self._ground.sink.receive(incoming)
        except OverloadedError:
            self.overloaded += len(batch)
            for delivery in batch:
                delivery.decide(ignore(Reason.OVERLOADED))
            return
        for delivery, receipt in zip(batch, receipts, strict=True):
            arrival = receipt.arrival
            delivery.decide(Verdict(arrival.verdict, arrival.reason))
            if arrival.accepted and self._rates is not None:
                self._rates.take(arrival.publisher, steady)
        self.received += len(batch)
        self._news.tell(receipts)

    async def _contexts(self, topic: str, raws: Sequence[bytes], now: int, steady: float) -> list[Verdict | None]:
        """For each message whether its publisher has had its share.

        Only good messages count, so that nobody can use up another's share with forgeries. Where a publisher seems to
        send more than it may, its messages are therefore judged beforehand, beside the event loop.
        """
        contexts: list[Verdict | None] = [None] * len(raws)
        if self._rates is None:
            return contexts
        by_publisher: defaultdict[str, list[int]] = defaultdict(list)
        for position, raw in enumerate(raws):
            by_publisher[_publisher(raw)].append(position)
        for publisher, positions in by_publisher.items():
            left = self._rates.available(publisher, steady)
            if len(positions) <= left:
                continue
            claimed = [raws[position] for position in positions]
            good = await anyio.to_thread.run_sync(self._judged_good, claimed, topic, now)
            for position, is_good in zip(positions, good, strict=True):
                left -= is_good
                if left < 0:
                    contexts[position] = OVER_RATE
        return contexts

    def _judged_good(self, raws: Sequence[bytes], topic: str, now: int) -> list[bool]:
        return [content(raw, topic, now, self._context).verdict.accepted for raw in raws]


def _publisher(raw: bytes) -> str:
    """Who a message says it is by; nothing is believed of it yet."""
    try:
        message = decode(raw)
    except DecodeError:
        return ""
    return message.publisher_id if isinstance(message, Publish) else ""
