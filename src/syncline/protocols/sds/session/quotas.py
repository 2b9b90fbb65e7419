"""What one peer may do here, over all its streams: publishes and queries a second, subscriptions at a time.

Shared by the sessions of a node. The time is an argument.
"""

from __future__ import annotations

import math
from collections import Counter

from syncline.core import limits
from syncline.core.buckets import TokenBuckets


class Quotas:
    """Rates and counts by peer. A rate of 0 is no limit, for benchmarks."""

    def __init__(
        self,
        *,
        publish_rate: float = limits.SDS_PUBLISH_RATE,
        query_rate: float = limits.SDS_QUERY_RATE,
        subscriptions: int = limits.SDS_SUBSCRIPTIONS,
    ) -> None:
        self._publishes = _buckets(publish_rate)
        self._queries = _buckets(query_rate)
        self._subscriptions = subscriptions
        self._active: Counter[str] = Counter()

    def publish(self, peer: str, now: float) -> int:
        """0 if this peer may publish now, else the whole seconds after which it may."""
        return _take(self._publishes, peer, now)

    def query(self, peer: str, now: float) -> int:
        """The same for a query or a sync."""
        return _take(self._queries, peer, now)

    def subscribe(self, peer: str) -> bool:
        """Count one more subscription of this peer, if it may have one."""
        if self._active[peer] >= self._subscriptions:
            return False
        self._active[peer] += 1
        return True

    def unsubscribe(self, peer: str, count: int = 1) -> None:
        self._active[peer] -= count
        if self._active[peer] <= 0:
            del self._active[peer]

    @property
    def subscriptions(self) -> int:
        """Active ones of all peers."""
        return self._active.total()


def _buckets(rate: float) -> TokenBuckets | None:
    return TokenBuckets(rate, max(rate, 1.0), limits.SDS_RATED_PEERS) if rate > 0 else None


def _take(buckets: TokenBuckets | None, peer: str, now: float) -> int:
    # SDS: retry_after = ceil(missing tokens / rate)
    return 0 if buckets is None else math.ceil(buckets.take(peer, now))
