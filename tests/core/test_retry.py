from __future__ import annotations

from itertools import islice
from random import Random

from syncline.core.retry import Backoff


def test_spans_grow_up_to_the_longest() -> None:
    steady = Backoff(first=1, factor=2, longest=5, jitter=0)
    assert list(islice(steady.spans(), 5)) == [1, 2, 4, 5, 5]


def test_jitter_shortens_a_span_by_at_most_its_share() -> None:
    spans = list(islice(Backoff(first=1, factor=1, jitter=0.5).spans(Random(7)), 200))
    assert all(0.5 < span <= 1 for span in spans)
    assert len(set(spans)) == 200
