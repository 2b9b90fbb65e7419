"""Relay messages in the lake: the same verdicts as the node's, and one row each."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from syncline.core.record import Incoming, Record
from syncline.formats.records import to_arrow
from syncline.lake.stages.relay import MESSAGES, examine
from syncline.protocols.relay.rules.messages import RelayJudge
from syncline.protocols.relay.wire.messages import NetworkMessage, encode
from tests.relays import topic_of

NEWS = topic_of("news")
NOW = 1_794_700_000_000_000


def record(lsn: int, raw: bytes, *, kept: bool = True) -> Record:
    incoming = Incoming(protocol="relay", topic=NEWS, raw=raw, peer="did:key:z6Mk", received_at=NOW)
    arrival = RelayJudge()(incoming)
    fields = {name: getattr(arrival, name) for name in arrival.__struct_fields__}
    return Record(node="12D3", epoch="0" * 16, lsn=lsn, **{**fields, "raw": raw if kept else None})


def message(**changes: Any) -> bytes:
    fields = {"tag": 1_108, "prompt": True, "timestamp": NOW // 1_000, "ttl": 300, "message": b"hello"}
    return encode(NetworkMessage(**{**fields, **changes}))


def test_the_lake_judges_as_the_node_did_and_decodes_what_is_good() -> None:
    records = [
        record(1, message()),
        record(2, b"rubbish"),
        record(3, message(ttl=86_401)),
        record(4, message(), kept=False),
        record(5, message(tag=7, prompt=False, message="ключ".encode())),
    ]
    found = examine(pa.Table.from_batches([to_arrow(records)]))
    assert found.outcome.to_pylist() == ["accept", "reject", "reject", None, "accept"]
    assert found.reason.to_pylist() == [None, "malformed", "invalid_field", None, None]
    assert found.rows[MESSAGES.name].to_pylist() == [
        {"record": 0, "message": "hello", "tag": 1_108, "prompt": True, "ttl": 300, "version": 2},
        {"record": 4, "message": "ключ", "tag": 7, "prompt": False, "ttl": 300, "version": 1},
    ]


def test_an_empty_batch_gives_no_rows() -> None:
    found = examine(pa.Table.from_batches([to_arrow([])]))
    assert (len(found.outcome), found.rows[MESSAGES.name].num_rows) == (0, 0)
