"""A node that was off for ten thousand records ends holding all of them, for hardly more bytes than it missed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.conftest import Figures
from tests.protocols.sds.nodes import line, nodes

pytestmark = [pytest.mark.campaign, pytest.mark.anyio]
MISSED = 10_000


@pytest.mark.timeout(900)
async def test_a_node_that_was_off_for_ten_thousand_records_catches_up(tmp_path: Path, figures: Figures) -> None:
    async with nodes(tmp_path, 2, publish_rate=0) as [alice, bob]:
        await line(alice, bob)
        for number in range(1, 101):
            await bob.sds.send("OMM", {"NORAD_CAT_ID": number})
        await alice.holds(100)
        await alice.host.disconnect(bob.peer_id)
        for number in range(MISSED):
            await bob.sds.send("OMM", {"NORAD_CAT_ID": number + 1_000, "OBJECT_NAME": f"OBJECT {number}"})
        await alice.host.connect(bob.host.addresses[0])
        caught = await alice.sds.sync(bob.peer_id)
        held = {record.id for record in alice.records(verdict="accept")}
        assert held == {record.id for record in bob.records(verdict="accept")}
        missed = sum(len(record.raw or b"") for record in bob.records()[100:])
        figures(missed=MISSED, rounds=caught.rounds, bytes=caught.bytes, ratio=round(caught.bytes / missed, 4))
        assert caught.accepted == MISSED
        assert caught.bytes <= 1.1 * missed
