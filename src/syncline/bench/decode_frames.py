"""`decode-frames`: raw messages of the network protocols into Arrow columns, batch by batch, against a decoder per row.

Both sides check what they read and give the same columns, which is verified in the same run.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

import pyarrow as pa

from syncline.bench.decode_shrex import shrex
from syncline.bench.report import best, case, growth, report
from syncline.formats.ndn.names import parse
from syncline.formats.ndn.signing import Digest
from syncline.protocols.relay.columns import MESSAGE_SCHEMA, decode_messages
from syncline.protocols.relay.wire.messages import NetworkMessage, encode
from syncline.protocols.svs.columns import OUTER_SCHEMA, decode_outer, row_of
from syncline.protocols.svs.wire.publication import encapsulate

BATCH: Final = 10_000
BATCHES: Final = 10
REPEATS: Final = 5
SEED: Final = 20_26
NOW: Final = 1_794_700_000_000_000

Batch = tuple[pa.Array, pa.Array, pa.Array]


def run(scale: float = 1.0) -> dict[str, Any]:
    """Measure every protocol's case."""
    batches = max(1, round(BATCHES * scale))
    cases = [relay(batches), shrex(batches, BATCH), ndn(batches)]
    sizes = [BATCH // 16, BATCH // 4, BATCH]
    seconds = [best(REPEATS * 3, partial(_columns, [relay_batch(size)]))[0] for size in sizes]
    return report("decode-frames", cases, growth=growth("relay messages", "rows", sizes, seconds))


def relay(batches: int) -> dict[str, Any]:
    """Network messages, both versions, against `struct` for each row."""
    work = [relay_batch(BATCH, SEED + number) for number in range(batches)]
    ours, found = best(REPEATS, lambda: _columns(work))
    peer, expected = best(REPEATS, lambda: _rows(work))
    assert [batch.select(_COMPARED) for batch in found] == expected, "both sides must read the same"
    rows = BATCH * batches
    return case(
        "relay network messages",
        rows / ours,
        rows / peer,
        "struct per row",
        "messages/s",
        bar=3.0,
        ratio=peer / ours,
    )


def ndn(batches: int) -> dict[str, Any]:
    """Outer Data of SVS-PS groups, against the flat parser the node itself uses for each packet."""
    work = [ndn_batch(BATCH, SEED + number) for number in range(batches)]
    ours, found = best(REPEATS, lambda: [decode_outer(batch) for batch in work])
    peer, expected = best(2, lambda: [_ndn_rows(batch) for batch in work])
    assert found == expected, "both sides must read the same"
    rows = BATCH * batches
    return case(
        "NDN outer Data",
        rows / ours,
        rows / peer,
        "a flat parser per row",
        "packets/s",
        bar=7.0,
        ratio=peer / ours,
    )


def ndn_batch(count: int, seed: int = SEED) -> pa.Array:
    """Packets of fifty publishers: most publications are one packet, some are segmented."""
    rng = Random(seed)
    group, signer = parse("/ndn/room"), Digest()
    raws: list[bytes] = []
    while len(raws) < count:
        node, seq = parse(f"/node/{rng.randrange(50)}"), rng.randrange(1, 10**6)
        payload = rng.randbytes(rng.choice((60, 100, 200, 1_200)))
        name = parse(f"/chat/room-{rng.randrange(20)}/{seq}")
        raws += encapsulate(node, group, seq, name, payload, inner=signer, outer=signer, largest=500)
    return pa.array(raws[:count], pa.binary())


def _ndn_rows(batch: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([row_of(raw) for raw in batch.to_pylist()], schema=OUTER_SCHEMA)


_COMPARED: Final = ["version", "tag", "prompt", "timestamp", "ttl", "message"]


def relay_batch(count: int, seed: int = SEED) -> Batch:
    """Messages as wallets send them: tags of both versions, texts of 80 to 600 bytes."""
    rng = Random(seed)
    raws = []
    for _ in range(count):
        tag = rng.choice((0, 17, 1_100, 1_108, 1_109, 3_001))
        text = rng.randbytes(rng.randrange(40, 300)).hex().encode()
        prompt, stamp = rng.random() < 0.3, NOW // 1_000 - rng.randrange(60_000)
        raws.append(encode(NetworkMessage(tag=tag, prompt=prompt, timestamp=stamp, ttl=300, message=text)))
    topics = [f"{rng.getrandbits(256):064x}" for _ in range(50)]
    return (
        pa.array(raws, pa.binary()),
        pa.array([rng.choice(topics) for _ in range(count)], pa.string()),
        pa.array([NOW] * count, pa.int64()),
    )


def _columns(work: list[Batch]) -> list[pa.RecordBatch]:
    found = [decode_messages(*batch) for batch in work]
    assert all(batch["reason"].null_count == batch.num_rows for batch in found)
    return found


def _rows(work: list[Batch]) -> list[pa.RecordBatch]:
    """What one would write without this package: a loop over rows, `struct`, lists, then Arrow."""
    first, second = struct.Struct(">3sBB?QQQ"), struct.Struct(">3sBI?QQQ")
    return [_read(batch[0].to_pylist(), first, second, _add) for batch in work]


def _add(rows: list[tuple[Any, ...]], raw: bytes, layout: struct.Struct) -> None:
    prefix, version, tag, prompt, timestamp, ttl, length = layout.unpack_from(raw)
    if prefix != b"irn" or length != len(raw) - layout.size:
        raise ValueError("not a message")
    rows.append((version, tag, prompt, timestamp, ttl, raw[layout.size :].decode()))


def _read(
    raws: list[bytes],
    first: struct.Struct,
    second: struct.Struct,
    add: Callable[[list[tuple[Any, ...]], bytes, struct.Struct], None],
) -> pa.RecordBatch:
    rows: list[tuple[Any, ...]] = []
    for raw in raws:
        add(rows, raw, first if raw[3] == 1 else second)
    schema = pa.schema([MESSAGE_SCHEMA.field(name) for name in _COMPARED])
    columns = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
