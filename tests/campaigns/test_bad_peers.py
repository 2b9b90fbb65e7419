"""Bad peers, one plan after the other, against a node that honest peers use all the while: they hardly notice.

Holds if at least 99 % of what honest peers send is kept, each attacker that must be cut off is, after the stated count,
and the honest p99 stays within twice the baseline of the same run: that of all quiet moments between the plans, and at
least some milliseconds, since a shared machine has pauses of its own. A plan that exceeds it is tried once more. The short
form prints it and does not insist: it runs wherever changes are checked, beside whatever else runs there.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from syncline.testing.badpeers import PLANS, BadPeer, Target
from tests.campaigns.conftest import LONG, Figures
from tests.campaigns.crowd import OMM, Crowd, WholeNode, kept, until, whole_node
from tests.campaigns.whole_node import GROUP

pytestmark = [pytest.mark.campaign, pytest.mark.anyio, pytest.mark.timeout(3_600 if LONG else 900)]
SECONDS = 20.0 if LONG else 3.0
FLOOR_MS = 250.0  # two cores run node, honest and bad peers at once, and whatever else is going on


def p99_ms(waits: list[float]) -> float:
    return statistics.quantiles(waits, n=100)[98] * 1e3 if len(waits) > 10 else 0.0


async def quiet(crowd: Crowd, seconds: float) -> list[float]:
    """The honest waits of so many seconds."""
    before = {name: len(waits) for name, waits in crowd.waits.items()}
    await anyio.sleep(seconds)
    return [wait for name, waits in crowd.waits.items() for wait in waits[before[name] :]]


async def attacked_by(plan: BadPeer, target: Target) -> dict[str, Any]:
    """What one bad peer, in a process of its own, did in so many seconds."""
    wanted = msgspec.json.encode(target).decode()
    command = [sys.executable, "-m", "syncline.testing.badpeers", plan.name, str(SECONDS), wanted]
    done = await anyio.run_process(command, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


async def delivered(node: WholeNode, crowd: Crowd) -> float:
    """The share of what honest peers have sent that the node has kept, once it has caught up."""
    sent = dict(crowd.sent)
    names = ("relay", "sds", "sdsp", "svs")
    await until(lambda: all(kept(node, name) >= sent[name] for name in names), 10)
    return min(min(kept(node, name), sent[name]) / sent[name] for name in names)


async def test_honest_peers_hardly_notice_bad_ones(tmp_path: Path, figures: Figures) -> None:
    problems: list[str] = []
    calm: list[float] = []
    async with whole_node(tmp_path / "node") as node, anyio.create_task_group() as tasks:
        crowd = Crowd(node.ready, tag="honest", pause=0.02)
        tasks.start_soon(crowd.run)
        assert await until(lambda: min(kept(node, name) for name in ("relay", "sds", "sdsp", "svs")) > 0, 60)
        target = Target(
            libp2p=node.ready["libp2p"][0], topic=OMM, relay=node.ready["relay"], ndn=node.ready["ndn"], group=GROUP,
            api=node.ready["api"],
        )  # fmt: skip
        for plan in PLANS:
            for attempt in (1, 2):
                calm += await quiet(crowd, SECONDS / 2)
                before = {name: len(waits) for name, waits in crowd.waits.items()}
                attack = await attacked_by(plan, target)
                waits = [wait for name, each in crowd.waits.items() for wait in each[before[name] :]]
                share, baseline, attacked = await delivered(node, crowd), p99_ms(calm), p99_ms(waits)
                figures(
                    plan=plan.name, surface=plan.surface, sent=attack["sent"], refused=attack["refused"],
                    cut_after=attack["cut_after"], honest_delivery=round(share, 4), baseline_p99_ms=round(baseline, 1),
                    p99_ms=round(attacked, 1), attempt=attempt, answer=plan.answer,
                )  # fmt: skip
                found = complaints(plan, attack["sent"], attack["cut_after"], share, baseline, attacked)
                if not found:
                    break
            problems += found
        memory = [report["memory_kib"] / 1024 for report in node.reports]
        crowd.stopping = crowd.done = True
        tasks.cancel_scope.cancel()
    figures(plan="all", memory_mib={"first": round(memory[0]), "last": round(memory[-1])}, errors=dict(crowd.errors))
    assert problems == []
    assert crowd.errors == {}
    assert memory[-1] < 512


def complaints(
    plan: BadPeer, sent: int, cut_after: int | None, share: float, baseline: float, attacked: float
) -> list[str]:
    found = []
    if not sent:
        found.append(f"{plan.name}: nothing was sent, so nothing was tried")
    if share < 0.99:
        found.append(f"{plan.name}: only {share:.1%} of honest messages were kept")
    if plan.is_cut and (cut_after is None or cut_after > plan.cut_within):
        found.append(f"{plan.name}: cut after {cut_after}, not within {plan.cut_within}")
    if LONG and attacked > max(2 * baseline, FLOOR_MS):
        found.append(f"{plan.name}: honest p99 {attacked:.0f} ms, {baseline:.0f} ms before")
    return found
