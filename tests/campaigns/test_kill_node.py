"""The whole node killed -9 under the load of all protocols, again and again: what it acknowledged is there, in order."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import anyio
import pytest

from syncline.core.ports import RecordQuery
from syncline.core.verdict import Outcome
from syncline.journal.reading import reading
from syncline.journal.rows import record_of
from syncline.journal.verify import verify
from tests.campaigns.conftest import LONG, Figures
from tests.campaigns.crowd import Crowd, WholeNode

pytestmark = [pytest.mark.campaign, pytest.mark.anyio, pytest.mark.timeout(14_400 if LONG else 600)]
KILLS = 500 if LONG else 25
KILLS_OF_A_NODE = 25


async def test_a_killed_node_has_all_that_it_acknowledged(tmp_path: Path, seed: int, figures: Figures) -> None:
    chance, seen = random.Random(seed), Counter[str]()
    for life in range(KILLS // KILLS_OF_A_NODE):
        node = WholeNode(tmp_path / str(life))
        acknowledged: dict[str, list[bytes]] = {"relay": [], "sdsp": []}
        for turn in range(KILLS_OF_A_NODE):
            crowd = await live_and_die(node, f"{life}.{turn}", chance.expovariate(2.0))
            for protocol, ids in acknowledged.items():
                ids += crowd.acknowledged[protocol]
                seen[f"acknowledged_{protocol}"] += len(crowd.acknowledged[protocol])
            seen.update({f"sent_{name}": count for name, count in crowd.sent.items()})
            seen["mid_flight"] += any(
                crowd.sent[protocol] > len(crowd.acknowledged[protocol]) for protocol in acknowledged
            )
            check(node.journal, acknowledged)
        seen.update(check(node.journal, acknowledged))
    figures(kills=KILLS, **seen)
    assert seen["mid_flight"] >= KILLS // 2, "the kills did not come while something was under way"
    assert min(seen["acknowledged_relay"], seen["acknowledged_sdsp"]) > KILLS
    assert min(seen[f"records_{name}"] for name in ("relay", "sds", "sdsp", "shrex", "svs")) > 0


async def live_and_die(node: WholeNode, tag: str, seconds: float) -> Crowd:
    """Start the node, let peers use it, kill it so long after the first acknowledgement."""
    await node.start()
    crowd = Crowd(node.ready, tag=tag, settle=0.2)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(node.listen)
        tasks.start_soon(crowd.run)
        with anyio.fail_after(60):
            while not (crowd.acknowledged["relay"] and crowd.acknowledged["sdsp"] and crowd.sent["sds"]):
                await anyio.sleep(0.01)
        await anyio.sleep(seconds)
        await node.kill()
        tasks.cancel_scope.cancel()
    return crowd


def check(journal: Path, acknowledged: dict[str, list[bytes]]) -> Counter[str]:
    """Acknowledged is kept, in its order, and no id is accepted twice."""
    assert verify(journal).problems == []
    with reading(journal) as opened:
        rows = [row for page in opened.pages(RecordQuery(limit=2**62)) for row in page]
    records = [record_of(row, "node", "") for row in rows]
    assert [record.lsn for record in records] == list(range(1, len(records) + 1))
    accepted: dict[str, list[bytes]] = {}
    for record in records:
        if record.verdict is Outcome.ACCEPT:
            accepted.setdefault(record.protocol, []).append(record.id)
    for protocol, ids in accepted.items():
        assert len(ids) == len(set(ids)), f"{protocol}: an id was accepted twice"
    for protocol, ids in acknowledged.items():
        places = {id: place for place, id in enumerate(accepted.get(protocol, []))}
        assert set(ids) <= places.keys(), f"{protocol}: an acknowledged record is lost"
        found = [places[id] for id in ids]
        assert found == sorted(found), f"{protocol}: order is lost"
    return Counter({f"records_{protocol}": len(ids) for protocol, ids in accepted.items()})
