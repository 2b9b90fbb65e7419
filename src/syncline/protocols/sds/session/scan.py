"""Reading records step by step: a scan says what it wants to read, is fed what was found, and gives frames to send.

So a long answer never holds the node: between two steps the driver sends, yields, and looks at the clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from syncline.core.ports import RecordQuery
from syncline.core.record import Record
from syncline.protocols.sds import columns
from syncline.protocols.sds.filters import Row
from syncline.protocols.sds.rules import held, published
from syncline.protocols.sds.wire import Held


class Older(msgspec.Struct, frozen=True):
    """Records that the journal no longer keeps: to be read from the archive, page after page, then an empty one."""

    query: RecordQuery


class Scan(Protocol):
    """One request that is being answered from records."""

    @property
    def request_id(self) -> str: ...

    @property
    def is_live(self) -> bool:
        """Whether it goes on for ever: a driver then waits for new records when a read comes back short."""
        ...

    def wants(self) -> RecordQuery | Older | None:
        """What to read next, or None when all is said."""
        ...

    def feed(self, records: Sequence[Record], now: float) -> list[bytes]:
        """What was found; the answer is frames to send, in order."""
        ...


def rows_of(schema: str, records: Sequence[Record], needed: frozenset[str]) -> list[Row]:
    """The columns that a condition or an order needs, of accepted records of one schema."""
    if not needed:
        return [{}] * len(records)
    raw = pa.array([record.raw for record in records], pa.binary())
    payloads = columns.message_columns(raw).batch.column("payload")
    found: list[dict[str, Any]] = columns.payload_columns(
        schema, payloads, sorted(needed), partial=True
    ).batch.to_pylist()
    return list(found)


def held_of(record: Record, *, with_signature: bool = True) -> Held:
    """An accepted record as an answer carries it."""
    assert record.raw is not None
    return held(published(record.raw), record.received_at, with_signature=with_signature)


def size_of(record: Held) -> int:
    """About how many bytes a record takes in an answer; never less than it does."""
    return len(record.data) + 4 * (len(record.message_id) + len(record.timestamp) + len(record.schema)) + 400
