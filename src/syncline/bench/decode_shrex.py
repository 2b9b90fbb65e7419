"""The ShrEx case of `decode-frames`: signed notifications into columns, against protobuf's own decoder for each row.

Neither side checks signatures, which cost the same everywhere (`verify` measures those); both give the same columns.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

import pyarrow as pa

from syncline.bench.report import best, case
from syncline.core.errors import MissingError
from syncline.core.keys import NodeKey
from syncline.formats.protobuf import bytes_field
from syncline.formats.pubsub import compose
from syncline.protocols.shrex.columns import decode_messages
from syncline.protocols.shrex.wire.notification import TOPIC, Notification, encode

BRIDGES: Final = 50
REPEATS: Final = 5
SEED: Final = 20_26
_COMPARED: Final = ["author", "seqno", "height", "data_hash"]


def shrex(batches: int, rows: int) -> dict[str, Any]:
    """Notifications as bridges send them, two of three with their key field, against upb `FromString` for each row."""
    work = [batch(rows, SEED + number) for number in range(batches)]
    topics = pa.array([TOPIC] * rows)
    message, notification = _classes()
    ours, found = best(REPEATS, lambda: [decode_messages(raws, topics, signatures=False) for raws in work])
    peer, expected = best(REPEATS, lambda: [_rows(raws, message, notification) for raws in work])
    assert [each.select(_COMPARED) for each in found] == expected, "both sides must read the same"
    count = rows * batches
    return case(
        "ShrEx signed notifications",
        count / ours,
        count / peer,
        "protobuf upb FromString per row",
        "messages/s",
        bar=5.0,
        ratio=peer / ours,
    )


def batch(count: int, seed: int = SEED) -> pa.Array:
    rng = Random(seed)
    keys = [NodeKey(rng.randbytes(32)) for _ in range(BRIDGES)]
    raws = []
    for number in range(count):
        key, height = keys[number % BRIDGES], 7_000_000 + number // BRIDGES
        raw = compose(key, TOPIC, encode(Notification(height, rng.randbytes(32))), 1_794_700_000 * 10**9 + number)
        raws.append(raw + bytes_field(6, bytes.fromhex("08011220") + key.public) if number % 3 else raw)
    return pa.array(raws, pa.binary())


def _rows(raws: pa.Array, message: Any, notification: Any) -> pa.RecordBatch:
    """What one would write without this package: a loop over rows, two messages each, lists, then Arrow."""
    authors, numbers, heights, hashes = [], [], [], []
    for raw in raws.to_pylist():
        outer = message.FromString(raw)
        inner = notification.FromString(outer.data)
        authors.append(outer.author[6:])
        numbers.append(int.from_bytes(outer.seqno, "big"))
        heights.append(inner.height)
        hashes.append(inner.data_hash)
    columns = [
        pa.array(authors, pa.binary(32)),
        pa.array(numbers, pa.uint64()),
        pa.array(heights, pa.uint64()),
        pa.array(hashes, pa.binary(32)),
    ]
    return pa.RecordBatch.from_arrays(columns, names=_COMPARED)


def _classes() -> tuple[Any, Any]:
    """Message classes of the C implementation, made without generated code."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise MissingError("this benchmark needs protobuf", hint="pip install 'syncline[dev]'") from None
    file = descriptor_pb2.FileDescriptorProto(name="bench.proto", package="bench", syntax="proto3")
    kinds = {"bytes": 12, "string": 9, "uint64": 4}
    outer = [("author", "bytes"), ("data", "bytes"), ("seqno", "bytes"), ("topic", "string"), ("signature", "bytes")]
    for name, fields in (
        ("Message", [*outer, ("key", "bytes")]),
        ("Notification", [("height", "uint64"), ("data_hash", "bytes")]),
    ):
        made = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields, 1):
            made.field.add(name=field, number=number, type=kinds[kind], label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = [pool.FindMessageTypeByName(f"bench.{name}") for name in ("Message", "Notification")]
    message, notification = map(message_factory.GetMessageClass, found)
    return message, notification
