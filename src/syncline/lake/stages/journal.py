"""What is made of every segment, whatever its protocol: a row of `segments`, and the positions of its journal that have not
landed, in `gaps`. A journal numbers its records without holes, so what is missing is lost or on its way.
"""

from __future__ import annotations

import datetime
from itertools import groupby
from typing import Any, Final

import pyarrow as pa

from syncline.formats.segments import SegmentInfo
from syncline.lake.gaps import Gap, gap_row
from syncline.lake.segments import Segment
from syncline.lake.stages import Examined, History, KeyedRule, ProtocolStages, StateRule
from syncline.lake.tables import GAPS, SEGMENTS

PROTOCOL: Final = "journal"
_LOOKED_AT: Final = ("journal", "path", "first_lsn", "last_lsn", "rows")


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
    """The positions that are missing between 1 and the newest that landed. A range counts once all its files are there."""
    journals = sorted(set(new["journal"].to_pylist()))
    both = pa.concat_tables([new.select(_LOOKED_AT), history(journals).select(_LOOKED_AT)])
    rows = sorted({tuple(row[name] for name in _LOOKED_AT) for row in both.to_pylist()})
    found = [
        gap_row(journal, "lsn", gap)
        for journal, group in groupby(rows, key=lambda row: row[0])
        for gap in _missing(list(group))
    ]
    return pa.Table.from_pylist(found, schema=GAPS.file_schema)


def _missing(rows: list[tuple[Any, ...]]) -> list[Gap]:
    landed: dict[tuple[int, int], int] = {}
    for _, _, first, last, count in rows:
        landed[first, last] = landed.get((first, last), 0) + count
    gaps: list[Gap] = []
    expected = 1
    for (first, last), count in sorted(landed.items()):
        if first > expected:
            gaps.append(Gap(expected, first - 1, None))
        gap = Gap(first, last, None)
        gap.missing -= count  # what is missing of a range is in the files that are missing, wherever between its ends
        if gap.missing:
            gaps.append(gap)
        expected = last + 1
    return gaps


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
