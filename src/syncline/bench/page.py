"""Writes docs/benchmarks.md from what was measured: a table, the command of each row, two drawings, and the raw record.

Nothing is chosen or rounded in our favour: the newest report of each scenario is shown, missed bars and all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from syncline.bench import SCENARIOS, plot
from syncline.bench.record import CRIPPLED, Measured, merged, recorded
from syncline.bench.report import is_met

REMARKS: Final = "benchmarks-remarks.md"
HEAD: Final = """<!-- Written by `syncline bench all --write docs/benchmarks.md`; benchmarks-remarks.md is put in below. -->
# Benchmarks

Machines are noisy, so every bar is a **ratio measured in one run**: ours and a named peer do the same work, side by side,
and the results are checked in the same run. The peer runs in its best honest configuration and is never slowed: its own
figure is compared with the one recorded here for the same class of machine, and a fall below {crippled} × is flagged.

All of them, one after another, written down here: `make bench` (`syncline bench all --write docs/benchmarks.md`).
`--scale` does a fraction of the work. The record behind this page: [benchmarks.json](benchmarks.json).
"""
GROWTH: Final = (
    "Each scenario also runs at 1 ×, 4 × and 16 × the work. An exponent of 1 is linear; n log n over these sizes is about "
    "1.1 to 1.2. Nothing may grow faster."
)


def write(page: Path, new: list[Measured]) -> None:
    """Take in new reports, and write the page, its drawings and its record."""
    found = merged(recorded(page), new)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.with_suffix(".json").write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    latest = _latest(found)
    page.with_name(f"{page.stem}-ratios.svg").write_text(plot.ratios([each.report for each in latest]))
    page.with_name(f"{page.stem}-growth.svg").write_text(plot.growth([each.report for each in latest]))
    remarks = page.with_name(REMARKS)
    page.write_text(text(latest, page.stem, remarks.read_text() if remarks.is_file() else ""))


def text(latest: list[Measured], stem: str = "benchmarks", remarks: str = "") -> str:
    """The page."""
    lines = [HEAD.format(crippled=CRIPPLED)]
    for machine in sorted({each.machine for each in latest}):
        lines += ["## Ratios", "", f"Measured on {machine}.", ""]
        lines += [
            "| scenario | case | ours | peer | ratio | bar | | command | date |",
            "|---|---|--:|--:|--:|--:|---|---|---|",
        ]
        lines += [_row(each, case) for each in latest if each.machine == machine for case in each.report["cases"]]
        lines.append("")
    missing = [name for name in SCENARIOS if name not in {each.scenario for each in latest}]
    if missing:
        lines += [f"Not measured yet: {', '.join(missing)}.", ""]
    lines += [f"![How far each case is past its bar]({stem}-ratios.svg)", "", "## Growth", ""]
    lines += [GROWTH, ""]
    lines += ["| scenario | of | work | seconds | exponent |", "|---|---|---|---|--:|"]
    lines += [_growth_row(each) for each in latest if "growth" in each.report]
    lines += ["", f"![Time per unit of work as the work grows]({stem}-growth.svg)", ""]
    return "\n".join(lines) + (f"\n{remarks}" if remarks else "")


def _latest(found: list[Measured]) -> list[Measured]:
    """Of the machine that was measured last; a page of several machines would compare what cannot be compared."""
    newest = max(found, key=lambda each: each.date).machine
    order = {name: number for number, name in enumerate(SCENARIOS)}
    return sorted((each for each in found if each.machine == newest), key=lambda each: order.get(each.scenario, 99))


def _row(each: Measured, case: dict[str, Any]) -> str:
    sign = "≤" if case.get("at_most") else "≥"
    verdict = "met" if is_met(case) else "**missed**"
    if case.get("peer_crippled"):
        verdict += f"; peer at {case['peer_of_recorded']:.2f} × of its record"
    return (
        f"| {each.scenario} | {case['name']} | {figure(case['ours'], case['unit'])} "
        f"| {figure(case['peer'], case['unit'])} ({case['peer_name']}) "
        f"| {case['ratio']:.3g} | {sign} {case['bar']:g} | {verdict} | `{each.command}` | {each.date} |"
    )


def figure(value: float, unit: str) -> str:
    """A figure as people say it: `1.81 M rows/s`, `76.2 ms`. Only plain seconds and bytes are written as parts of one."""
    steps = [(1e6, "M"), (1e3, "k"), (1.0, "")] + [(1e-3, "m"), (1e-6, "µ")] * (unit in ("s", "B"))
    size, prefix = next(((size, name) for size, name in steps if value >= size), (1.0, ""))
    number = f"{value / size:.3g}" if value / size < 100 else f"{value / size:.0f}"
    return f"{number} {prefix}{unit}" if unit in ("s", "B") or not prefix else f"{number} {prefix} {unit}"


def _growth_row(each: Measured) -> str:
    grown = each.report["growth"]
    sizes = " / ".join(f"{size:,}" for size in grown["sizes"])
    seconds = " / ".join(f"{time:.3g}" for time in grown["seconds"])
    exponent = "–" if grown["exponent"] is None else f"{grown['exponent']:.2f}"  # too little work to tell
    return f"| {each.scenario} | {grown['of']} | {sizes} {grown['unit']} | {seconds} | {exponent} |"
