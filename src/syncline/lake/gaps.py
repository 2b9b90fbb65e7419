"""Missing numbers: which runs of a series of numbered messages are missing, since when, and when they were filled. Pure;
what the numbers are (serials, sequence numbers, heights), the stages say.

The answer follows from the numbers and their times of arrival alone, never from how they were split into batches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from syncline.lake.stages import Fold, History, StateRule
from syncline.lake.tables import GAPS, Table

Series = dict[str, list[tuple[Any, int]]]  # time and number of arrivals


class Gap:
    """A run of numbers that others overtook."""

    __slots__ = ("closed_at", "first", "last", "missing", "opened_at")

    def __init__(self, first: int, last: int, opened_at: Any) -> None:
        self.first, self.last, self.opened_at = first, last, opened_at
        self.missing = last - first + 1
        self.closed_at: Any = None


def gaps_of(arrivals: Iterable[tuple[Any, int]]) -> list[Gap]:
    """The gaps of one series, by its (time, number) in any order. A gap opens when a number comes that leaves others out
    above or below all that came before it, and closes when the last of these has come.
    """
    above: list[Gap] = []  # ascending
    below: list[Gap] = []  # descending
    seen: set[int] = set()
    low = high = 0
    for time, number in sorted(arrivals):
        if not seen:
            low = high = number
        elif number > high:
            if number > high + 1:
                above.append(Gap(high + 1, number - 1, time))
            high = number
        elif number < low:
            if number < low - 1:
                below.append(Gap(number + 1, low - 1, time))
            low = number
        elif number not in seen:
            gap = _gap_of(above, below, number)
            gap.missing -= 1
            gap.closed_at = None if gap.missing else time
        seen.add(number)
    return [*reversed(below), *above]


def gaps_rule(source: Table, *, series: str, number: str, what: str) -> StateRule:
    """How `gaps` is folded from a table with a number in each row."""
    return StateRule(
        GAPS, source.name, gaps_fold(series, number, what), on=series, columns=(series, number, "received_at")
    )


def gaps_fold(series: str, number: str, what: str) -> Fold:
    return _Folding(series, number, what)


class _Folding:
    """Folds `gaps`. A series whose numbers just went on is told by its end; only where they did not is all its history
    read. The answer is the same.
    """

    def __init__(self, series: str, number: str, what: str) -> None:
        self._series, self._number, self._what = series, number, what

    def __call__(self, old: pa.Table, new: pa.Table, history: History) -> pa.Table:
        arrived = self._by_series(new)
        least = max(min(number for came in arrived.values() for _, number in came) - 1, 0)
        ends = self._by_series(history(sorted(arrived), (self._number, least)))
        troubled = self._troubled(old, arrived, ends)
        past = ends if least == 0 or not troubled else self._by_series(history(troubled))
        found = [
            gap_row(key, self._what, gap) for key in troubled for gap in gaps_of([*past.get(key, ()), *arrived[key]])
        ]
        unchanged = old.filter(pc.invert(pc.is_in(old["series"], value_set=pa.array(troubled, pa.string()))))
        return pa.concat_tables([unchanged, pa.Table.from_pylist(found, schema=GAPS.file_schema)])

    def _troubled(self, old: pa.Table, arrived: Series, ends: Series) -> list[str]:
        gapped: dict[str, int] = {}
        for key, last in zip(old["series"].to_pylist(), old["last"].to_pylist(), strict=True):
            gapped[key] = max(int(last), gapped.get(key, 0))
        return sorted(key for key, came in arrived.items() if not goes_on(ends.get(key, ()), came, gapped.get(key, -1)))

    def _by_series(self, rows: pa.Table) -> Series:
        found: Series = {}
        names = (self._series, "received_at", self._number)
        for key, time, number in zip(*(rows[name].to_pylist() for name in names), strict=True):
            found.setdefault(key, []).append((time, int(number)))
        return found


def goes_on(end: Iterable[tuple[Any, int]], came: Iterable[tuple[Any, int]], gapped: int) -> bool:
    """Whether what came continues a series number by number, each after the one before it, so that no gap opens, closes or
    changes. `end` has all that landed from just below the lowest number on; up to `gapped` there are gaps.
    """
    before, fresh = _first_times(end), _first_times(came)
    fresh = {number: time for number, time in fresh.items() if number not in before or time < before[number]}
    if not fresh:
        return True
    lowest, known = min(fresh), {**before, **fresh}
    return (
        bool(before)
        and max(before) == lowest - 1
        and gapped < lowest
        and max(fresh) - lowest + 1 == len(fresh)
        and all(known[number - 1] <= known[number] for number in fresh)
    )


def _first_times(arrivals: Iterable[tuple[Any, int]]) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for time, number in arrivals:
        if number not in found or time < found[number]:
            found[number] = time
    return found


def gap_row(series: str, what: str, gap: Gap) -> dict[str, Any]:
    return {
        "series": series,
        "what": what,
        "first": Decimal(gap.first),
        "last": Decimal(gap.last),
        "missing": Decimal(gap.missing),
        "opened_at": gap.opened_at,
        "closed_at": gap.closed_at,
    }


def _gap_of(above: list[Gap], below: list[Gap], number: int) -> Gap:
    index = bisect_right(above, number, key=_first_number) - 1
    if index >= 0 and above[index].first <= number <= above[index].last:
        return above[index]
    return below[bisect_right(below, -number, key=_negative_last) - 1]


_first_number: Callable[[Gap], int] = lambda gap: gap.first  # noqa: E731
_negative_last: Callable[[Gap], int] = lambda gap: -gap.last  # noqa: E731
