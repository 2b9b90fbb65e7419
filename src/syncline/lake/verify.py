"""Judging again: does the lake, from the bytes alone, come to the node's verdict? Says where not, and which records
count as accepted and as rejected from here on. Only content is judged; what depended on the moment is the node's word.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from syncline.core.verdict import Outcome, Reason
from syncline.lake.stages import Examined

CONTENT_REASONS: Final = pa.array(sorted(reason.value for reason in Reason if reason.about == "content"))
Mask = npt.NDArray[np.bool_]


class Verified(msgspec.Struct, frozen=True):
    """What became of some records: `accepted` says which go on to be decoded, `rejected` has the rows of that table,
    `differing` the records whose content lake and node judge differently, with `lake_verdict` and `lake_reason`.
    """

    accepted: Mask
    rejected: pa.Table
    differing: pa.Table


def verify(records: pa.Table, examined: Examined) -> Verified:
    """Compare the node's verdicts with what the bytes say."""
    by_node = _mask(pc.equal(records["verdict"], Outcome.ACCEPT))
    by_lake = _mask(pc.not_equal(examined.outcome, Outcome.REJECT), unknown=True)
    overruled = pa.array(by_node & ~by_lake)
    rejected = [
        _judged_by("node", records.filter(pc.equal(records["verdict"], Outcome.REJECT))),
        _judged_by("lake", _with_verdict(records.filter(overruled), examined.reason.filter(overruled))),
    ]
    return Verified(by_node & by_lake, pa.concat_tables(rejected), _differing(records, examined))


def unexamined(records: pa.Table) -> Examined:
    """For a protocol nobody here knows: the node's word stands, and there is nothing to decode."""
    nothing = pa.nulls(records.num_rows, pa.string())
    return Examined(nothing, nothing, {})


def _differing(records: pa.Table, examined: Examined) -> pa.Table:
    """Comparable are an accept, and a refusal for a reason of content; a refusal for another reason may have come
    before anybody looked at the content. So may one for size of what the node did not even name: its own bounds on names.
    """
    unread = pc.and_(
        pc.equal(records["kind"], "unknown"), pc.fill_null(pc.equal(records["reason"], Reason.OVERSIZE), False)
    )
    refused = pc.and_not(pc.is_in(records["reason"], value_set=CONTENT_REASONS), unread)
    comparable = pc.or_(pc.equal(records["verdict"], Outcome.ACCEPT), refused)
    node = pc.binary_join_element_wise(records["verdict"], pc.fill_null(records["reason"], ""), ":")
    lake = pc.binary_join_element_wise(examined.outcome, pc.fill_null(examined.reason, ""), ":")
    where = pa.array(_mask(pc.and_(comparable, pc.not_equal(node, lake))))
    return (
        records.filter(where)
        .append_column(pa.field("lake_verdict", pa.string(), nullable=False), examined.outcome.filter(where))
        .append_column("lake_reason", examined.reason.filter(where))
    )


def _with_verdict(records: pa.Table, reason: pa.Array) -> pa.Table:
    verdict = pa.array([Outcome.REJECT.value] * records.num_rows, pa.string())
    for name, values in (("verdict", verdict), ("reason", reason)):
        index = records.schema.get_field_index(name)
        records = records.set_column(index, records.schema.field(index), values)
    return records


def _judged_by(who: str, records: pa.Table) -> pa.Table:
    column = pa.array([who] * records.num_rows, pa.string())
    return records.append_column(pa.field("judged_by", pa.string(), nullable=False), column)


def _mask(condition: pa.Array | pa.ChunkedArray, *, unknown: bool = False) -> Mask:
    """A condition as booleans; where it cannot be told, `unknown`."""
    filled = pc.fill_null(condition, unknown)
    if isinstance(filled, pa.ChunkedArray):
        filled = filled.combine_chunks()
    return np.asarray(filled.to_numpy(zero_copy_only=False), np.bool_)
