"""What was measured before: the latest report of every scenario and class of machine, kept beside docs/benchmarks.md.

It is what a peer's own figure is compared with, so that a peer that was slowed by accident (a debug build, an old
version, a busy machine) is noticed and its ratio is not believed.
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from syncline.bench.machine import machine_class

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "benchmarks.md"
CRIPPLED: Final = 0.7  # a peer that does less than this much of what it did before is not itself


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario's report, where and when it was made."""

    machine: str
    date: str
    command: str
    report: dict[str, Any]

    @property
    def scenario(self) -> str:
        return str(self.report["scenario"])


def measured(report: dict[str, Any], scale: float) -> Measured:
    """A report of this moment on this machine."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    command = f"syncline bench {report['scenario']} --json" + ("" if scale == 1 else f" --scale {scale:g}")
    return Measured(machine=machine_class(), date=today, command=command, report=report)


def recorded(page: Path = PAGE) -> list[Measured]:
    """What the page tells of; nothing outside a checkout."""
    file = page.with_suffix(".json")
    return msgspec.json.decode(file.read_bytes(), type=list[Measured]) if file.is_file() else []


def merged(old: list[Measured], new: list[Measured]) -> list[Measured]:
    """The newest report of each scenario and class of machine."""
    kept = {(each.machine, each.scenario): each for each in [*old, *new]}
    return [kept[key] for key in sorted(kept)]


def with_peers_compared(report: dict[str, Any], before: list[Measured]) -> dict[str, Any]:
    """The report with each peer's recorded figure beside its own; `peer_crippled` where it fell too far."""
    here = [each for each in before if each.machine == machine_class() and each.scenario == report["scenario"]]
    known = {_key(case): case for each in here for case in each.report["cases"]}
    return {**report, "cases": [_compared(case, known.get(_key(case))) for case in report["cases"]]}


def crippled_peers(report: dict[str, Any]) -> list[str]:
    return [f"{case['peer_name']} in {case['name']}" for case in report["cases"] if case.get("peer_crippled")]


def _compared(case: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
    if before is None:
        return case
    speed = case["peer"] / before["peer"] if more_is_better(case) else before["peer"] / case["peer"]
    return {
        **case,
        "peer_recorded": before["peer"],
        "peer_of_recorded": round(speed, 3),
        "peer_crippled": speed < CRIPPLED,
    }


def more_is_better(case: dict[str, Any]) -> bool:
    """Whether the figures are rates; told by how the ratio was made, and by its bar."""
    ours, peer, ratio = float(case["ours"]), float(case["peer"]), float(case["ratio"])
    ours_over_peer = abs(ratio - ours / peer) <= abs(ratio - peer / ours)
    return ours_over_peer != bool(case.get("at_most"))


def _key(case: dict[str, Any]) -> tuple[str, str]:
    return case["name"], case["peer_name"]
