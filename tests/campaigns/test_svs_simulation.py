"""Twenty members of a group in virtual time under loss, copies, disorder and cut links: whatever the seed, they agree."""

from __future__ import annotations

import pytest

from syncline.core.limits import SVS_NODES
from syncline.testing.ndn import World
from tests.campaigns.conftest import LONG, Figures
from tests.protocols.svs.test_simulation import agree, crowd, once_each, publish

SEEDS = 500 if LONG else 20


@pytest.mark.timeout(7_200 if LONG else 600)
def test_members_agree_whatever_the_seed(seed: int, figures: Figures) -> None:
    lost = slowest = 0.0
    for number in range(seed, seed + SEEDS):
        world = World(number)
        _, members = crowd(world, 20)
        for member in members:
            world.after(world.random.uniform(0, 30), lambda member=member: publish(member))  # type: ignore[misc]
            if world.random.random() < 0.3:
                world.after(world.random.uniform(0, 20), member.cut)
                world.after(world.random.uniform(20, 60), lambda member=member: member.cut(up=True))  # type: ignore[misc]
        world.run(60)
        assert world.run_until(lambda members=members: agree(members), 600), f"seed {number}"  # type: ignore[misc]
        assert once_each(members), f"seed {number}"
        assert max(member.session.statistics()["nodes"] for member in members) <= SVS_NODES
        lost += sum(member.to_hub.lost + member.from_hub.lost for member in members)
        slowest = max(slowest, world.now)
    assert lost > 0
    figures(seeds=SEEDS, packets_lost=lost, slowest_virtual_seconds=slowest)
