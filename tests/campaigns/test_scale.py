"""Many nodes in virtual time: what a message costs each of them, and how that grows with their number.

GossipSub with the real routers, on links that lose one packet in a hundred. A hundred nodes in the short form, a thousand in
the long one; each size is four times the one before, so that growth can be seen.
"""

from __future__ import annotations

import math
import time

import pytest

from syncline.testing.ndn import LinkWeather, World
from syncline.testing.pubsub import mesh
from tests.campaigns.conftest import LONG, Figures

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(3_600 if LONG else 300)]
SIZES = (62, 250, 1_000) if LONG else (25, 100)
MESSAGES = 20
TOPIC = "/scale"
WEATHER = LinkWeather(drop=0.01, least_delay=0.010, most_delay=0.050)


def test_the_cost_of_a_message_for_a_node_does_not_grow_with_their_number(seed: int, figures: Figures) -> None:
    copies = {}
    for size in SIZES:
        begun = time.monotonic()
        world = World(seed)
        nodes = mesh(world, size, degree=8, weather=WEATHER)
        for node in nodes:
            node.join(TOPIC)
        world.run(15)
        for node in nodes:  # what forming the meshes cost
            node.sent_bytes = 0
            node.counts.clear()
        sent_at = {}
        for number in range(MESSAGES):
            sent_at[number] = world.now
            nodes[world.random.randrange(size)].publish(TOPIC, number.to_bytes(4, "big") + bytes(500))
            world.run(1)
        world.run(20)
        waits = sorted(
            heard.at - sent_at[int.from_bytes(heard.data[:4], "big")] for node in nodes for heard in node.heard
        )
        reached = len(waits) / (MESSAGES * (size - 1))
        copies[size] = sum(node.counts["repeats"] for node in nodes) / (MESSAGES * size) + reached
        figures(
            nodes=size,
            reached=round(reached, 5),
            p50_ms=round(waits[len(waits) // 2] * 1e3),
            p99_ms=round(waits[len(waits) * 99 // 100] * 1e3),
            copies_per_node_and_message=round(copies[size], 2),
            bytes_per_node_and_message=round(sum(node.sent_bytes for node in nodes) / (MESSAGES * size)),
            largest_mesh=max(len(node.router.mesh[TOPIC]) for node in nodes),  # type: ignore[attr-defined]
            remembered=max(node.remembered for node in nodes),
            seconds=round(time.monotonic() - begun, 1),
        )
        assert reached >= 0.9999
        assert waits[-1] < 10.0
    first, last = SIZES[0], SIZES[-1]
    exponent = math.log(copies[last] / copies[first]) / math.log(last / first)
    figures(what="copies of a message a node gets", exponent=round(exponent, 3))
    assert exponent < 0.2
