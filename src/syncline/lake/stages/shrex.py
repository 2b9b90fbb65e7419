"""ShrEx in the lake: notifications and headers once each, which join on the height, and what peers were worth asking.

Judging and decoding are the protocol's own. That a notification has the hash of its header is checked again by the join:
`SELECT * FROM shrex_notifications n JOIN headers h USING (height) WHERE n.data_hash <> h.data_hash` must find nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from syncline.core.errors import DecodeError
from syncline.core.verdict import Outcome
from syncline.formats.records import SEQ, TIMESTAMP
from syncline.lake.gaps import gaps_rule
from syncline.lake.stages import RECORD, Examined, History, KeyedRule, Known, ProtocolStages, StateRule
from syncline.lake.tables import BUCKET, Column, Table, bucket_column, record_columns
from syncline.protocols.shrex.columns import decode_messages
from syncline.protocols.shrex.rules.judge import PROTOCOL
from syncline.protocols.shrex.wire import header as headers
from syncline.protocols.shrex.wire import result as results

NOTIFICATIONS: Final = Table(
    name="shrex_notifications",
    doc="Every notice that a block's data is available, once, however many nodes heard it.",
    mode="keyed",
    columns=(
        Column("height", SEQ, "the block's height", nullable=False),
        Column("data_hash", pa.string(), "root of its data, as hex", nullable=False),
        *record_columns("publisher", "topic", "id", "peer", "received_at", "node", "epoch", "lsn"),
        bucket_column(),
    ),
    partition_by=(BUCKET,),
    key="data_hash",
    identity=("id", "height", "data_hash"),  # one who signs two notices under one number is to be seen
    span="height",
    sort_by=("height",),
    statistics=("height", "publisher", "received_at"),
    plain=("id",),
)

HEADERS: Final = Table(
    name="headers",
    doc="Block headers that a node verified: linked, hash by hash, to one it trusts.",
    mode="keyed",
    columns=(
        Column("chain_id", pa.string(), "the chain", nullable=False),
        Column("height", SEQ, "the block's height", nullable=False),
        Column("hash", pa.string(), "the header's own hash, recomputed, as hex", nullable=False),
        Column("last_hash", pa.string(), "hash of the header before it; empty for the first", nullable=False),
        Column("data_hash", pa.string(), "root of the block's data, as hex", nullable=False),
        Column("time", TIMESTAMP, "when the block was made", nullable=False, unit="µs, UTC"),
        *record_columns("received_at", "node", "epoch", "lsn"),
        bucket_column(),
    ),
    partition_by=(BUCKET,),
    key="chain_id",
    identity=("hash",),
    span="height",
    sort_by=("height",),
    statistics=("height", "time"),
)

RESULTS: Final = Table(
    name="shrex_results",
    doc="What became of each request for a block's data.",
    mode="keyed",
    columns=(
        *record_columns("peer"),
        Column("height", SEQ, "the block asked for", nullable=False),
        Column("data_hash", pa.string(), "root of its data, as hex", nullable=False),
        Column("result", pa.string(), "noop, cooldown or blacklist", nullable=False),
        Column(
            "source",
            pa.string(),
            "pool: the peer had announced the block; nodes: it had announced others",
            nullable=False,
        ),
        *record_columns("id", "received_at", "node", "epoch", "lsn"),
        bucket_column(),
    ),
    partition_by=(BUCKET,),
    key="peer",
    identity=("id",),
    span="height",
    sort_by=("peer", "received_at"),
    statistics=("peer", "received_at"),
    plain=("id",),
)

PEERS: Final = Table(
    name="shrex_peers",
    doc="How well each peer served what was asked of it.",
    mode="state",
    columns=(
        Column("peer", pa.string(), "PeerID", nullable=False),
        Column("requests", pa.int64(), "how often it was asked", nullable=False),
        Column("noop", pa.int64(), "how often without complaint", nullable=False),
        Column("cooldown", pa.int64(), "how often it could not serve", nullable=False),
        Column("blacklist", pa.int64(), "how often it served wrongly", nullable=False),
        Column("quality", pa.float64(), "share of requests without complaint", nullable=False),
        Column("last_height", SEQ, "the highest block it was asked for", nullable=False),
        Column("last_at", TIMESTAMP, "when it was asked last", nullable=False, unit="µs, UTC"),
        bucket_column(),
    ),
    partition_by=(BUCKET,),
    key="peer",
    identity=("peer",),
    sort_by=("peer",),
    statistics=("peer", "quality"),
)

_COUNTED: Final = ("peer", "id", "result", "height", "received_at")


def examine(records: pa.Table) -> Examined:
    """Judge and decode by the bytes, each kind in its own way."""
    count = records.num_rows
    outcomes: list[str | None] = [None] * count
    reasons: list[str | None] = [None] * count
    kinds = _whole(records["kind"])
    notifications = _notifications(records, np.flatnonzero(pc.equal(kinds, "notification")), outcomes, reasons)
    found = {
        "header": _Rows(HEADERS, _header, ("chain_id", "height", "hash", "last_hash", "data_hash", "time")),
        "peer_result": _Rows(RESULTS, _result, ("height", "data_hash", "result", "source")),
    }
    raws = records["raw"]
    for kind, rows in found.items():
        for position in np.flatnonzero(pc.equal(kinds, kind)).tolist():
            raw = raws[position].as_py()
            if raw is not None:
                outcomes[position], reasons[position] = rows.add(position, raw)
    return Examined(
        pa.array(outcomes, pa.string()),
        pa.array(reasons, pa.string()),
        {
            NOTIFICATIONS.name: notifications,
            HEADERS.name: found["header"].table(),
            RESULTS.name: found["peer_result"].table(),
        },
    )


def _notifications(
    records: pa.Table, positions: Any, outcomes: list[str | None], reasons: list[str | None]
) -> pa.Table:
    chosen = records.select(["raw", "topic"]).take(pa.array(positions, pa.int64()))
    found = decode_messages(_whole(chosen["raw"]), _whole(chosen["topic"]))
    for position, outcome, reason in zip(
        positions.tolist(), found["outcome"].to_pylist(), found["reason"].to_pylist(), strict=True
    ):
        outcomes[position], reasons[position] = outcome, reason
    accepted = pc.fill_null(pc.equal(found["outcome"], Outcome.ACCEPT.value), False)
    rows = found.filter(accepted)
    hashes = [data_hash.hex() for data_hash in rows["data_hash"].to_pylist()]
    return pa.table(
        {
            RECORD: pa.array(positions, pa.int64()).filter(accepted),
            "height": rows["height"].cast(SEQ),
            "data_hash": pa.array(hashes, pa.string()),
        }
    )


class _Rows:
    """Rows of one table, read one by one."""

    def __init__(self, table: Table, read: Callable[[bytes], dict[str, Any]], names: tuple[str, ...]) -> None:
        fields = [pa.field(name, table.schema.field(name).type) for name in names]
        self._schema = pa.schema([pa.field(RECORD, pa.int64()), *fields])
        self._read = read
        self._rows: list[dict[str, Any]] = []

    def add(self, position: int, raw: bytes) -> tuple[str, str | None]:
        """Read a record; returns its content verdict and reason."""
        try:
            row = self._read(raw)
        except DecodeError as error:
            return error.verdict.outcome.value, error.reason.value
        self._rows.append({RECORD: position, **row})
        return Outcome.ACCEPT.value, None

    def table(self) -> pa.Table:
        return pa.Table.from_pylist(self._rows, schema=self._schema)


def _header(raw: bytes) -> dict[str, Any]:
    header = headers.decode(raw)
    return {
        "chain_id": header.chain_id,
        "height": Decimal(header.height),
        "hash": header.hash.hex(),
        "last_hash": header.last_block_hash.hex(),
        "data_hash": header.data_hash.hex(),
        "time": header.microseconds,
    }


def _result(raw: bytes) -> dict[str, Any]:
    result = results.decode(raw)
    return {
        "height": Decimal(result.height),
        "data_hash": result.data_hash,
        "result": result.result.value,
        "source": result.source,
    }


def fold_peers(old: pa.Table, new: pa.Table, history: History) -> pa.Table:
    """The peers after these results. Counted anew from all of a peer's results, so that none counts twice."""
    names = sorted(set(new["peer"].to_pylist()))
    rows = pa.concat_tables([new.select(_COUNTED), history(names).select(_COUNTED)])
    once = rows.group_by(["peer", "id"], use_threads=False).aggregate(
        [("result", "min"), ("height", "max"), ("received_at", "max")]
    )
    by_result = once.group_by(["peer", "result_min"], use_threads=False).aggregate([([], "count_all")])
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    for peer, result, count in zip(*(column.to_pylist() for column in by_result.columns), strict=True):
        counts[peer][result] = count
    newest = once.group_by("peer", use_threads=False).aggregate([("height_max", "max"), ("received_at_max", "max")])
    found = [
        _peer(peer, counts[peer], height, at)
        for peer, height, at in zip(*(column.to_pylist() for column in newest.columns), strict=True)
    ]
    return pa.Table.from_pylist(found, schema=PEERS.file_schema)


def _peer(name: str, counts: Counter[str], height: Decimal, at: Any) -> dict[str, Any]:
    return {
        "peer": name,
        "requests": counts.total(),
        "noop": counts["noop"],
        "cooldown": counts["cooldown"],
        "blacklist": counts["blacklist"],
        "quality": counts["noop"] / counts.total(),
        "last_height": height,
        "last_at": at,
    }


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)


STAGES: Final = ProtocolStages(
    protocol=PROTOCOL,
    examine=examine,
    keyed=(KeyedRule(NOTIFICATIONS), KeyedRule(HEADERS), KeyedRule(RESULTS)),
    states=(
        StateRule(PEERS, RESULTS.name, fold_peers, columns=_COUNTED),
        gaps_rule(HEADERS, series="chain_id", number="height", what="height"),
    ),
)


def stages(known: Known) -> ProtocolStages:
    """Nothing beside the bytes is needed to judge them."""
    return STAGES
