"""Shapes of federations, and small helpers for looking at what came of them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from syncline.testing.relay.world import RelayWorld


def topic_of(name: str) -> str:
    """A topic for a readable name."""
    return hashlib.sha256(name.encode()).hexdigest()


def lay_line(world: RelayWorld, names: Sequence[str]) -> None:
    for one, other in pairwise(names):
        world.link(one, other)


def lay_ring(world: RelayWorld, names: Sequence[str]) -> None:
    lay_line(world, [*names, names[0]])


def lay_random(world: RelayWorld, names: Sequence[str], extra: int) -> None:
    """A random tree, so that everybody is reached, and some further links."""
    for index, name in enumerate(names[1:], 1):
        world.link(name, world.random.choice(list(names[:index])))
    pairs = [(a, b) for a in names for b in names if a < b and frozenset((a, b)) not in world.edges]
    for one, other in world.random.sample(pairs, min(extra, len(pairs))):
        world.link(one, other)


def duplicates(received: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """What came more than once."""
    return [each for each, times in Counter(received).items() if times > 1]
