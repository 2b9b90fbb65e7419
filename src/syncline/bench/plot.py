"""Two small drawings for the page of benchmarks, as SVG written by hand: bars against their marks, and growth curves.

Both axes of each drawing are logarithmic where ratios are shown, since twice as fast and half as fast are as far apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any, Final

from syncline.bench.report import is_met

WIDTH: Final = 820
ROW: Final = 22
LABEL: Final = 360
COLOURS: Final = ("#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f")
STYLE: Final = (
    "<style>text{font:12px system-ui,sans-serif;fill:#64748b}.grid{stroke:#94a3b8;stroke-opacity:.35}</style>"
)


def ratios(reports: Sequence[dict[str, Any]]) -> str:
    """Each case as a bar whose length is how far the bar was passed (1 is exactly met), green if it was."""
    cases = [(report["scenario"], case) for report in reports for case in report["cases"]]
    margins = [_margin(case) for _, case in cases]
    low, high = min([0.5, *margins]), max([2.0, *margins])

    def x(value: float) -> float:
        return LABEL + (WIDTH - LABEL - 60) * math.log(value / low) / math.log(high / low)

    height = ROW * (len(cases) + 1) + 12
    lines = [_head(height, "How far each case is past its bar"), _line(x(1.0), 4, x(1.0), height - 16)]
    lines.append(_text(x(1.0), height - 4, "bar", anchor="middle"))
    for number, ((scenario, case), margin) in enumerate(zip(cases, margins, strict=True)):
        top = 4 + ROW * number
        colour = COLOURS[2] if is_met(case) else COLOURS[3]
        left, right = sorted((x(1.0), x(margin)))
        lines.append(_text(LABEL - 8, top + 14, _label(scenario, case, cases), anchor="end"))
        lines.append(
            f'<rect x="{left:.1f}" y="{top + 3}" width="{max(right - left, 1):.1f}" height="14" fill="{colour}"/>'
        )
        lines.append(_text(right + 5, top + 14, f"{margin:.2g} ×"))
    return "\n".join([*lines, "</svg>"]) + "\n"


def _label(scenario: str, case: dict[str, Any], cases: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """The case; where one is compared with two peers, the peer, as it tells them apart."""
    twins = sum(each == scenario and other["name"] == case["name"] for each, other in cases)
    return f"{scenario}: {case['peer_name'] if twins > 1 else case['name']}"[:56]


def growth(reports: Sequence[dict[str, Any]]) -> str:
    """Time per unit of work at 1 ×, 4 × and 16 ×, relative to 1 ×: level is linear growth."""
    grown = [report for report in reports if len(report.get("growth", {}).get("seconds", ())) > 1]
    curves = {report["scenario"]: _per_unit(report["growth"]) for report in grown}
    values = [value for curve in curves.values() for _, value in curve]
    low, high = min([0.5, *values]), max([2.0, *values])
    most = max([16.0, *(size for curve in curves.values() for size, _ in curve)])
    height, left, right, bottom = 360, 60, WIDTH - 150, 320

    def x(size: float) -> float:
        return left + (right - left) * math.log(max(size, 1)) / math.log(most)

    def y(value: float) -> float:
        return bottom - (bottom - 20) * math.log(value / low) / math.log(high / low)

    lines = [_head(height, "Time per unit of work as the work grows")]
    for size in (1, 4, 16):
        lines += [_line(x(size), 20, x(size), bottom), _text(x(size), bottom + 18, f"{size} ×", anchor="middle")]
    for value in [each for each in (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0) if low <= each <= high]:
        lines += [_line(left, y(value), right, y(value)), _text(left - 6, y(value) + 4, f"{value:g}", anchor="end")]
    for number, (name, curve) in enumerate(sorted(curves.items())):
        colour, dash = COLOURS[number % len(COLOURS)], "" if number < len(COLOURS) else ' stroke-dasharray="5 3"'
        points = " ".join(f"{x(size):.1f},{y(value):.1f}" for size, value in curve)
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        place = 24 + 18 * number
        lines.append(
            f'<line x1="{right + 14}" y1="{place}" x2="{right + 34}" y2="{place}" stroke="{colour}" '
            f'stroke-width="2"{dash}/>'
        )
        lines.append(_text(right + 40, place + 4, name))
    return "\n".join([*lines, "</svg>"]) + "\n"


def _margin(case: dict[str, Any]) -> float:
    ratio = max(case["ratio"], 1e-9)
    return float(case["bar"] / ratio if case.get("at_most") else ratio / case["bar"])


def _per_unit(grown: dict[str, Any]) -> list[tuple[float, float]]:
    sizes, seconds = grown["sizes"], grown["seconds"]
    first = seconds[0] / sizes[0]
    return [(size / sizes[0], time / size / first) for size, time in zip(sizes, seconds, strict=True)]


def _head(height: float, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(title)}">\n<title>{escape(title)}</title>\n{STYLE}'
    )


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="grid" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
