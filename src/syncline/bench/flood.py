"""Scenario `flood`: ShrEx notifications over FloodSub from one process to another, against js-libp2p likewise."""

from __future__ import annotations

from typing import Any, Final

from syncline.bench.pubsub import compare, growth
from syncline.bench.report import report

NOTIFICATION: Final = 39  # bytes at today's heights
COUNT: Final = 20_000


def run(scale: float = 1.0) -> dict[str, Any]:
    """Measure; `scale` multiplies the number of notifications."""
    count = max(1_000, int(COUNT * scale))
    cases = [compare("flood", "notification", NOTIFICATION, count, bar=2.5)]
    return report("flood", cases, growth=growth("flood", NOTIFICATION, count))
