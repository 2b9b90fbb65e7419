"""The form every benchmark reports in: cases as ratios against a named peer, and how the work grows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

R = TypeVar("R")


def case(
    name: str, ours: float, peer: float, peer_name: str, unit: str, *, bar: float, ratio: float, at_most: bool = False
) -> dict[str, Any]:
    """One comparison. `ratio` must be at least (or at most) `bar`."""
    found: dict[str, Any] = {"name": name, "ours": ours, "peer": peer, "peer_name": peer_name, "unit": unit}
    return {**found, "ratio": ratio, "bar": bar, **({"at_most": True} if at_most else {})}


def is_met(case: dict[str, Any]) -> bool:
    """Whether one comparison came out as its bar asks."""
    met: bool = case["ratio"] <= case["bar"] if case.get("at_most") else case["ratio"] >= case["bar"]
    return met


def report(scenario: str, cases: Sequence[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A scenario's result; met if every case is."""
    return {"scenario": scenario, "met": all(is_met(each) for each in cases), "cases": list(cases), **more}


def growth(of: str, unit: str, sizes: Sequence[int], seconds: Sequence[float]) -> dict[str, Any]:
    """How the time of some work grows, measured at 1 ×, 4 × and 16 × of it."""
    return {
        "of": of,
        "unit": unit,
        "sizes": list(sizes),
        "seconds": [round(each, 6) for each in seconds],
        "exponent": round(exponent(sizes, seconds), 3) if sizes[-1] > sizes[0] else None,  # None: too little to tell
    }


def timed(work: Callable[[], R]) -> tuple[float, R]:
    """Seconds the work took, and what it gave."""
    begun = time.perf_counter()
    found = work()
    return time.perf_counter() - begun, found


def best(times: int, work: Callable[[], R]) -> tuple[float, R]:
    """The shortest of several runs, as noise only ever adds."""
    return min((timed(work) for _ in range(times)), key=lambda pair: pair[0])


def exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """How time grows with size: 1 is linear. The slope between the smallest and the largest."""
    return math.log(seconds[-1] / seconds[0]) / math.log(sizes[-1] / sizes[0])
