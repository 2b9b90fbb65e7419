"""What is made of every segment, whatever its protocol: a row of `segments`, and the positions of its journal that have not
landed, in `gaps`. A journal numbers its records without holes, so what is missing is lost or on its way.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from syncline.formats.segments import SegmentInfo
from syncline.lake.gaps import Gap, gap_row
from syncline.lake.segments import Segment
from syncline.lake.stages import Examined, History, KeyedRule, ProtocolStages, StateRule
from syncline.lake.tables import GAPS, SEGMENTS

PROTOCOL: Final = "journal"
_LOOKED_AT: Final = ("journal", "first_lsn", "last_lsn", "rows", "path")


def segment_row(segment: Segment, info: SegmentInfo) -> pa.Table:
    """The row of a segment that landed."""
    row = {
        "journal": f"{segment.node}/{segment.epoch}",
        "path": segment.path,
        "node": segment.node,
        "epoch": segment.epoch,
        "protocol": segment.protocol,
        "day": datetime.date.fromisoformat(segment.date),
        "first_lsn": segment.lo,
        "last_lsn": segment.hi,
        "rows": info.rows,
        "siblings": len(info.siblings),
    }
    return pa.Table.from_pylist([row], schema=SEGMENTS.file_schema)


def fold_positions(old: pa.Table, new: pa.Table, history: History) -> pa.Table:
    """The positions that are missing between 1 and the newest that landed. A range counts once all its files are there.

    What is new changes nothing below it, so only what landed from there on is read again; all of it where that does not
    tell what is below.
    """
    gaps = _by_journal(
        (row["series"], int(row["first"]), int(row["last"]), int(row["missing"])) for row in old.to_pylist()
    )
    arrived = _by_journal(_looked_at(new))
    starts = {journal: _start(gaps.get(journal, []), rows) for journal, rows in arrived.items()}
    journals = sorted(arrived)
    near = _by_journal(_looked_at(history(journals, ("last_lsn", min(starts.values()) - 1))))
    unclear = [
        journal
        for journal in journals
        if not _is_told_below(starts[journal], gaps.get(journal, []), near.get(journal, []))
    ]
    far = _by_journal(_looked_at(history(unclear))) if unclear else {}
    found: list[dict[str, Any]] = []
    for journal in journals:
        start, past = (1, far) if journal in unclear else (starts[journal], near)
        rows = {row for row in (*past.get(journal, ()), *arrived[journal]) if row[0] >= start}
        kept = [_gap(*gap) for gap in gaps.get(journal, ()) if gap[1] < start]
        found += [gap_row(journal, "lsn", gap) for gap in (*kept, *_missing(rows, start))]
    return pa.Table.from_pylist(found, schema=GAPS.file_schema)


def _looked_at(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(rows[name].to_pylist() for name in _LOOKED_AT), strict=True)


def _by_journal(rows: Iterable[tuple[Any, ...]]) -> dict[str, list[tuple[Any, ...]]]:
    found: dict[str, list[tuple[Any, ...]]] = {}
    for journal, *rest in rows:
        found.setdefault(journal, []).append(tuple(rest))
    return found


def _start(gaps: list[tuple[Any, ...]], arrived: list[tuple[Any, ...]]) -> int:
    """Where what is missing has to be looked at again: at the first range that came, or the gap it lies in."""
    first: int = min(row[0] for row in arrived)
    return min([first, *(int(low) for low, high, _ in gaps if high >= first)])


def _is_told_below(start: int, gaps: list[tuple[Any, ...]], landed: list[tuple[Any, ...]]) -> bool:
    """Whether something that ends just before `start` is known: then the gaps are known up to there."""
    below = start - 1
    return below == 0 or any(gap[1] == below for gap in gaps) or any(row[1] == below for row in landed)


def _gap(first: int, last: int, missing: int) -> Gap:
    gap = Gap(first, last, None)
    gap.missing = missing
    return gap


def _missing(rows: Iterable[tuple[Any, ...]], start: int) -> Iterator[Gap]:
    landed: dict[tuple[int, int], int] = {}
    for first, last, count, _ in rows:
        landed[first, last] = landed.get((first, last), 0) + count
    expected = start
    for (first, last), count in sorted(landed.items()):
        if first > expected:
            yield Gap(expected, first - 1, None)
        # what is missing of a range is in the files that are missing, wherever between its ends
        if last - first + 1 > count:
            yield _gap(first, last, last - first + 1 - count)
        expected = last + 1


def examine(records: pa.Table) -> Examined:
    """Judges nothing: the rows come from the segments' names."""
    nothing = pa.nulls(records.num_rows, pa.string())
    return Examined(nothing, nothing, {})


STAGES: Final = ProtocolStages(
    protocol=PROTOCOL,
    examine=examine,
    keyed=(KeyedRule(SEGMENTS),),
    states=(StateRule(GAPS, SEGMENTS.name, fold_positions, columns=_LOOKED_AT),),
)
