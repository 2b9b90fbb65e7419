"""`spark.readStream.format("syncline")`: every record of every node once, whatever is stopped, limited or forgotten."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from syncline.core.errors import CorruptionError, UnreachableError, UsageError
from syncline.lake.source.feed import FeedReader, feed_schema
from tests.lake.source.conftest import MakeNode, chirp
from tests.nodes import NodeThread


def reader(*nodes: NodeThread, **options: str) -> FeedReader:
    return FeedReader({"nodes": ",".join(node.url for node in nodes), **options}, feed_schema())


def lsns(feed: FeedReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    return [
        lsn for part in feed.partitions(start, end) for batch in feed.read(part) for lsn in batch["lsn"].to_pylist()
    ]


def test_a_batch_is_the_records_between_two_offsets(make_node: MakeNode) -> None:
    node = make_node()
    chirp(node, *"abc")
    feed = reader(node)
    start = feed.initialOffset()
    middle = feed.latestOffset(start, ReadAllAvailable())
    chirp(node, *"de")
    end = feed.latestOffset(middle, ReadAllAvailable())
    assert start == {}
    assert [place["lsn"] for place in (*middle.values(), *end.values())] == [3, 5]
    assert (lsns(feed, start, middle), lsns(feed, middle, end)) == ([1, 2, 3], [4, 5])
    assert lsns(feed, start, middle) == [1, 2, 3], "again, although there is more now"
    assert feed.partitions(end, end) == []


def test_a_batch_may_be_bounded(make_node: MakeNode) -> None:
    node = make_node()
    chirp(node, *"abcde")
    feed = reader(node, maxrecords="2")
    offsets: list[dict[str, Any]] = [{}]
    for _ in range(4):
        offsets.append(feed.latestOffset(offsets[-1], feed.getDefaultReadLimit()))
    assert [lsns(feed, a, b) for a, b in pairwise(offsets)] == [[1, 2], [3, 4], [5], []]
    assert feed.getDefaultReadLimit() == ReadMaxRows(2)


def test_each_node_is_a_partition_and_one_that_is_away_holds_up_nobody(make_node: MakeNode) -> None:
    one, two = make_node("one"), make_node("two")
    chirp(one, "a")
    chirp(two, "b", "c")
    feed = reader(one, two)
    first = feed.latestOffset({}, ReadAllAvailable())
    assert [part.upto for part in feed.partitions({}, first)] == [
        first[node]["lsn"] for node in sorted((one.node.key.peer_id, two.node.key.peer_id))
    ]
    two.stop()
    chirp(one, "d")
    second = feed.latestOffset(first, ReadAllAvailable())
    assert second[two.node.key.peer_id] == first[two.node.key.peer_id]
    assert lsns(feed, first, second) == [2]


def test_filters_are_the_nodes_own(make_node: MakeNode) -> None:
    node = make_node()
    chirp(node, *"abc")
    assert lsns(reader(node, verdict="accept"), {}, reader(node).latestOffset({}, ReadAllAvailable())) == [1, 2, 3]
    assert lsns(reader(node, verdict="reject"), {}, reader(node).latestOffset({}, ReadAllAvailable())) == []


def test_a_stream_may_begin_now(make_node: MakeNode) -> None:
    node = make_node()
    chirp(node, *"abc")
    feed = reader(node, start="latest")
    start = feed.initialOffset()
    chirp(node, "d")
    assert lsns(feed, start, feed.latestOffset(start, ReadAllAvailable())) == [4]
    node.stop()
    with pytest.raises(UnreachableError):
        feed.initialOffset()


@pytest.mark.parametrize("options", [{}, {"protocol": "chirp"}])
def test_what_retention_took_is_not_passed_over(make_node: MakeNode, options: dict[str, str]) -> None:
    node = make_node()
    chirp(node, *"abcde")
    end = reader(node).latestOffset({}, ReadAllAvailable())
    node.node.journal._writer.call(_forgetting(2))
    with pytest.raises(CorruptionError, match="forgotten records"):
        lsns(reader(node, **options), {}, end)
    assert lsns(reader(node, onloss="continue", **options), {}, end) == [3, 4, 5]


def _forgetting(upto: int) -> Any:
    from syncline.journal.submissions import Job

    return Job(lambda connection: connection.execute("DELETE FROM records WHERE lsn <= ?", (upto,)))


@pytest.mark.parametrize("options", [{}, {"protocol": "chirp"}])
def test_a_journal_that_is_shorter_than_it_was_is_a_loss_and_no_endless_wait(
    make_node: MakeNode, options: dict[str, str]
) -> None:
    node = make_node()
    chirp(node, *"abc")
    [(name, place)] = reader(node).latestOffset({}, ReadAllAvailable()).items()
    further = {name: {**place, "lsn": 9}}
    with pytest.raises(CorruptionError, match=r"and was further before|has forgotten"):
        lsns(reader(node, **options), {}, further)
    assert lsns(reader(node, onloss="continue", **options), {}, further) == [1, 2, 3]


def test_a_batch_planned_with_a_nodes_old_address_is_read_from_its_new_one(make_node: MakeNode) -> None:
    node = make_node()
    chirp(node, *"abc")
    [(name, place)] = reader(node).latestOffset({}, ReadAllAvailable()).items()
    before = {name: {**place, "address": "http://127.0.0.1:9", "lsn": 1}}
    planned = {name: {**place, "address": "http://127.0.0.1:9"}}
    assert lsns(reader(node), before, planned) == [2, 3]


def test_a_new_journal_is_a_loss_and_then_a_new_beginning(make_node: MakeNode) -> None:
    node = make_node()
    chirp(node, *"abc")
    before = {node.node.key.peer_id: {"address": node.url, "epoch": "0" * 16, "lsn": 7}}
    with pytest.raises(CorruptionError, match="new journal"):
        reader(node).latestOffset(before, ReadAllAvailable())
    feed = reader(node, onloss="continue")
    after = feed.latestOffset(before, ReadAllAvailable())
    assert lsns(feed, before, after) == [1, 2, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "no node is named"),
        ({"nodes": "http://a,http://a/"}, "named twice"),
        ({"node": "http://a", "start": "yesterday"}, "start is one of earliest, latest"),
        ({"node": "http://a", "maxrecords": "0"}, "at least 1"),
        ({"node": "http://a", "maxrecords": "many"}, "must be a number"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        FeedReader(options, feed_schema())


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_query_follows_live_nodes(spark: Any, make_node: MakeNode, tmp_path: Path) -> None:
    nodes = [make_node(name, **{"api.token": "hunter2"}) for name in ("one", "two")]
    for node in nodes:
        chirp_with_token(node, "a", "b", "c")
    stream = (
        spark.readStream.format("syncline")
        .option("nodes", ",".join(node.url for node in nodes))
        .option("token", "hunter2")
        .option("maxRecords", 2)
        .load()
        .select("node", "lsn", "raw", "verdict", "seq")
    )

    def run() -> None:
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start(str(tmp_path / "rows")).awaitTermination(120)

    run()
    for node in nodes:
        chirp_with_token(node, "d")
    run()
    rows = spark.read.parquet(str(tmp_path / "rows")).orderBy("node", "lsn").collect()
    ids = sorted(node.node.key.peer_id for node in nodes)
    assert [(row.node, row.lsn) for row in rows] == [(node, lsn) for node in ids for lsn in (1, 2, 3, 4)]
    assert {row.verdict for row in rows} == {"accept"}
    assert [int(row.seq) for row in rows] == [0, 1, 2, 3] * 2


def chirp_with_token(node: NodeThread, *texts: str) -> None:
    from syncline.networks.node_client import NodeClient

    with NodeClient(node.url, "hunter2") as client:
        for text in texts:
            client.post("/api/v1/publish/chirp", {"text": text})
