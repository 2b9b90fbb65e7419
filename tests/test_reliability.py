"""The page of reliability says what was measured, and every test it names exists."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from syncline.testing.badpeers import PLANS
from tools import reliability
from tools.threats import THREATS, Threat

ROOT = Path(__file__).resolve().parent.parent
SURFACES = {
    "every decoder", "journal", "libp2p", "SDS streams", "SDSP", "relay", "NDN", "ShrEx", "HTTP, WebSocket, page",
    "query",
}  # fmt: skip


@pytest.mark.parametrize("threat", THREATS, ids=lambda each: f"{each.surface}: {each.threat}")
def test_a_threat_has_a_test_and_a_cut_off(threat: Threat) -> None:
    file, _, name = threat.test.partition("::")
    assert re.search(rf"^\s*(async )?def {name}\(", (ROOT / "tests" / file).read_text(), re.MULTILINE)
    assert threat.cut_off


def test_every_surface_is_there() -> None:
    assert {each.surface for each in THREATS} == SURFACES
    assert len(PLANS) >= 15


def test_every_campaign_has_a_row_and_every_row_a_campaign() -> None:
    there = {path.stem.removeprefix("test_") for path in (ROOT / "tests" / "campaigns").glob("test_*.py")}
    named = {name for row in reliability.ROWS for name in row.files}
    assert there == named, "add a row to ROWS in tools/reliability.py"


def test_the_page_is_the_one_its_record_gives() -> None:
    record = json.loads(reliability.RECORD.read_text())
    remarks = reliability.REMARKS.read_text() if reliability.REMARKS.exists() else ""
    assert reliability.PAGE.read_text() == reliability.page(record, remarks), "run `python -m tools.reliability`"


def test_a_failed_campaign_is_shown_and_a_later_run_replaces_it() -> None:
    def line(outcome: str) -> str:
        told = {"campaign": "load", "test": "test_x", "long": False, "outcome": outcome, "seconds": 1.0}
        return json.dumps({"outcome": told})

    record = reliability.taken_in({}, [line("failed")], "2026-01-01")
    assert "**failed: test_x**" in reliability.page(record)
    record = reliability.taken_in(record, [line("passed")], "2026-01-02")
    assert (
        "failed"
        not in reliability.page(record).partition("## Threats")[0].partition("| load held")[2].partition("\n")[0]
    )
