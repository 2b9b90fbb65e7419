"""Judging again: does the lake, from the bytes alone, come to the node's verdict? Says where not, and which records
count as accepted and as rejected from here on. Only content is judged; what depended on the moment is the node's
word.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from syncline.core.verdict import Outcome, Reason
from syncline.lake.stages import Judged, ProtocolStages

CONTENT_REASONS: Final = pa.array(sorted(reason.value for reason in Reason if reason.about == "content"))


class Verified(msgspec.Struct, frozen=True):
    """What became of a table of records: `accepted` go on to be decoded, `rejected` have the columns of that table,
    `differing` are the records whose content the lake and the node judge differently (`lake_verdict`, `lake_reason`).
    """

    accepted: pa.Table
    rejected: pa.Table
    differing: pa.Table


def verify(records: pa.Table, stages: ProtocolStages | None) -> Verified:
    """Judge the content of every record again. Without stages, nobody here knows the protocol: the node's word
    stands.
    """
    judged = _unjudged(records) if stages is None else stages.judge(records)
    verdict = _mask(pc.equal(records["verdict"], Outcome.ACCEPT))
    turned_away = _mask(pc.equal(judged.outcome, Outcome.REJECT))
    differs = _mask(_differs(records, judged))
    by_lake = records.filter(pa.array(verdict & turned_away))
    lake_reason = judged.reason.filter(pa.array(verdict & turned_away))
    rejected = pa.concat_tables(
        [
            _rejected(records.filter(pc.equal(records["verdict"], Outcome.REJECT)), None, "node"),
            _rejected(by_lake, lake_reason, "lake"),
        ]
    )
    return Verified(
        records if (verdict & ~turned_away).all() else records.filter(pa.array(verdict & ~turned_away)),
        rejected,
        _differing(records, judged, differs),
    )


def _unjudged(records: pa.Table) -> Judged:
    nothing = pa.nulls(records.num_rows, pa.string())
    return Judged(nothing, nothing)


def _differs(records: pa.Table, judged: Judged) -> pa.Array:
    """Comparable are an accept, and a refusal for a reason of content; a refusal for another reason may have come
    before anybody looked at the content.
    """
    about_content = pc.or_(
        pc.equal(records["verdict"], Outcome.ACCEPT), pc.is_in(records["reason"], value_set=CONTENT_REASONS)
    )
    node = pc.binary_join_element_wise(records["verdict"], pc.fill_null(records["reason"], ""), ":")
    lake = pc.binary_join_element_wise(judged.outcome, pc.fill_null(judged.reason, ""), ":")
    return pc.and_(pc.and_(about_content, pc.is_valid(judged.outcome)), pc.not_equal(node, lake))


def _rejected(records: pa.Table, reason: pa.Array | None, judge: str) -> pa.Table:
    if reason is not None:
        fields = records.schema
        verdict = pa.array([Outcome.REJECT.value] * records.num_rows, pa.string())
        records = records.set_column(fields.get_field_index("verdict"), fields.field("verdict"), verdict)
        records = records.set_column(fields.get_field_index("reason"), fields.field("reason"), reason)
    judged_by = pa.array([judge] * records.num_rows, pa.string())
    return records.append_column(pa.field("judged_by", pa.string(), nullable=False), judged_by)


def _differing(records: pa.Table, judged: Judged, differs: npt.NDArray[np.bool_]) -> pa.Table:
    where = pa.array(differs)
    found = records.filter(where)
    return found.append_column("lake_verdict", judged.outcome.filter(where)).append_column(
        "lake_reason", judged.reason.filter(where)
    )


def _mask(condition: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """A condition as booleans; where it cannot be told, it does not hold."""
    filled = pc.fill_null(condition, False)
    if isinstance(filled, pa.ChunkedArray):
        filled = filled.combine_chunks()
    return np.asarray(filled.to_numpy(zero_copy_only=False), np.bool_)
