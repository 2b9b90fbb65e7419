"""Signatures by the column give the verifier's own answers, here and on Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from syncline.core.keys import NodeKey
from syncline.lake.signatures import signatures_hold
from syncline.lake.transforms import signature_checked

KEY, OTHER = NodeKey(b"\1" * 32), NodeKey(b"\2" * 32)
ROWS = [
    (KEY.public, KEY.sign(b"one"), b"one", True),
    (OTHER.public, KEY.sign(b"one"), b"one", False),
    (KEY.public, KEY.sign(b"one"), b"two", False),
    (KEY.public, b"short", b"one", False),
    (b"", KEY.sign(b""), b"", False),
    (KEY.public, KEY.sign(b""), b"", True),
    (None, KEY.sign(b"one"), b"one", None),
    (KEY.public, None, b"one", None),
    (KEY.public, KEY.sign(b"one"), None, None),
]


def test_each_row_has_its_own_answer() -> None:
    public, signature, signed = (pa.array(list(column), pa.binary()) for column in list(zip(*ROWS, strict=True))[:3])
    assert signatures_hold(public, signature, signed).to_pylist() == [row[3] for row in ROWS]


@pytest.mark.spark
def test_spark_adds_the_answer_to_the_rows_as_they_are(spark: Any) -> None:
    rows = [(number, *row[:3]) for number, row in enumerate(ROWS)]
    frame = spark.createDataFrame(rows, "n long, key binary, seal binary, data binary")
    checked = frame.transform(signature_checked("key", "seal", "data"))
    assert checked.columns == ["n", "key", "seal", "data", "holds"]
    assert [row.holds for row in checked.orderBy("n").collect()] == [row[3] for row in ROWS]
    few = frame.transform(signature_checked("key", "seal", "data", keep=["n"])).orderBy("n")
    assert [tuple(row) for row in few.collect()] == [(number, row[3]) for number, row in enumerate(ROWS)]
