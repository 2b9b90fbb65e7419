"""`df.writeStream.format("syncline")`: each row is one message on the network, however often Spark tries."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row
from pyspark.sql.types import StructType

from syncline.core.errors import UsageError
from syncline.core.ports import RecordQuery
from syncline.lake.source.publish import Published, Publisher
from syncline.networks.node_client import NodeClient
from tests.lake.source.conftest import MakeNode
from tests.nodes import NodeThread

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def texts(node: NodeThread) -> list[str]:
    return [json.loads(record.raw or b"")["text"] for record in node.node.journal.read(RecordQuery(limit=1_000))]


def rows_of(folder: Path, name: str, *rows: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def publish(spark: Any, folder: Path, schema: str, **options: str) -> None:
    """Everything in the folder that was not published yet, in one batch."""
    stream = spark.readStream.schema(schema).json(str(folder / "rows")).coalesce(1)
    writer = stream.writeStream.format("syncline").option("checkpointLocation", str(folder / "checkpoint"))
    writer.options(protocol="chirp", **options).trigger(availableNow=True).start().awaitTermination(120)


def forget_commits(folder: Path) -> None:
    """As if Spark had been killed after the batch was published and before it was noted."""
    shutil.rmtree(folder / "checkpoint" / "commits")


def test_a_batch_that_is_run_again_publishes_nothing_twice(spark: Any, make_node: MakeNode, tmp_path: Path) -> None:
    node = make_node()
    rows_of(tmp_path / "rows", "1", *({"text": f"chirp {number}"} for number in range(20)))
    publish(spark, tmp_path, "text string", node=node.url)
    expected = [f"chirp {number}" for number in range(20)]
    assert sorted(texts(node)) == sorted(expected)
    forget_commits(tmp_path)
    publish(spark, tmp_path, "text string", node=node.url)
    assert sorted(texts(node)) == sorted(expected)
    rows_of(tmp_path / "rows", "2", {"text": "chirp 3"})
    publish(spark, tmp_path, "text string", node=node.url)
    assert texts(node)[20:] == ["chirp 3"], "the same words in a later batch are another message"


def test_a_batch_that_stopped_half_way_is_completed(spark: Any, make_node: MakeNode, tmp_path: Path) -> None:
    node = make_node()
    rows_of(tmp_path / "rows", "1", {"text": "a"}, {"text": "b"}, {"text": None}, {"text": "d"})
    with pytest.raises(StreamingQueryException, match="takes a text"):
        publish(spark, tmp_path, "text string", node=node.url)
    assert texts(node) == ["a", "b"]
    publish(spark, tmp_path, "text string", node=node.url, onRefusal="skip")
    assert texts(node) == ["a", "b", "d"]


def test_a_row_may_be_a_whole_request_and_bring_its_own_key(spark: Any, make_node: MakeNode, tmp_path: Path) -> None:
    node = make_node()
    schema = "value string, idempotency_key string"
    rows = [{"value": json.dumps({"text": "a"}), "idempotency_key": key} for key in ("k1", "k2", "k1")]
    rows_of(tmp_path / "rows", "1", *rows)
    publish(spark, tmp_path, schema, node=node.url)
    assert texts(node) == ["a", "a"]


def test_only_a_streaming_query_publishes(make_node: MakeNode) -> None:
    writer = Publisher({"node": make_node().url, "protocol": "chirp"}, StructType().add("text", "string"))
    with pytest.raises(UsageError, match="only a streaming query"):
        writer.write(iter([Row(text="a")]))


def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="no protocol"):
        Publisher({"node": "http://a"}, StructType())
    with pytest.raises(UsageError, match="one node publishes"):
        Publisher({"nodes": "http://a,http://b", "protocol": "chirp"}, StructType())


def test_a_row_that_is_no_request_is_a_refusal_like_any_other(make_node: MakeNode) -> None:
    node, schema = make_node(), StructType().add("value", "string")
    row, done = Row(value="[1]"), Published()
    with NodeClient(node.url) as client:
        with pytest.raises(UsageError, match="not a JSON object"):
            Publisher({"node": node.url, "protocol": "chirp"}, schema)._publish(client, row, "batch", done)
        skipping = Publisher({"node": node.url, "protocol": "chirp", "onrefusal": "skip"}, schema)
        skipping._publish(client, row, "batch", done)
        skipping._publish(client, Row(value='{"text": "a"}'), "batch", done)
    assert (done.refused, done.published, texts(node)) == (1, 1, ["a"])
