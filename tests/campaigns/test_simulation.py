"""Twenty nodes in virtual time under loss, copies, disorder, delay and a partition: whatever the seed, they agree."""

from __future__ import annotations

import time

import pytest

from tests.campaigns.conftest import LONG, Figures
from tests.campaigns.simulations import NODES, SIMULATIONS

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(14_400 if LONG else 900)]
SEEDS = 500 if LONG else 20


@pytest.mark.parametrize("protocol", SIMULATIONS)
def test_nodes_agree_whatever_the_seed(protocol: str, seed: int, figures: Figures) -> None:
    begun = time.monotonic()
    ran = [SIMULATIONS[protocol](number) for number in range(seed, seed + SEEDS)]
    assert SIMULATIONS[protocol](seed).trace == ran[0].trace, "the same seed must give the same run"
    assert len({each.trace for each in ran}) == SEEDS
    assert min(each.cut for each in ran) > 0, "no partition happened"
    assert sum(each.lost for each in ran) > SEEDS, "the planned losses did not happen"
    assert sum(each.copies for each in ran) > SEEDS, "the planned copies did not happen"
    figures(
        protocol=protocol,
        nodes=NODES,
        seeds=SEEDS,
        lost=sum(each.lost for each in ran),
        copies=sum(each.copies for each in ran),
        lines_cut=sum(each.cut for each in ran),
        slowest_virtual_seconds=round(max(each.virtual_seconds for each in ran)),
        fullest_collection=max(each.largest for each in ran),
        seconds=round(time.monotonic() - begun, 1),
    )
