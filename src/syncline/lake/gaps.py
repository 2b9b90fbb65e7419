"""Missing numbers: which runs of a series of numbered messages are missing, since when, and when they were filled. Pure;
what the numbers are (serials, sequence numbers, heights), the stages say.

The answer follows from the numbers and their times of arrival alone, never from how they were split into batches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from decimal import Decimal
from itertools import groupby
from typing import Any

import pyarrow as pa

from syncline.lake.stages import Fold, History, StateRule
from syncline.lake.tables import GAPS, Table


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
    def __init__(self, series: str, number: str, what: str) -> None:
        self._series, self._number, self._what = series, number, what

    def __call__(self, old: pa.Table, new: pa.Table, history: History) -> pa.Table:
        names = [self._series, self._number, "received_at"]
        keys = sorted(set(new[self._series].to_pylist()))
        rows = pa.concat_tables([new.select(names), history(keys).select(names)])
        columns = [rows[name].to_pylist() for name in names]
        arrivals = sorted(zip(*columns, strict=True))
        found = [
            gap_row(key, self._what, gap)
            for key, group in groupby(arrivals, key=_first)
            for gap in gaps_of((time, int(value)) for _, value, time in group)
        ]
        return pa.Table.from_pylist(found, schema=GAPS.file_schema)


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


_first: Callable[[tuple[Any, ...]], Any] = lambda row: row[0]  # noqa: E731
_first_number: Callable[[Gap], int] = lambda gap: gap.first  # noqa: E731
_negative_last: Callable[[Gap], int] = lambda gap: -gap.last  # noqa: E731
