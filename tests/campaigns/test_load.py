"""All five protocols at once, held: what is sent is kept, nothing is dropped, and memory is flat."""

from __future__ import annotations

import statistics
from pathlib import Path

import anyio
import pytest

from syncline.core.ports import RecordQuery
from syncline.journal.reading import reading
from syncline.journal.verify import verify
from tests.campaigns.conftest import LONG, Figures
from tests.campaigns.crowd import Crowd, kept, until, whole_node

pytestmark = [pytest.mark.campaign, pytest.mark.anyio, pytest.mark.timeout(1_800 if LONG else 240)]
SECONDS = 600 if LONG else 10
GROWTH_MIB = 64 if LONG else 96  # the short run sees caches fill


async def test_all_protocols_at_once_are_held(tmp_path: Path, figures: Figures) -> None:
    async with whole_node(tmp_path / "node") as node, anyio.create_task_group() as tasks:
        crowd = Crowd(node.ready, tag="load", pause=0.002, ttl=60)  # an hour of messages is meant to fill memory
        tasks.start_soon(crowd.run)
        assert await until(lambda: min(kept(node, name) for name in ("relay", "sds", "sdsp", "shrex", "svs")) > 0, 60)
        first = len(node.reports)
        await anyio.sleep(SECONDS)
        crowd.stopping = True
        held = node.reports[first:]
        await anyio.sleep(0.2)  # what was being sent is sent
        wanted = dict(crowd.sent)
        complete = await until(lambda: all(kept(node, name) >= count for name, count in wanted.items()), 60)
        counts = {name: kept(node, name) for name in ("relay", "sds", "sdsp", "shrex", "svs")}
        rejected = {name: kept(node, name, "reject") for name in counts}
        crowd.done = True
        tasks.cancel_scope.cancel()
    memory = [report["memory_kib"] / 1024 for report in held]
    settled = memory[len(memory) // 4 :]  # caches fill first
    half = len(settled) // 2
    growth = statistics.mean(settled[half:]) - statistics.mean(settled[:half])
    figures(
        seconds=SECONDS,
        sent=dict(crowd.sent),
        kept=counts,
        per_second={name: round(count / (SECONDS + 1)) for name, count in counts.items()},
        receive_to_durable_ms={
            "p50": statistics.median(report["p50_ms"] for report in held),
            "p99": statistics.median(report["p99_ms"] for report in held),
        },
        memory_mib={"first": round(settled[0]), "last": round(settled[-1]), "second_half_over_first": round(growth, 1)},
        memory_by_minute=[round(each) for each in memory[::60]],
        errors=dict(crowd.errors),
    )
    assert node.silences == 0, f"see {node.folder}.log for what its tasks waited for"
    assert crowd.errors == {}
    assert complete, f"sent {wanted}, kept {counts}"
    assert rejected == dict.fromkeys(rejected, 0)
    assert len(crowd.acknowledged["relay"]) == crowd.sent["relay"]
    assert growth < GROWTH_MIB, f"memory grew by {growth:.0f} MiB in the second half"
    assert verify(node.journal).problems == []
    with reading(node.journal) as journal:
        ids = {row[9] for page in journal.pages(RecordQuery(protocol="sds", limit=2**62)) for row in page}
    assert set(crowd.sds_ids) <= ids
