"""A sync being answered: everything received since a time that the peer's bloom filter does not say it holds.

Sent in parts as it is found, so its length is bounded by the stream, not by memory.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from syncline.core import limits
from syncline.core.ports import RecordQuery
from syncline.core.record import Record
from syncline.protocols.sds.bloom import Bloom
from syncline.protocols.sds.catalogue import plain_name
from syncline.protocols.sds.rules import PROTOCOL, parse_time, topic_of
from syncline.protocols.sds.session.scan import held_of, size_of
from syncline.protocols.sds.wire import Held, Sync, SyncResponse, encode


class SyncScan:
    """Implements `Scan` for one SDSSync. Raises DecodeError at once for one that cannot be answered."""

    is_live = False

    def __init__(self, sync: Sync, *, network: str, schemas: Collection[str]) -> None:
        self.sync = sync
        self.request_id = sync.sync_id
        wanted = {plain_name(name) for name in sync.schemas} or set(schemas)
        self._topics = {topic_of(network, name) for name in wanted}
        # SYNC: `since` is a time of the responder's own clock, when it received a record.
        self._since = parse_time(sync.since, "since") if sync.since else None
        self._bloom = Bloom.read(sync.bloom_filter, sync.bloom_hash_count)
        self._cursor = 0
        self._part: list[Held] = []
        self._bytes = 0
        self._done = False

    def wants(self) -> RecordQuery | None:
        if self._done:
            return None
        return RecordQuery(
            protocol=PROTOCOL,
            topic=next(iter(self._topics)) if len(self._topics) == 1 else None,
            verdict="accept",
            received_from=self._since,
            after=self._cursor,
            limit=limits.SDS_SCAN_PAGE,
            raw_bytes=limits.SDS_SCAN_BYTES,
        )

    def feed(self, records: Sequence[Record], now: float) -> list[bytes]:
        frames = []
        asked = self.wants()
        for record in self._missing(records):
            held = held_of(record)
            if self._part and (
                self._bytes + size_of(held) > limits.SDS_PAGE_BYTES or len(self._part) == limits.SDS_PAGE_RECORDS
            ):
                frames.append(self._flush(has_more=True))
            self._part.append(held)
            self._bytes += size_of(held)
        if asked is not None and asked.cuts_off(records):
            self._cursor = records[-1].lsn
        else:
            self._done = True
            frames.append(self._flush(has_more=False))
        return frames

    def _missing(self, records: Sequence[Record]) -> list[Record]:
        wanted = [record for record in records if record.topic in self._topics and record.raw is not None]
        if self._bloom is None:
            return wanted
        held = self._bloom.holding([record.id for record in wanted])
        return [record for record, is_held in zip(wanted, held, strict=True) if not is_held]

    def _flush(self, *, has_more: bool) -> bytes:
        frame = encode(SyncResponse(sync_id=self.sync.sync_id, records=tuple(self._part), has_more=has_more))
        self._part, self._bytes = [], 0
        return frame
