"""SDSP in the lake: every frame once (`sdsp_frames`), and every object as its frames make it (`sdsp_objects`). Reading,
judging and folding are the protocol's own pure rooms; here they meet Arrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import groupby
from typing import Any, Final

import msgspec
import pyarrow as pa

from syncline.core.errors import DecodeError
from syncline.core.verdict import Outcome
from syncline.lake.gaps import gaps_rule
from syncline.lake.stages import RECORD, Examined, History, KeyedRule, Known, ProtocolStages, StateRule
from syncline.lake.tables import BUCKET, Column, Table, bucket_column, record_columns
from syncline.protocols.sdsp.deltas import Deltas
from syncline.protocols.sdsp.rebuild import Rebuilt, State, Status, rebuild, same_content
from syncline.protocols.sdsp.rules import PROTOCOL
from syncline.protocols.sdsp.wire import Frame, ObjectKind, decode

FRAMES: Final = Table(
    name="sdsp_frames",
    doc="Every SDSP frame once, however many nodes received it. Two rows with one uid and serial are a fork.",
    mode="keyed",
    columns=(
        Column("uid", pa.string(), "the object", nullable=False),
        Column("serial", pa.int64(), "the frame's place in the object's life, from 0", nullable=False),
        Column("ver", pa.int64(), "its distance from the full frame it builds on; 0 for a full frame", nullable=False),
        Column("kind", pa.string(), "full, delta or freeze", nullable=False),
        Column("alg", pa.string(), "the delta's algorithm: jp, md or X-…"),
        Column("frozen", pa.bool_(), "whether the object takes no frame after this one", nullable=False),
        Column("object_kind", pa.string(), "what a full frame carries: json, text or binary"),
        Column("data_uri", pa.string(), "where the object is, if the frame does not carry it"),
        Column("frame", pa.string(), "the frame as it was received, as JSON text", nullable=False),
        *record_columns("id", "topic", "publisher", "peer", "received_at", "node", "epoch", "lsn"),
        bucket_column(),
    ),
    partition_by=(BUCKET,),
    key="uid",
    identity=("id",),
    sort_by=("uid", "serial"),
    statistics=("uid", "serial", "received_at"),
    plain=("frame", "id"),
)

OBJECTS: Final = Table(
    name="sdsp_objects",
    doc="Every SDSP object as it is after the newest frame that could be applied.",
    mode="state",
    columns=(
        Column("uid", pa.string(), "the object", nullable=False),
        Column("status", pa.string(), "waiting, synced, stale, failed or frozen", nullable=False),
        Column("serial", pa.int64(), "the frame it is the result of; absent while waiting for a full frame"),
        Column("ver", pa.int64(), "that frame's distance from the full frame it builds on"),
        Column("kind", pa.string(), "json, text or binary"),
        Column("value", pa.string(), "the object: JSON with sorted keys, or the text"),
        Column("data", pa.binary(), "the object, if it is binary"),
        Column("newest", pa.int64(), "the highest serial that landed", nullable=False),
        Column("pending", pa.int64(), "frames that wait for a missing one", nullable=False, unit="frames"),
        Column("problem", pa.string(), "why it is stale or failed"),
        bucket_column(),
    ),
    partition_by=(BUCKET,),
    key="uid",
    identity=("uid",),
    sort_by=("uid",),
    statistics=("uid", "serial"),
    plain=("value", "data"),
)

_ENCODER: Final = msgspec.json.Encoder(order="sorted")


def examine(records: pa.Table) -> Examined:
    """Judge and decode frames by their bytes."""
    outcomes: list[str | None] = []
    reasons: list[str | None] = []
    positions: list[int] = []
    frames: list[Frame] = []
    texts: list[bytes] = []
    for position, raw in enumerate(records["raw"].to_pylist()):
        if raw is None:
            outcomes.append(None)
            reasons.append(None)
            continue
        try:
            frame = decode(raw)
        except DecodeError as error:
            outcomes.append(Outcome.REJECT.value)
            reasons.append(error.reason.value)
            continue
        outcomes.append(Outcome.ACCEPT.value)
        reasons.append(None)
        positions.append(position)
        frames.append(frame)
        texts.append(raw)
    return Examined(
        pa.array(outcomes, pa.string()),
        pa.array(reasons, pa.string()),
        {FRAMES.name: _columns(positions, frames, texts)},
    )


def _columns(positions: list[int], frames: list[Frame], texts: list[bytes]) -> pa.Table:
    kinds = [frame.kind.value for frame in frames]
    return pa.table(
        {
            RECORD: pa.array(positions, pa.int64()),
            "uid": pa.array([frame.uid for frame in frames], pa.string()),
            "serial": pa.array([frame.serial for frame in frames], pa.int64()),
            "ver": pa.array([frame.ver for frame in frames], pa.int64()),
            "kind": pa.array(kinds, pa.string()),
            "alg": pa.array([frame.alg or None for frame in frames], pa.string()),
            "frozen": pa.array([frame.frozen for frame in frames], pa.bool_()),
            "object_kind": pa.array(
                [frame.holds.value if kind == "full" else None for frame, kind in zip(frames, kinds, strict=True)],
                pa.string(),
            ),
            "data_uri": pa.array([frame.data_uri or None for frame in frames], pa.string()),
            "frame": pa.array(texts, pa.binary()).cast(pa.string()),
        }
    )


def same_frame(one: str, other: str) -> bool:
    """Whether two frames with one uid and serial say the same; a node may have added its historyUri to one of them."""
    return same_content(decode(one.encode()), decode(other.encode()))


def fold_objects(old: pa.Table, new: pa.Table, history: History) -> pa.Table:
    """The objects after these frames."""
    deltas = _installed_deltas()
    before = {row["uid"]: row for row in old.to_pylist()}
    arrived = {uid: list(frames) for uid, frames in _by_uid(new)}
    late = {uid for uid, frames in arrived.items() if _needs_history(before.get(uid), frames)}
    past = {uid: list(frames) for uid, frames in _by_uid(history(sorted(late)))} if late else {}
    rows = []
    for uid, texts in arrived.items():
        row = None if uid in late else before.get(uid)
        frames = [decode(text) for _, text in (*past.get(uid, ()), *texts)]
        rebuilt = rebuild(None if row is None else state_of(row), frames, deltas, in_place=True)
        newest = max(frame.serial for frame in frames)
        rows.append(_row_of(uid, rebuilt, newest if row is None else max(newest, row["newest"])))
    return pa.Table.from_pylist(rows, schema=OBJECTS.file_schema)


@cache
def _installed_deltas() -> Deltas:
    """Looked up once per process: what is installed does not change while it runs."""
    return Deltas.installed()


def _by_uid(frames: pa.Table) -> Iterator[tuple[str, Iterable[tuple[int, bytes]]]]:
    ordered = frames.select(["uid", "serial", "frame"]).sort_by([("uid", "ascending"), ("serial", "ascending")])
    columns = [
        ordered["uid"].to_pylist(),
        ordered["serial"].to_pylist(),
        ordered["frame"].cast(pa.binary()).to_pylist(),
    ]
    for uid, group in groupby(zip(*columns, strict=True), key=lambda row: row[0]):
        yield uid, ((serial, text) for _, serial, text in group)


def _needs_history(row: dict[str, Any] | None, frames: list[tuple[int, bytes]]) -> bool:
    """Whether the state alone does not tell what these frames make of it: some of them are late, or others wait."""
    if row is None:
        return False
    settled = row["status"] in (Status.SYNCED, Status.FROZEN) and row["pending"] == 0
    return not settled or frames[0][0] <= row["newest"]


def state_of(row: dict[str, Any]) -> State:
    kind = ObjectKind(row["kind"])
    if kind is ObjectKind.BINARY:
        value, size = row["data"], len(row["data"])
    else:
        text = row["value"]
        value, size = msgspec.json.decode(text) if kind is ObjectKind.JSON else text, len(text.encode())
    return State(row["uid"], row["serial"], row["ver"], kind, value, Status(row["status"]), size)


def _row_of(uid: str, rebuilt: Rebuilt, newest: int) -> dict[str, Any]:
    state = rebuilt.state
    since = -1 if state is None else state.serial
    problem = next((problem for problem in rebuilt.problems if problem.serial > since), None)
    row: dict[str, Any] = {
        "uid": uid,
        "newest": newest,
        "pending": len(rebuilt.pending),
        "status": Status.WAITING.value,
    }
    if state is not None:
        row |= {"status": state.status.value, "serial": state.serial, "ver": state.ver, "kind": state.kind.value}
        row["data" if state.kind is ObjectKind.BINARY else "value"] = (
            _ENCODER.encode(state.value).decode() if state.kind is ObjectKind.JSON else state.value
        )
    if problem is not None and row["status"] in (Status.WAITING, Status.STALE, Status.FAILED):
        row["problem"] = f"{problem.cause.value} at serial {problem.serial}"
    return row


STAGES: Final = ProtocolStages(
    protocol=PROTOCOL,
    examine=examine,
    keyed=(KeyedRule(FRAMES, "frame", same_frame),),
    states=(
        StateRule(OBJECTS, FRAMES.name, fold_objects),
        gaps_rule(FRAMES, series="uid", number="serial", what="serial"),
    ),
)


def stages(known: Known) -> ProtocolStages:
    """Nothing beside the bytes is needed to judge them."""
    return STAGES
