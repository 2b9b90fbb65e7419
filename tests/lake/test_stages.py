"""A protocol joins the lake by its stages alone: the testing kit's chirps as a table of messages and one of speakers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from syncline.core.keys import NodeKey
from syncline.core.record import Arrival, Incoming
from syncline.lake.batch import InProcess, Lander
from syncline.lake.roots import Lake
from syncline.lake.segments import Segment, list_segments
from syncline.lake.stages import RECORD, Examined, History, KeyedRule, ProtocolStages, StateRule
from syncline.lake.tables import BUCKET, Column, Table, bucket_column, record_columns
from syncline.testing.chirp import ChirpJudge, encode, judge_message
from syncline.testing.segments import DAY_ZERO, FakeJournal, write_segments
from tests.lake.conftest import rows

CHIRPS = Table(
    name="chirps",
    doc="Every chirp once.",
    mode="keyed",
    columns=(
        Column("by", pa.string(), "who chirped", nullable=False),
        Column("text", pa.string(), "what", nullable=False),
        *record_columns("id", "received_at", "node", "epoch", "lsn"),
        bucket_column(),
    ),
    partition_by=(BUCKET,),
    key="by",
    identity=("id",),
    sort_by=("by", "id"),
    statistics=("by",),
)
SPEAKERS = Table(
    name="speakers",
    doc="How often everybody chirped.",
    mode="state",
    columns=(
        Column("by", pa.string(), "who", nullable=False),
        Column("chirps", pa.int64(), "how often", nullable=False),
        bucket_column(),
    ),
    partition_by=(BUCKET,),
    key="by",
    identity=("by",),
    sort_by=("by",),
)


def examine(records: pa.Table) -> Examined:
    stamps = records["received_at"].cast(pa.int64()).to_pylist()
    judged = [judge_message(raw or b"", now) for raw, now in zip(records["raw"].to_pylist(), stamps, strict=True)]
    good = [(position, message) for position, (message, verdict) in enumerate(judged) if message and verdict.accepted]
    found = {
        RECORD: pa.array([position for position, _ in good], pa.int64()),
        "by": pa.array([message.by for _, message in good], pa.string()),
        "text": pa.array([message.text for _, message in good], pa.string()),
    }
    outcomes = pa.array([verdict.outcome.value for _, verdict in judged], pa.string())
    reasons = pa.array([verdict.reason.value if verdict.reason else None for _, verdict in judged], pa.string())
    return Examined(outcomes, reasons, {CHIRPS.name: pa.table(found)})


def count(old: pa.Table, new: pa.Table, history: History) -> pa.Table:
    known = {row["by"]: row["chirps"] for row in old.to_pylist()}
    added: list[dict[str, Any]] = pc.value_counts(new["by"]).to_pylist()
    found = [{"by": each["values"], "chirps": known.get(each["values"], 0) + each["counts"]} for each in added]
    return pa.Table.from_pylist(found, schema=SPEAKERS.file_schema)


STAGES = ProtocolStages(
    protocol="chirp",
    examine=examine,
    keyed=(KeyedRule(CHIRPS),),
    states=(StateRule(SPEAKERS, CHIRPS.name, count),),
)


def chirp(key: NodeKey, number: int, *, forged: bool = False) -> Arrival:
    raw = encode(key, number, DAY_ZERO, f"chirp {number}")
    raw = raw.replace(b"chirp ", b"chorp ") if forged else raw
    return ChirpJudge()(Incoming(protocol="chirp", topic="yard", raw=raw, peer="p", received_at=DAY_ZERO + number))


def test_a_third_protocol_needs_no_change_of_the_pipeline(lake: Lake) -> None:
    ann, bob = NodeKey(b"a" * 32), NodeKey(b"b" * 32)
    lander = Lander(lake, {"chirp": STAGES}, InProcess(), buckets=3)
    for node, numbers in (("one", range(6)), ("two", range(3, 9))):
        heard = [chirp(key, number) for number in numbers for key in (ann, bob)]
        write_segments(lake.segments.path, FakeJournal(node).keep([*heard, chirp(ann, 99, forged=True)]))
        result = lander.land([found for found in list_segments(lake.segments) if isinstance(found, Segment)])
        assert result.differing == 0
    assert rows(lake, "records").num_rows == 26
    assert sorted(rows(lake, "rejected")["reason"].to_pylist()) == ["invalid_signature", "invalid_signature"]
    chirps = rows(lake, "chirps")
    assert chirps.num_rows == len(set(chirps["id"].to_pylist())) == 18
    speakers = {row["by"]: row["chirps"] for row in rows(lake, "speakers").to_pylist()}
    assert speakers == {ann.peer_id: 9, bob.peer_id: 9}
