"""A token bucket: so many per second, so many at once. The time is an argument; who is refused is up to the caller."""

from __future__ import annotations

import math
from collections import OrderedDict


class TokenBucket:
    """Holds up to `burst` tokens and gains `rate` of them a second."""

    __slots__ = ("_burst", "_rate", "_then", "_tokens")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._then = now

    def take(self, now: float, tokens: float = 1.0) -> float:
        """Take tokens and return 0, or take none and return the seconds until they would be there.

        More than the bucket can ever hold is infinitely far away.
        """
        there = self._tokens
        if now > self._then:
            there += (now - self._then) * self._rate
            there = self._tokens = there if there < self._burst else self._burst
            self._then = now
        if tokens <= there:
            self._tokens = there - tokens
            return 0.0
        return (tokens - there) / self._rate if tokens <= self._burst and self._rate > 0 else math.inf

    def available(self, now: float) -> float:
        """How many tokens there are, without taking any."""
        self.take(now, 0.0)
        return self._tokens


class TokenBuckets:
    """A bucket for each key, for a bounded number of keys: the one not used for longest is forgotten first.

    A forgotten key starts with a full bucket again, so `keys` must be large against how many keep a bucket busy.
    """

    __slots__ = ("_buckets", "_burst", "_keys", "_rate")

    def __init__(self, rate: float, burst: float, keys: int) -> None:
        self._rate = rate
        self._burst = burst
        self._keys = keys
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: str, now: float, tokens: float = 1.0) -> float:
        """As `TokenBucket.take`, from the bucket of this key."""
        bucket = self._buckets.pop(key, None) or TokenBucket(self._rate, self._burst, now)
        self._buckets[key] = bucket
        if len(self._buckets) > self._keys:
            self._buckets.popitem(last=False)
        return bucket.take(now, tokens)

    def available(self, key: str, now: float) -> float:
        """How many tokens this key has, without taking any."""
        bucket = self._buckets.get(key)
        return self._burst if bucket is None else bucket.available(now)
