"""`syncline bench`: a scenario against its peer, measured in one run."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer

from syncline.cli import output
from syncline.cli.common import JsonFlag


def run(
    scenario: Annotated[str, typer.Argument(help="A scenario of docs/benchmarks.md, or `all`")],
    scale: Annotated[float, typer.Option(min=0.001, help="Amount of work, relative to the documented one")] = 1.0,
    json: JsonFlag = False,
) -> None:
    """Measure a scenario as a ratio against a named peer. Exits 1 when a bar is missed.

    Example: [bold]syncline bench journal --json[/bold]
    """
    from syncline.bench import SCENARIOS
    from syncline.core.errors import UsageError

    if scenario != "all" and scenario not in SCENARIOS:
        raise UsageError(f"there is no scenario {scenario!r}", hint=f"choose one of: {', '.join(SCENARIOS)}, all")
    met = True
    for name in SCENARIOS if scenario == "all" else [scenario]:
        report = import_module(f"syncline.bench.{name.replace('-', '_')}").run(scale)
        met = met and report["met"]
        output.json_line(report) if json else _show(report)
    if not met:
        raise typer.Exit(1)


def _show(report: dict[str, Any]) -> None:
    rows = [
        (
            case["name"],
            f"{case['ours']:,.6g} {case['unit']}",
            f"{case['peer']:,.6g} ({case['peer_name']})",
            f"{case['ratio']:.3g}",
            f"{'≤' if case.get('at_most') else '≥'} {case['bar']:g}",
        )
        for case in report["cases"]
    ]
    output.table(
        ["case", "ours", "peer", "ratio", "bar"],
        rows,
        title=f"{report['scenario']}: {'met' if report['met'] else 'MISSED'}",
    )
