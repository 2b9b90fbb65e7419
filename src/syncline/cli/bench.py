"""`syncline bench`: a scenario against its peer, measured in one run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from syncline.cli import output
from syncline.cli.common import JsonFlag


def run(
    scenario: Annotated[str, typer.Argument(help="A scenario of docs/benchmarks.md, or `all`")],
    scale: Annotated[float, typer.Option(min=0.001, help="Amount of work, relative to the documented one")] = 1.0,
    write: Annotated[
        Path | None, typer.Option(metavar="PAGE", help="Write the figures into this page, e.g. docs/benchmarks.md")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Measure a scenario as a ratio against a named peer. Exits 1 when a bar is missed.

    The peer's own figure is compared with the one recorded for the same class of machine; a fall is flagged.

    Example: [bold]syncline bench journal --json[/bold]
    """
    from syncline.bench import SCENARIOS
    from syncline.core.errors import UsageError

    if scenario != "all" and scenario not in SCENARIOS:
        raise UsageError(f"there is no scenario {scenario!r}", hint=f"choose one of: {', '.join(SCENARIOS)}, all")
    met = True
    for report in _all(SCENARIOS, scale) if scenario == "all" else [_one(scenario, scale)]:
        output.json_line(report) if json else _show(report)
        if write is not None and report["cases"]:
            _write_down(write, report, scale)  # at once: what comes after may fail
        met = met and report["met"]
    if not met:
        raise typer.Exit(1)


def _write_down(page: Path, report: dict[str, Any], scale: float) -> None:
    from syncline.bench import page as pages
    from syncline.bench.record import measured

    pages.write(page, [measured(report, scale)])


def _one(scenario: str, scale: float) -> dict[str, Any]:
    from importlib import import_module

    from syncline.bench.record import recorded, with_peers_compared

    report = import_module(f"syncline.bench.{scenario.replace('-', '_')}").run(scale)
    return with_peers_compared(report, recorded())


def _all(scenarios: tuple[str, ...], scale: float) -> Iterator[dict[str, Any]]:
    """Each in a process of its own, so that none finds another's caches, threads or Spark; one after the other."""
    import subprocess
    import sys
    import time

    import msgspec

    say = output.progress_console().print
    for number, scenario in enumerate(scenarios, 1):
        say(f"{number}/{len(scenarios)} {scenario}", end=" … ")
        begun = time.perf_counter()
        command = [sys.executable, "-m", "syncline.cli.main", "bench", scenario, "--json", "--scale", str(scale)]
        done = subprocess.run(command, capture_output=True, text=True)
        lines = [line for line in done.stdout.splitlines() if line.startswith('{"scenario"')]
        if lines:
            report: dict[str, Any] = msgspec.json.decode(lines[-1])
        else:
            problem = (done.stderr.strip().splitlines() or ["no answer"])[-1]
            report = {"scenario": scenario, "met": False, "cases": [], "failed": problem}
        say(f"{'met' if report['met'] else 'MISSED'} in {time.perf_counter() - begun:.0f} s")
        yield report


def _show(report: dict[str, Any]) -> None:
    from syncline.bench.record import crippled_peers

    rows = [
        (
            case["name"],
            f"{case['ours']:,.6g} {case['unit']}",
            f"{case['peer']:,.6g} ({case['peer_name']})",
            f"{case['peer_of_recorded']:.2f} ×" if "peer_of_recorded" in case else "–",
            f"{case['ratio']:.3g}",
            f"{'≤' if case.get('at_most') else '≥'} {case['bar']:g}",
        )
        for case in report["cases"]
    ]
    output.table(
        ["case", "ours", "peer", "peer now / recorded", "ratio", "bar"],
        rows,
        title=f"{report['scenario']}: {'met' if report['met'] else 'MISSED'} {report.get('failed', '')}".strip(),
    )
    if grown := report.get("growth"):
        sizes = " → ".join(f"{size:,}" for size in grown["sizes"])
        output.facts({"growth": f"exponent {grown['exponent']} over {sizes} {grown['unit']}"})
    for name in crippled_peers(report):
        output.progress_console().print(f"[bold red]the peer is not itself[/]: {name} does less than 0.7 × its record")
