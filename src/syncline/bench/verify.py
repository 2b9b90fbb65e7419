"""Scenario `verify`: Ed25519 signatures of Space Data messages checked by Spark on two cores, from Parquet, against
twice what one thread of libsodium does with the same messages in memory.

One in a hundred is forged; both sides must find exactly those.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from nacl import bindings as sodium
from nacl.exceptions import BadSignatureError

from syncline.bench.report import case, growth, report, timed
from syncline.core.keys import NodeKey
from syncline.lake.session import SessionOptions, start_session
from syncline.lake.transforms import signature_checked
from syncline.protocols.sds.rules import signed_publish
from syncline.protocols.sds.wire import signed_bytes
from syncline.testing.segments import DAY_ZERO

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS: Final = 400_000  # enough that the third of a second in which Spark starts a job is not what is measured
CORES: Final = 2
FILES: Final = 4
BATCH: Final = 2_000  # rows; Spark fills the next batch while one is checked
REPEATS: Final = 3
FORGED_EVERY: Final = 100
PAYLOAD: Final = 400  # bytes, about an OMM


def run(scale: float = 1.0) -> dict[str, Any]:
    """Check `scale` times four hundred thousand signatures, and a quarter and a sixteenth of them."""
    spark = start_session(SessionOptions(master=f"local[{CORES}]"))
    spark.conf.set("spark.sql.files.minPartitionNum", FILES)  # small tasks, so that no core waits for the other
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", BATCH)
    rows = _messages(max(int(ROWS * scale), 1_600))
    sizes = [len(rows) // 16, len(rows) // 4, len(rows)]
    with tempfile.TemporaryDirectory() as folder:
        checks = [_checking(spark, Path(folder) / str(size), rows.slice(0, size)) for size in sizes]
        seconds = [min(check() for _ in range(REPEATS)) for check in checks]  # the last one also warms up
        pieces, single = _pieces(rows), list[float]()
        for _ in range(REPEATS):  # in turns, so that noise meets both
            single.append(timed(lambda: _one_thread(pieces))[0])
            seconds[-1] = min(seconds[-1], checks[-1]())
    ours, peer = sizes[-1] / seconds[-1], CORES * sizes[-1] / min(single)
    found = case(
        "Ed25519, Parquet to verdicts", ours, peer, f"{CORES} × one libsodium thread", "signatures/s",
        ratio=ours / peer, bar=0.85,
    )  # fmt: skip
    return report("verify", [found], growth=growth("verify", "rows", sizes, seconds))


def _messages(count: int) -> pa.Table:
    rng = random.Random(1)
    keys = [NodeKey(rng.randbytes(32)) for _ in range(50)]
    columns: dict[str, list[bytes]] = {"public_key": [], "signature": [], "signed": []}
    for number in range(count):
        key = keys[number % len(keys)]
        message = signed_publish(
            key, schema="OMM", payload=rng.randbytes(PAYLOAD), message_id=f"message-{number}", now=DAY_ZERO
        )
        columns["public_key"].append(key.public)
        columns["signature"].append(message.signature)
        columns["signed"].append(signed_bytes(message) + (b"!" if number % FORGED_EVERY == 0 else b""))
    return pa.table(columns)


def _forged(count: int) -> int:
    return -(-count // FORGED_EVERY)


def _checking(spark: SparkSession, folder: Path, rows: pa.Table) -> Callable[[], float]:
    """Lays the messages out; what is returned has Spark check them, and tells how many seconds that took."""
    folder.mkdir()
    each = -(-rows.num_rows // FILES)
    for number in range(FILES):
        pq.write_table(rows.slice(number * each, each), folder / f"{number}.parquet")
    frame = spark.read.parquet(str(folder)).transform(signature_checked(keep=()))
    forged = _forged(rows.num_rows)

    def check() -> float:
        seconds, found = timed(lambda: frame.groupBy("holds").count().collect())  # a new plan: an old one is kept warm
        assert {row["holds"]: row["count"] for row in found} == {
            False: forged,
            True: rows.num_rows - forged,
        }, "exactly the forged must be found"
        return seconds

    return check


def _pieces(rows: pa.Table) -> list[tuple[bytes, bytes]]:
    """The messages as libsodium likes them best: signature and message in one piece."""
    columns = (rows[name].to_pylist() for name in ("public_key", "signature", "signed"))
    return [(public, signature + signed) for public, signature, signed in zip(*columns, strict=True)]


def _one_thread(pieces: list[tuple[bytes, bytes]]) -> None:
    bad = 0
    for public, piece in pieces:
        try:
            sodium.crypto_sign_open(piece, public)
        except BadSignatureError:
            bad += 1
    assert bad == _forged(len(pieces))
