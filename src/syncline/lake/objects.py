"""Any SDSP object at any serial, from the frames that landed: folded anew from the full frame it builds on. What it is
now, `sdsp_objects` says.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from syncline.core.errors import MissingError, SynclineError
from syncline.lake.deltas import BUCKETS_PROPERTY, open_delta
from syncline.lake.exchange import bucket_of
from syncline.lake.roots import Lake
from syncline.lake.stages.sdsp import FRAMES
from syncline.lake.tables import BUCKET
from syncline.protocols.sdsp.deltas import Deltas
from syncline.protocols.sdsp.rebuild import Problem, State
from syncline.protocols.sdsp.rebuild import object_at as fold_to
from syncline.protocols.sdsp.wire import Frame, decode


def object_at(lake: Lake, uid: str, serial: int) -> State:
    """The object as it was after the frame `serial`. Raises MissingError if the frames to tell it have not landed, and
    SynclineError if they make no object.
    """
    delta = open_delta(lake.table(FRAMES.name))
    frames = [] if delta is None else frames_of(lake, delta, uid, serial)
    if not any(frame.serial == serial for frame in frames):
        raise MissingError("no such frame has landed", hint="run `syncline lake run`", about=f"{uid} {serial}")
    found = fold_to(serial, frames, Deltas.installed())
    if isinstance(found, Problem):
        raise SynclineError(f"{found.cause.value}: {found.detail}", about=f"{uid} {found.serial}")
    return found


def frames_of(lake: Lake, delta: DeltaTable, uid: str, upto: int) -> list[Frame]:
    """The frames of one object from the newest full one that `upto` builds on. Touches one bucket, and of its files only
    the parts that may hold the object.
    """
    buckets = int(delta.metadata().configuration[BUCKETS_PROPERTY] or 1)
    wanted = [(BUCKET, "=", str(bucket_of(uid, buckets)))]
    root = lake.table(FRAMES.name)
    paths = [uri.removeprefix(root.url).lstrip("/") for uri in delta.file_uris(file_pruning_predicate=wanted)]
    if not paths:
        return []
    dataset = ds.dataset(
        paths, schema=FRAMES.file_schema, format="parquet", filesystem=root.filesystem(), partitioning=None
    )
    of_object = pc.field("uid") == uid
    heads = dataset.to_table(columns=["serial", "ver"], filter=of_object & (pc.field("serial") == upto))
    if heads.num_rows == 0:
        return []
    base = upto - pc.max(heads["ver"]).as_py()
    chain = dataset.to_table(
        columns=["frame"], filter=of_object & (pc.field("serial") >= base) & (pc.field("serial") <= upto)
    )
    return [decode(raw) for raw in chain["frame"].cast(pa.binary()).to_pylist()]


def as_json(state: State) -> dict[str, Any]:
    """A state as commands print it; a binary object as base64."""
    found: dict[str, Any] = msgspec.to_builtins(
        {"uid": state.uid, "serial": state.serial, "ver": state.ver, "kind": state.kind, "status": state.status}
    )
    return {**found, "value": msgspec.to_builtins(state.value)}
