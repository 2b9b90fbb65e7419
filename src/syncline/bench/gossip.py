"""Scenario `gossip`: GossipSub messages from one process to another, against js-libp2p in the same shape."""

from __future__ import annotations

from typing import Any, Final

from syncline.bench.pubsub import compare, growth
from syncline.bench.report import report

SMALL: Final = 20_000  # messages of 200 bytes
LARGE: Final = 5_000  # of 10 KiB


def run(scale: float = 1.0) -> dict[str, Any]:
    """Measure; `scale` multiplies the number of messages."""
    small, large = max(1_000, int(SMALL * scale)), max(500, int(LARGE * scale))
    cases = [
        compare("gossip", "200 B", 200, small, bar=2.0),
        compare("gossip", "10 KiB", 10_240, large, bar=1.3),
    ]
    return report("gossip", cases, growth=growth("gossip", 200, small))
