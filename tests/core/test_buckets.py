"""Token buckets: the rate, the burst, the wait that is told, and how many keys are remembered."""

from __future__ import annotations

import math

import pytest

from syncline.core.buckets import TokenBucket, TokenBuckets


def test_a_burst_is_given_at_once_and_then_the_rate() -> None:
    bucket = TokenBucket(10, 10, now=0.0)
    assert [bucket.take(0.0) for _ in range(10)] == [0.0] * 10
    assert bucket.take(0.0) == pytest.approx(0.1)
    assert bucket.take(0.1) == 0.0
    assert bucket.take(0.1) > 0


def test_an_idle_bucket_holds_no_more_than_its_burst() -> None:
    bucket = TokenBucket(10, 10, now=0.0)
    assert sum(bucket.take(1_000.0) == 0 for _ in range(100)) == 10


def test_what_a_bucket_can_never_hold_is_infinitely_far() -> None:
    assert TokenBucket(10, 10, now=0.0).take(0.0, 11) == math.inf


def test_a_clock_that_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(10, 1, now=100.0)
    assert bucket.take(100.0) == 0
    assert bucket.take(50.0) > 0


def test_each_key_has_its_own_bucket() -> None:
    buckets = TokenBuckets(1, 2, keys=10)
    assert [buckets.take("a", 0.0), buckets.take("a", 0.0), buckets.take("b", 0.0)] == [0, 0, 0]
    assert buckets.take("a", 0.0) == pytest.approx(1.0)


def test_only_so_many_keys_are_remembered_and_the_idle_ones_go_first() -> None:
    buckets = TokenBuckets(1, 1, keys=3)
    for key in "abc":
        buckets.take(key, 0.0)
    assert buckets.take("a", 0.0) > 0  # still busy, and now the last to be forgotten
    for key in "de":
        buckets.take(key, 0.0)
    assert len(buckets) == 3
    assert buckets.take("a", 0.0) > 0
    assert buckets.take("b", 0.0) == 0  # forgotten, so full again


def test_one_can_ask_how_many_tokens_there_are_without_taking_any() -> None:
    buckets = TokenBuckets(1, 2, keys=3)
    assert [buckets.available("a", 0.0), buckets.available("a", 0.0)] == [2, 2]
    buckets.take("a", 0.0)
    assert (buckets.available("a", 0.0), buckets.available("a", 0.5)) == (1.0, 1.5)
