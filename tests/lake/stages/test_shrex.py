"""ShrEx in the lake: the node's verdicts again, heights to 2^64 - 1, headers to join with, and peers by their results."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from syncline.core.keys import NodeKey
from syncline.core.record import Arrival, Incoming, Record
from syncline.formats.pubsub import compose
from syncline.formats.records import to_arrow
from syncline.lake import every_table
from syncline.lake.audit import audit
from syncline.lake.batch import InProcess, Lander
from syncline.lake.pipeline import Pipeline
from syncline.lake.query import Queries
from syncline.lake.query_spark import register_tables
from syncline.lake.roots import Lake
from syncline.lake.segments import Segment, list_segments
from syncline.lake.stages import built_in_stages
from syncline.lake.stages.shrex import HEADERS, NOTIFICATIONS, PEERS, RESULTS, examine, fold_peers
from syncline.lake.verify import verify
from syncline.protocols.shrex.rules.headers import Kept
from syncline.protocols.shrex.rules.judge import (
    CHAIN_SPACE,
    HEADERS_SPACE,
    HEADERS_TOPIC,
    RANGE,
    RESULTS_TOPIC,
    ShrexJudge,
    height_key,
)
from syncline.protocols.shrex.wire import header as headers
from syncline.protocols.shrex.wire import result as results
from syncline.protocols.shrex.wire.notification import TOPIC, Notification, encode
from syncline.protocols.shrex.wire.result import Outcome, PeerResult
from syncline.testing.headers import chain
from syncline.testing.segments import FakeJournal, write_segments

KEY = NodeKey(bytes(32))
NOW = 1_794_700_000_000_000
CHAIN = chain(5)
TALL = 2**64 - 1


HEIGHTS = [6, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 2, TALL]  # of made-up headers


class State:
    """Headers 1 to 5 and some made-up ones up to the greatest height."""

    def get_state(self, space: str, key: bytes) -> bytes | None:
        known = {height_key(each.height): Kept(each.hash, each.data_hash).to_bytes() for each in CHAIN}
        known |= {height_key(height): Kept(bytes(32), b"\x77" * 32).to_bytes() for height in HEIGHTS}
        if space == CHAIN_SPACE and key == RANGE:
            return (1).to_bytes(8, "big") + (5).to_bytes(8, "big")
        return known.get(key) if space == HEADERS_SPACE else None

    def scan_state(self, space: str, prefix: bytes = b"", limit: int = 10_000) -> list[tuple[bytes, bytes]]:
        return []


JUDGE = ShrexJudge(State(), trusted=None, refused_roots=frozenset())


def record(lsn: int, raw: bytes, topic: str = TOPIC, peer: str = "p") -> Record:
    arrival: Arrival = JUDGE(Incoming(protocol="shrex", topic=topic, raw=raw, peer=peer, received_at=NOW + lsn))
    fields = {name: getattr(arrival, name) for name in arrival.__struct_fields__}
    return Record(node="12D3", epoch="0" * 16, lsn=lsn, **fields)


def notification(lsn: int, height: int, data_hash: bytes) -> Record:
    return record(lsn, compose(KEY, TOPIC, encode(Notification(height, data_hash)), lsn))


def examined(records: list[Record]) -> tuple[pa.Table, Any]:
    table = pa.Table.from_batches([to_arrow(records)])
    return table, examine(table)


def test_the_lake_comes_to_the_nodes_verdicts_and_finds_nothing_to_audit() -> None:
    forged = bytearray(compose(KEY, TOPIC, encode(Notification(5, CHAIN[4].data_hash)), 9))
    forged[60] ^= 1
    records = [
        notification(1, 5, CHAIN[4].data_hash),
        notification(2, TALL, b"\x77" * 32),
        notification(3, 5, b"\x11" * 32),  # another hash than the header's: the node's word, by context
        notification(4, 0, b"\x11" * 32),
        notification(5, 9_000, b"\x11" * 32),  # ignored: no raw bytes
        record(6, bytes(forged)),
        record(7, b"rubbish"),
        record(8, headers.encode(CHAIN[1]), HEADERS_TOPIC),
        record(9, b"{}", HEADERS_TOPIC),
        record(10, b"[]", RESULTS_TOPIC),
    ]
    table, found = examined(records)
    assert found.outcome.to_pylist() == [
        "accept",
        "accept",
        "accept",
        "reject",
        None,
        "reject",
        "reject",
        "accept",
        "reject",
        "reject",
    ]
    verified = verify(table, found)
    assert verified.differing.num_rows == 0
    assert verified.rejected.num_rows == 6
    assert verified.accepted.tolist() == [True, True, False, False, False, False, False, True, False, False]
    rows = found.rows[NOTIFICATIONS.name].to_pylist()
    assert [(row["record"], row["height"]) for row in rows] == [(0, Decimal(5)), (1, Decimal(TALL)), (2, Decimal(5))]
    assert rows[1]["data_hash"] == "77" * 32


def test_notifications_join_with_headers_on_the_height() -> None:
    linked = CHAIN[1:]  # the state knows the first one already
    records = [
        *(notification(each.height, each.height, each.data_hash) for each in linked),
        *(record(10 + each.height, headers.encode(each), HEADERS_TOPIC) for each in linked),
    ]
    _, found = examined(records)
    known = {row["height"]: row for row in found.rows[HEADERS.name].to_pylist()}
    assert [known[Decimal(each.height)]["hash"] for each in linked] == [each.hash.hex() for each in linked]
    assert all(known[Decimal(n + 1)]["last_hash"] == known[Decimal(n)]["hash"] for n in range(2, 5))
    rows = found.rows[NOTIFICATIONS.name].to_pylist()
    assert [row["data_hash"] for row in rows] == [known[row["height"]]["data_hash"] for row in rows]
    assert len(rows) == 4


def result(lsn: int, peer: str, outcome: Outcome, height: int = 5) -> Record:
    raw = results.encode(PeerResult(peer=peer, height=height, data_hash="77" * 32, result=outcome, source="pool"))
    return record(lsn, raw, RESULTS_TOPIC, peer)


def result_rows(records: list[Record]) -> pa.Table:
    table, found = examined(records)
    rows = found.rows[RESULTS.name]
    origin = table.take(rows["record"])
    columns = {name: rows[name] if name in rows.column_names else origin[name] for name in RESULTS.file_schema.names}
    return pa.table(columns, schema=RESULTS.file_schema)


def test_peers_are_scored_by_their_results_however_these_are_split_into_batches() -> None:
    rows = result_rows(
        [
            result(1, "good", Outcome.NOOP),
            result(2, "good", Outcome.NOOP, 9),
            result(3, "bad", Outcome.COOLDOWN),
            result(4, "bad", Outcome.BLACKLIST),
            result(5, "bad", Outcome.NOOP),
            result(6, "good", Outcome.COOLDOWN),
        ]
    )
    nothing, none = PEERS.file_schema.empty_table(), rows.slice(0, 0)
    at_once = fold_peers(nothing, rows, lambda keys, least=None: none)
    first = fold_peers(nothing, rows.slice(0, 3), lambda keys, least=None: none)
    second = fold_peers(
        first, rows.slice(2, 4), lambda keys, least=None: rows.slice(0, 3)
    )  # one row again, after a crash
    assert second.sort_by("peer") == at_once.sort_by("peer")
    bad, good = at_once.sort_by("peer").to_pylist()
    assert (bad["requests"], bad["noop"], bad["cooldown"], bad["blacklist"]) == (3, 1, 1, 1)
    assert (good["requests"], good["quality"], good["last_height"]) == (3, 2 / 3, Decimal(9))


def test_an_empty_batch_gives_no_rows() -> None:
    _, found = examined([])
    assert len(found.outcome) == 0
    assert [table.num_rows for table in found.rows.values()] == [0, 0, 0]


def test_the_greatest_height_goes_through_the_lake_and_a_notification_meets_its_header(lake: Lake) -> None:
    journal = FakeJournal("a")
    kept = [
        notification(1, 5, CHAIN[4].data_hash),
        notification(2, TALL, b"\x77" * 32),
        *(record(2 + n, headers.encode(each), HEADERS_TOPIC) for n, each in enumerate(CHAIN[1:], 1)),
        result(7, "good", Outcome.NOOP, TALL),
    ]
    arrivals = [Arrival(**{name: getattr(each, name) for name in Arrival.__struct_fields__}) for each in kept]
    assert [each.verdict for each in arrivals] == ["accept"] * 7
    write_segments(lake.segments.path, journal.keep(arrivals))
    sealed = [found for found in list_segments(lake.segments) if isinstance(found, Segment)]
    Lander(lake, built_in_stages(), InProcess(), buckets=2).land(sealed)
    with Queries(lake, every_table()) as queries:
        joined = queries.ask("SELECT n.height, h.hash FROM shrex_notifications n JOIN headers h USING (height)")
        assert joined.rows.to_pylist() == [{"height": Decimal(5), "hash": CHAIN[4].hash.hex()}]
        [peer] = queries.ask("SELECT last_height, quality FROM shrex_peers").rows.to_pylist()
        assert peer == {"last_height": Decimal(TALL), "quality": 1.0}
        [tall] = queries.ask(
            "SELECT height FROM shrex_notifications WHERE height > 9223372036854775807"
        ).rows.to_pylist()
        assert tall == {"height": Decimal(TALL)}
        assert audit(queries) == []


def test_an_accepted_notification_that_no_header_matches_is_found_by_the_audit(lake: Lake) -> None:
    journal = FakeJournal("a")
    other = chain(1, first=3, seed="fork")[0]
    kept = [notification(1, 5, CHAIN[4].data_hash), notification(2, 3, CHAIN[2].data_hash)]
    kept += [record(3, headers.encode(CHAIN[4]), HEADERS_TOPIC), record(4, headers.encode(CHAIN[3]), HEADERS_TOPIC)]
    arrivals = [Arrival(**{name: getattr(each, name) for name in Arrival.__struct_fields__}) for each in kept]
    forked = Arrival(
        **{**{n: getattr(arrivals[3], n) for n in Arrival.__struct_fields__}, "raw": headers.encode(other)}
    )
    write_segments(lake.segments.path, journal.keep([*arrivals, forked]))
    sealed = [found for found in list_segments(lake.segments) if isinstance(found, Segment)]
    Lander(lake, built_in_stages(), InProcess(), buckets=2).land(sealed)
    prefix = f"{journal.node}/{journal.epoch}"
    with Queries(lake, every_table()) as queries:
        assert [(found.check, found.record) for found in audit(queries)] == [
            ("header_match", f"{prefix}/2"),
            ("header_chain", f"{prefix}/4"),
        ]


def test_two_notices_that_one_publisher_signed_under_one_number_are_both_kept_and_their_copies_not(lake: Lake) -> None:
    """Two nodes may each have accepted one of them. What becomes of them must not depend on the number of buckets."""
    raws = [compose(KEY, TOPIC, encode(Notification(each.height, each.data_hash)), 7) for each in CHAIN[:2]]
    for name, heard in (("a", raws[:1]), ("b", raws[1:]), ("c", raws)):
        kept = [record(lsn, raw) for lsn, raw in enumerate(heard, 1)]
        arrivals = [Arrival(**{field: getattr(each, field) for field in Arrival.__struct_fields__}) for each in kept]
        assert {(each.verdict, each.id) for each in arrivals} == {("accept", kept[0].id)}
        write_segments(lake.segments.path, FakeJournal(name).keep(arrivals[:1] if name == "c" else arrivals))
        sealed = [found for found in list_segments(lake.segments) if isinstance(found, Segment)]
        Lander(lake, built_in_stages(), InProcess(), buckets=1).land(sealed)
    with Queries(lake, every_table()) as queries:
        found = queries.ask("SELECT height FROM shrex_notifications ORDER BY height").rows["height"].to_pylist()
    assert found == [Decimal(1), Decimal(2)]


@pytest.mark.spark
def test_every_height_is_the_same_on_spark_and_meets_its_header_there(spark: Any, lake: Lake) -> None:
    journal = FakeJournal("a")
    kept = [
        *(notification(1 + n, height, b"\x77" * 32) for n, height in enumerate(HEIGHTS)),
        notification(20, 1, CHAIN[0].data_hash),
        *(record(20 + each.height, headers.encode(each), HEADERS_TOPIC) for each in CHAIN[1:]),
        notification(30, 5, CHAIN[4].data_hash),
        *(result(40 + n, "good", Outcome.NOOP, height) for n, height in enumerate(HEIGHTS)),
    ]
    arrivals = [Arrival(**{name: getattr(each, name) for name in Arrival.__struct_fields__}) for each in kept]
    assert {each.verdict for each in arrivals} == {"accept"}
    write_segments(lake.segments.path, journal.keep(arrivals))
    Pipeline(spark, lake, buckets=2).run_available()
    register_tables(spark, lake, [NOTIFICATIONS, HEADERS, PEERS])

    def ask(sql: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in spark.sql(sql).collect()]

    assert ask("SELECT height FROM shrex_notifications ORDER BY height") == [
        (Decimal(height),) for height in (1, 5, *HEIGHTS)
    ]
    assert ask(f"SELECT count(*) FROM shrex_notifications WHERE height > {2**63 - 1}") == [(3,)]
    assert ask(f"SELECT data_hash FROM shrex_notifications WHERE height = {TALL}") == [("77" * 32,)]
    assert ask("SELECT n.height, h.hash FROM shrex_notifications n JOIN headers h USING (height)") == [
        (Decimal(5), CHAIN[4].hash.hex())
    ]
    assert ask("SELECT requests, last_height FROM shrex_peers") == [(len(HEIGHTS), Decimal(TALL))]
