"""Space data in the lake: the node's verdicts, one row per record, a table per schema when it first occurs. No Spark."""

from __future__ import annotations

import datetime
from random import Random
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from syncline.core.keys import NodeKey
from syncline.core.record import Arrival, Incoming
from syncline.formats.records import to_arrow
from syncline.lake.batch import InProcess, Lander
from syncline.lake.deltas import open_delta
from syncline.lake.query import Queries
from syncline.lake.roots import Lake
from syncline.lake.segments import Segment, list_segments
from syncline.lake.stages import all_tables, built_in_stages
from syncline.lake.stages.sds import MESSAGES, examine, moments_of, schema_table, table_name
from syncline.lake.units import UNITS
from syncline.protocols.sds.catalogue import NAMES, standard
from syncline.protocols.sds.rules import Context, held, judge, published, signed_publish, topic_of
from syncline.protocols.sds.wire import encode
from syncline.testing.flatbuffers import random_value
from syncline.testing.segments import DAY_ZERO, FakeJournal, write_segments
from tests.lake.conftest import rows

KEY = NodeKey(b"k" * 32)
CONTEXT = Context()


def payload(schema: str, **fields: Any) -> bytes:
    return standard(schema).writer.encode(fields)


def publish(schema: str, number: int, data: bytes, *, kind: str = "publish", ttl: int = 0) -> bytes:
    message = signed_publish(
        KEY, schema=schema, payload=data, message_id=f"{schema}-{number}", now=DAY_ZERO + number, ttl=ttl
    )
    return encode(message if kind == "publish" else held(message, DAY_ZERO))


def arrived(raw: bytes, schema: str, *, network: str = "mainnet", after: int = 1_000_000) -> Arrival:
    topic = topic_of(network, schema)
    incoming = Incoming(protocol="sds", topic=topic, raw=raw, peer="p", received_at=DAY_ZERO + after)
    return judge(incoming, Context(network=network))


def omm(number: int, satellite: int = 25_544, **fields: Any) -> bytes:
    data = payload("OMM", NORAD_CAT_ID=satellite, EPOCH="2026-03-01T06:00:00.5Z", MEAN_MOTION=15.5, **fields)
    return publish("OMM", number, data)


def land(lake: Lake, stages: Any = None) -> Any:
    sealed = sorted(found for found in list_segments(lake.segments) if isinstance(found, Segment))
    return Lander(lake, built_in_stages() if stages is None else stages, InProcess(), buckets=3).land(sealed)


def test_the_lake_comes_to_the_nodes_verdict_from_the_bytes_alone() -> None:
    good = omm(1)
    forged = encode(msgspec.structs.replace(published(good), signature=bytes(64)))
    cases = [
        (good, "OMM"), (forged, "OMM"), (b"nonsense", "OMM"), (good, "CDM"),
        (publish("OMM", 2, b"\x00\x01"), "OMM"), (publish("XYZ", 3, b""), "OMM"),
        (publish("OMM", 10**9, payload("OMM")), "OMM"), (publish("CDM", 4, payload("CDM", MESSAGE_ID="c")), "CDM"),
        (publish("OMM", 5, payload("OMM"), kind="record"), "OMM"),
    ]  # fmt: skip
    arrivals = [arrived(raw, schema) for raw, schema in cases]
    arrivals += [
        arrived(omm(6), "OMM", network="testnet"),
        arrived(publish("OMM", 7, payload("OMM"), ttl=1), "OMM", after=5_000_000),
    ]
    table = pa.Table.from_batches([to_arrow(FakeJournal("a").keep(arrivals))])
    found = examine(table)
    kept = [raw is not None for raw in table["raw"].to_pylist()]
    verdicts = [verdict if there else None for verdict, there in zip(table["verdict"].to_pylist(), kept, strict=True)]
    reasons = [reason if there else None for reason, there in zip(table["reason"].to_pylist(), kept, strict=True)]
    assert found.outcome.to_pylist() == verdicts
    assert found.reason.to_pylist() == reasons
    assert verdicts.count("accept") == 4
    assert set(reasons) > {"invalid_signature", "malformed", "invalid_topic", "invalid_payload", "unknown_schema"}
    assert kept.count(False) == 1, "what had expired was ignored and has no bytes"


def test_every_field_of_every_standard_becomes_a_column(lake: Lake) -> None:
    random, sent = Random(1), {}
    journal = FakeJournal("a")
    for name in NAMES:
        values = [random_value(random, standard(name).schema, density=0.6) for _ in range(3)]
        sent[name] = [publish(name, number, payload(name, **value)) for number, value in enumerate(values)]
    arrivals = [arrived(raw, name) for name, raws in sent.items() for raw in raws]
    write_segments(lake.segments.path, journal.keep(arrivals))
    result = land(lake)
    assert (result.differing, result.records) == (0, 87)
    assert rows(lake, "sds_messages").num_rows == 87
    for name in NAMES:
        found = rows(lake, table_name(name)).sort_by("publish_id")
        assert found["publish_id"].to_pylist() == [f"{name}-{number}" for number in range(3)]
        assert set(found["author"].to_pylist()) == {KEY.peer_id}
        assert found.schema.names == schema_table(name).schema.names


def test_a_record_is_one_row_however_many_nodes_had_it_and_in_whatever_form(lake: Lake) -> None:
    raws = [omm(number, 25_544 + number % 3) for number in range(20)]
    again = [publish("OMM", number, payload("OMM", NORAD_CAT_ID=1), kind="record") for number in range(100, 105)]
    for node in ("a", "b"):
        journal = FakeJournal(node)
        write_segments(lake.segments.path, journal.keep([arrived(raw, "OMM") for raw in (*raws, *again)]))
        write_segments(lake.segments.path, journal.keep([arrived(raw, "OMM", after=5_000_000) for raw in raws]))
        land(lake)
    found = rows(lake, "sds_omm")
    assert found.num_rows == len(set(found["record_id"].to_pylist())) == 25
    assert rows(lake, "sds_messages").num_rows == 25
    assert set(found["received_at"].cast(pa.int64()).to_pylist()) == {DAY_ZERO + 1_000_000}, "the first copy is kept"
    assert sorted(set(found["subject"].to_pylist())) == ["1", "25544", "25545", "25546"]


def test_nested_payloads_of_two_nodes_are_one_row_each_in_any_number_of_batches(lake: Lake) -> None:
    raws = [publish("CDM", number, payload("CDM", MESSAGE_ID=f"m{number}")) for number in range(6)]
    for node, chosen in (("a", raws[:4]), ("b", raws)):
        write_segments(lake.segments.path, FakeJournal(node).keep([arrived(raw, "CDM") for raw in chosen]))
        land(lake)
    assert sorted(rows(lake, "sds_cdm")["subject"].to_pylist()) == [f"m{number}" for number in range(6)]


def test_a_table_appears_with_the_first_record_of_its_schema(lake: Lake) -> None:
    journal = FakeJournal("a")
    stages = built_in_stages()
    lander = Lander(lake, stages, InProcess(), buckets=3)
    write_segments(lake.segments.path, journal.keep([arrived(omm(1), "OMM")]))
    lander.land([found for found in list_segments(lake.segments) if isinstance(found, Segment)])
    assert open_delta(lake.table("sds_omm")) is not None
    assert open_delta(lake.table("sds_cdm")) is None
    with Queries(lake, all_tables(stages.values()).values()) as queries:
        assert queries.ask("SELECT count(*) AS n FROM sds_cdm").rows.to_pylist() == [{"n": 0}]
        cdm = publish("CDM", 1, payload("CDM", MESSAGE_ID="m", TCA="2026-03-02T00:00:00", MISS_DISTANCE=12.5))
        write_segments(lake.segments.path, journal.keep([arrived(cdm, "CDM")]))
        lander.land([found for found in list_segments(lake.segments) if isinstance(found, Segment)])
        asked = "SELECT subject, MISS_DISTANCE, tca_at::varchar AS tca FROM sds_cdm"
        [row] = queries.ask(asked).rows.to_pylist()
    assert row["subject"] == "m"
    assert row["MISS_DISTANCE"] == 12.5
    assert row["tca"].startswith("2026-03-0")
    assert lander.land([found for found in list_segments(lake.segments) if isinstance(found, Segment)]).segments == 0


def test_a_kill_before_the_ledger_is_mended_without_a_second_row(lake: Lake) -> None:
    write_segments(lake.segments.path, FakeJournal("a").keep([arrived(omm(n), "OMM") for n in range(5)]))
    land(lake)
    log = lake.table("sds_messages").path / "_delta_log" / f"{1:020d}.json"
    log.unlink()
    assert rows(lake, "sds_messages").num_rows == 0
    assert land(lake).added == {"sds_messages": 5}
    assert rows(lake, "sds_omm").num_rows == rows(lake, "sds_messages").num_rows == 5


def test_a_field_added_to_a_standard_is_a_column_added_to_its_table(lake: Lake) -> None:
    narrow = schema_table("OMM")
    older = without(narrow, "MEAN_MOTION")
    DeltaTable.create(
        lake.table("sds_omm").url,
        older,
        partition_by=["bucket"],
        configuration={"syncline.buckets": "3"},
        raise_if_key_not_exists=False,
    )
    write_segments(lake.segments.path, FakeJournal("a").keep([arrived(omm(1), "OMM")]))
    land(lake)
    assert rows(lake, "sds_omm")["MEAN_MOTION"].to_pylist() == [15.5]


def without(table: Any, name: str) -> pa.Schema:
    return pa.schema([field for field in table.schema if field.name != name])


@pytest.mark.parametrize("name", NAMES)
def test_no_two_columns_of_a_table_differ_only_in_case(name: str) -> None:
    names = [column.name.lower() for column in schema_table(name).columns]
    assert len(names) == len(set(names))


def test_units_are_of_columns_that_exist() -> None:
    for schema, units in UNITS.items():
        columns = {column.name: column.unit for column in schema_table(schema).columns}
        assert {name: columns[name] for name in units} == units


def test_times_inside_payloads_are_times() -> None:
    texts = [
        "2026-03-01T06:00:00.5Z",
        "2026-03-01T06:00:00+02:00",
        "2026-060T06:00:00",
        "2026-02-30T00:00:00",
        "2026-366T00:00:00",
        "2026-000T00:00:00",
        "",
        None,
    ]
    utc = datetime.UTC
    assert moments_of(pa.array(texts)).to_pylist() == [
        datetime.datetime(2026, 3, 1, 6, 0, 0, 500_000, utc),
        datetime.datetime(2026, 3, 1, 4, tzinfo=utc),
        datetime.datetime(2026, 3, 1, 6, tzinfo=utc),
        *[None] * 5,
    ]
    plain = pa.array(["2026-03-01T06:00:00.000Z", "1999-12-31T23:59:59", None])
    assert [str(each) for each in moments_of(plain).to_pylist()] == [
        "2026-03-01 06:00:00+00:00",
        "1999-12-31 23:59:59+00:00",
        "None",
    ]


def test_an_empty_batch_gives_no_rows() -> None:
    found = examine(pa.Table.from_batches([to_arrow([])]))
    assert (len(found.outcome), found.rows[MESSAGES.name].num_rows) == (0, 0)


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00.25",
        "2026-01-01T00:00:00ZZ",
        "2026-01-01",
        "2026-01-01 00:00:00",
        "2026-01-01T00:00",
        "0000-01-01T00:00:00",
        "2026-02-30T00:00:00",
        "2026-01-01T00:00:60",
        "2026-01-01T00:00:00+0200",
        "",
        None,
    ],
)
def test_a_time_is_read_alike_whatever_texts_are_beside_it(text: str | None) -> None:
    [alone] = moments_of(pa.array([text], pa.string())).to_pylist()
    for other in ("2026-03-01T12:00:00Z", "no time", None):
        assert moments_of(pa.array([text, other], pa.string())).to_pylist()[0] == alone
