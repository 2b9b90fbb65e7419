"""The relay network in the lake: every message once (`relay_messages`), however many servers it passed. Judging and
decoding are the protocol's own, a batch at a time.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from syncline.core.verdict import Outcome
from syncline.lake.stages import RECORD, Examined, KeyedRule, Known, ProtocolStages
from syncline.lake.tables import BUCKET, Column, Table, bucket_column, record_columns
from syncline.protocols.relay.columns import decode_messages
from syncline.protocols.relay.rules.messages import PROTOCOL

MESSAGES: Final = Table(
    name="relay_messages",
    doc="Every relay message once, however many servers it passed. A text published again after its time is another row.",
    mode="keyed",
    columns=(
        Column("message", pa.string(), "the text, opaque to relays", nullable=False),
        Column("tag", pa.int64(), "label that tells kinds of messages apart without reading them", nullable=False),
        Column("prompt", pa.bool_(), "whether it asked for the receiver's attention", nullable=False),
        Column("ttl", pa.int64(), "how long servers cache it", nullable=False, unit="s"),
        Column("version", pa.int32(), "1, or 2 if the tag is greater than 255", nullable=False),
        *record_columns("topic", "id", "publisher", "peer", "published_at", "expires_at", "received_at"),
        *record_columns("node", "epoch", "lsn"),
        bucket_column(),
    ),
    partition_by=(BUCKET,),
    key="topic",
    identity=("id", "published_at"),
    span="published_at",
    sort_by=("topic", "published_at"),
    statistics=("topic", "tag", "published_at", "received_at"),
    plain=("message", "id"),
)


def examine(records: pa.Table) -> Examined:
    """Judge and decode messages by their bytes."""
    raw, topic, received_at = (_whole(records[name]) for name in ("raw", "topic", "received_at"))
    found = decode_messages(raw, topic, received_at)
    accepted = pc.fill_null(pc.equal(found["outcome"], Outcome.ACCEPT.value), False)
    rows = pa.Table.from_batches([found.filter(accepted)])
    table = pa.table(
        {
            RECORD: pc.indices_nonzero(accepted).cast(pa.int64()),
            **{
                name: rows[name].cast(MESSAGES.schema.field(name).type)
                for name in ("message", "tag", "prompt", "ttl", "version")
            },
        }
    )
    return Examined(found["outcome"], found["reason"], {MESSAGES.name: table})


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)


STAGES: Final = ProtocolStages(protocol=PROTOCOL, examine=examine, keyed=(KeyedRule(MESSAGES),))


def stages(known: Known) -> ProtocolStages:
    """Nothing beside the bytes is needed to judge them."""
    return STAGES
