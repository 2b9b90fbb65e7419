"""Segments for the lake's benchmarks, made column by column: a million records in seconds."""

from __future__ import annotations

import datetime
import random
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from syncline.formats.records import RECORD_SCHEMA
from syncline.formats.segments import SegmentInfo, SegmentName
from syncline.testing.segments import DAY_ZERO, FakeJournal, write_segment

PER_SEGMENT: Final = 50_000


def write_plain(folder: Path, count: int, seed: int = 1) -> None:
    """Records of a protocol without stages, with 200 to 600 bytes of text-like payload each."""
    rng = random.Random(seed)
    words = [rng.randbytes(4).hex() for _ in range(5_000)]
    raws = [
        (" ".join(rng.choices(words, k=rng.randint(25, 65)))).encode() for _ in range(min(count, 20_000))
    ]  # repeated, but far apart: zstd's window does not see it
    write(
        folder, "plain", [raws[index % len(raws)] for index in range(count)], [f"key-{i % 997}" for i in range(count)]
    )


def write_frames(folder: Path, frames: int, objects: int, seed: int = 1) -> None:
    """SDSP frames of JSON objects: a full frame first, then JSON Patch deltas of one to three operations."""
    raws: list[bytes] = []
    keys: list[str] = []
    rng = random.Random(seed)
    for serial in range(frames // objects):
        for number in range(objects):
            uid = f"0190f5fe-7a3c-7c10-8000-{number:012d}"
            raws.append(_full(uid, number) if serial == 0 else _delta(uid, serial, rng))
            keys.append(uid)
    write(folder, "sdsp", raws, keys)


def write(folder: Path, protocol: str, raws: Sequence[bytes], keys: Sequence[str]) -> None:
    """Seal these raw bytes as one node's accepted records."""
    journal = FakeJournal("bench")
    for start in range(0, len(raws), PER_SEGMENT):
        _write(
            folder, protocol, journal, start + 1, raws[start : start + PER_SEGMENT], keys[start : start + PER_SEGMENT]
        )


def _full(uid: str, number: int) -> bytes:
    value = {
        "name": f"object {number}",
        "n": 0,
        "position": {"x": 1.5, "y": -2.25},
        "tags": ["a", "b"],
        "note": "x" * 40,
    }
    return msgspec.json.encode({"uid": uid, "serial": 0, "data": value})


def _delta(uid: str, serial: int, rng: random.Random) -> bytes:
    operations = [{"op": "replace", "path": "/n", "value": serial}]
    if serial % 2:
        operations.append({"op": "replace", "path": "/position/x", "value": rng.random()})
    if serial % 5 == 0:
        operations.append({"op": "add", "path": "/tags/-", "value": f"t{serial}"})
    if serial % 5 == 3:
        operations.append({"op": "remove", "path": "/tags/0"})
    return msgspec.json.encode({"uid": uid, "serial": serial, "ver": serial, "alg": "jp", "delta": operations})


def _write(
    folder: Path, protocol: str, journal: FakeJournal, first: int, raws: Sequence[bytes], keys: Sequence[str]
) -> None:
    count = len(raws)
    lsns = np.arange(first, first + count)
    stamps = pa.array(DAY_ZERO + lsns * 1_000, pa.int64()).cast(RECORD_SCHEMA.field("received_at").type)
    known = {
        "lsn": pa.array(lsns, pa.int64()),
        "received_at": stamps,
        "raw": pa.array(raws, pa.binary()),
        "id": pa.array([b"%020d" % lsn for lsn in lsns.tolist()], pa.binary()),
        "key": pa.array(keys, pa.string()),
        "seq": pa.array([Decimal(lsn) for lsn in lsns.tolist()], RECORD_SCHEMA.field("seq").type),
    }
    constant = {
        "node": journal.node,
        "epoch": journal.epoch,
        "protocol": protocol,
        "direction": "in",
        "topic": "bench",
        "kind": "frame",
        "publisher": "",
        "peer": "neighbour",
        "verdict": "accept",
    }
    arrays = [
        known[field.name] if field.name in known else pa.repeat(pa.scalar(constant.get(field.name), field.type), count)
        for field in RECORD_SCHEMA
    ]
    last = first + count - 1
    day = datetime.datetime.fromtimestamp(DAY_ZERO / 1e6, datetime.UTC).date().isoformat()
    name = SegmentName(journal.node, journal.epoch, first, last, protocol, day)
    write_segment(
        folder, pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA), SegmentInfo.of(name, {name.path: count})
    )
