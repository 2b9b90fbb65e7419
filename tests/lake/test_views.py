"""Day-one questions about space data: newest elements, elements at a moment, conjunctions, and where things are."""

from __future__ import annotations

import datetime
import json
from datetime import UTC
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from sgp4.api import SGP4_ERRORS, Satrec, jday
from sgp4.omm import initialize

from syncline.core.errors import UsageError
from syncline.lake.analysis import conjunctions, omm_as_of, omm_latest, propagate
from syncline.lake.batch import InProcess, Lander
from syncline.lake.propagate import NEEDED, STATE_SCHEMA, moments, propagated
from syncline.lake.query import Queries
from syncline.lake.query_spark import register_tables
from syncline.lake.roots import Lake
from syncline.lake.segments import Segment, list_segments
from syncline.lake.stages import all_tables, built_in_stages
from syncline.lake.stages.sds import schema_table
from syncline.testing.segments import FakeJournal, write_segments
from tests.lake.stages.test_sds import arrived, payload, publish

DATA = Path(__file__).parents[1] / "protocols" / "sds" / "data"
TABLES = list(all_tables(built_in_stages().values()).values())
NOON = datetime.datetime(2026, 3, 1, 12, tzinfo=UTC)


def hour(number: int) -> str:
    return f"2026-03-01T{number:02d}:00:00"


def elements(number: int, satellite: int, at: int, **more: Any) -> bytes:
    fields = {"NORAD_CAT_ID": satellite, "OBJECT_NAME": f"SAT {satellite}", "EPOCH": hour(at), "MEAN_MOTION": 15.0}
    return publish("OMM", number, payload("OMM", **{**fields, **more}))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Three objects; of the first, elements of several hours, published out of order, one epoch twice."""
    lake = Lake.below(tmp_path_factory.mktemp("views") / "data")
    messages = [
        ("OMM", elements(1, 100, 9)),
        ("OMM", elements(2, 100, 15)),
        ("OMM", elements(3, 100, 11)),
        ("OMM", elements(4, 100, 15, MEAN_MOTION=15.5)),
        ("OMM", elements(5, 200, 6)),
        ("OMM", elements(6, 300, 20)),
    ]
    for number, message in enumerate(json.loads((DATA / "cdm-demo.json").read_text())):
        messages.append(("CDM", publish("CDM", 10 + number, payload("CDM", **message))))
    arrivals = [arrived(raw, schema) for schema, raw in messages]
    assert {arrival.verdict.value for arrival in arrivals} == {"accept"}
    write_segments(lake.segments.path, FakeJournal("a").keep(arrivals))
    sealed = [found for found in list_segments(lake.segments) if isinstance(found, Segment)]
    Lander(lake, built_in_stages(), InProcess(), buckets=3).land(sealed)
    return lake


def ask(lake: Lake, sql: str, *values: object) -> list[tuple[object, ...]]:
    with Queries(lake, TABLES) as queries:
        return [tuple(row.values()) for row in queries.ask(sql, values).rows.to_pylist()]


LATEST = [("100", 15.5), ("200", 15.0), ("300", 15.0)]
AT_NOON = [("100", hour(11)), ("200", hour(6))]


def test_the_newest_elements_of_every_object(lake: Lake) -> None:
    assert ask(lake, "SELECT subject, MEAN_MOTION FROM omm_latest ORDER BY subject") == LATEST


def test_elements_as_they_were_at_a_moment(lake: Lake) -> None:
    sql = "SELECT subject, EPOCH FROM omm_as_of(?::TIMESTAMPTZ) ORDER BY subject"
    assert ask(lake, sql, NOON) == AT_NOON
    assert ask(lake, "SELECT count(*) FROM omm_as_of(TIMESTAMPTZ '2026-03-01 05:59:59Z')") == [(0,)]


def test_conjunctions_by_time_and_probability(lake: Lake) -> None:
    told = json.loads((DATA / "cdm-demo.json").read_text())
    worst = sorted(told, key=lambda message: -message["COLLISION_PROBABILITY"])[0]
    found = ask(lake, "SELECT message_id, probability, object1_name FROM conjunctions ORDER BY probability DESC")
    assert len(found) == len(told)
    assert found[0] == (
        worst["MESSAGE_ID"],
        worst["COLLISION_PROBABILITY"],
        worst["OBJECT1"]["OBJECT"]["OBJECT_NAME"],
    )
    early = [message["MESSAGE_ID"] for message in told if message["TCA"] < "2026-03-02T12"]
    until = datetime.datetime(2026, 3, 2, 12, tzinfo=UTC)
    assert ask(lake, "SELECT message_id FROM conjunctions WHERE tca_at < ? ORDER BY message_id", until) == [
        (message,) for message in sorted(early)
    ]


def test_before_there_is_any_space_data_the_views_are_empty(tmp_path: Path) -> None:
    empty = Lake.below(tmp_path)
    assert ask(empty, "SELECT count(*) FROM omm_latest") == [(0,)]
    assert ask(empty, "SELECT count(*) FROM omm_as_of(now())") == [(0,)]
    assert ask(empty, "SELECT count(*) FROM conjunctions") == [(0,)]


def historic() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DATA / "omm-historic.json").read_text())
    return found


def batch_of(messages: list[dict[str, Any]]) -> pa.RecordBatch:
    schema = schema_table("OMM").schema
    rows = [{**message, "subject": str(message.get("NORAD_CAT_ID", ""))} for message in messages]
    for row in rows:
        row["epoch_at"] = datetime.datetime.fromisoformat(row["EPOCH"]).replace(tzinfo=UTC) if row["EPOCH"] else None
    return pa.RecordBatch.from_pylist(
        [{name: row.get(name) for name in NEEDED} for row in rows], schema=pa.schema([schema.field(n) for n in NEEDED])
    )


def test_propagation_agrees_with_the_reference_on_its_own_objects() -> None:
    messages = historic()
    times = [datetime.datetime.fromisoformat(message["EPOCH"]).replace(tzinfo=UTC) for message in messages[:3]]
    found = pa.Table.from_batches(propagated(batch_of(messages), moments(times)))
    assert found.schema == STATE_SCHEMA
    assert found.num_rows == len(messages) * len(times)
    rows, failed = iter(found.to_pylist()), 0
    for message in messages:
        satellite = Satrec()
        initialize(satellite, {name: str(value) for name, value in message.items()})
        for time in times:
            row = next(rows)
            seconds = time.second + time.microsecond / 1e6
            code, place, speed = satellite.sgp4(*jday(time.year, time.month, time.day, time.hour, time.minute, seconds))
            assert (row["NORAD_CAT_ID"], row["at"]) == (message["NORAD_CAT_ID"], time)
            assert row["error"] == SGP4_ERRORS.get(code)
            if code:
                failed += 1
                assert row["x"] is None
            else:
                assert np.allclose([row["x"], row["y"], row["z"]], place, rtol=0, atol=1e-4)  # a tenth of a metre
                assert np.allclose([row["vx"], row["vy"], row["vz"]], speed, rtol=0, atol=1e-7)
    assert 0 < failed < found.num_rows, "some of them have decayed by then, and say so"


def test_what_cannot_be_propagated_says_why() -> None:
    good = historic()[0]
    cases = [
        ({**good, "EPOCH": ""}, "no epoch"),
        ({**good, "MEAN_ELEMENT_THEORY": "DSST"}, "elements of DSST, not of SGP4"),
        ({**good, "MEAN_MOTION": 0.0}, "no mean motion"),
        ({**good, "INCLINATION": None}, "no INCLINATION"),
        ({**good, "MEAN_ANOMALY": float("nan")}, "the elements give no place"),
        ({**good, "BSTAR": None}, None),
    ]
    [batch] = propagated(batch_of([case for case, _ in cases]), moments(datetime.datetime(2000, 6, 28)))
    assert batch.column("error").to_pylist() == [why for _, why in cases]
    assert [value is None for value in batch.column("x").to_pylist()] == [True] * 5 + [False]
    with pytest.raises(UsageError, match="no time"):
        moments([])


def test_many_times_come_in_bounded_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.core.limits.PROPAGATED_ROWS", 10)
    first = datetime.datetime(2000, 6, 28)
    at = moments([first + datetime.timedelta(minutes=minute) for minute in range(4)])
    batches = list(propagated(batch_of(historic()[:5]), at))
    assert [batch.num_rows for batch in batches] == [8, 8, 4]


@pytest.mark.spark
def test_spark_gives_the_same_answers(spark: Any, lake: Lake) -> None:
    register_tables(spark, lake, [table for table in TABLES if table.name in ("sds_omm", "sds_cdm")])
    sql = spark.sql("SELECT subject, MEAN_MOTION FROM omm_latest ORDER BY subject").collect()
    at = spark.sql("SELECT subject, EPOCH FROM omm_as_of(TIMESTAMP '2026-03-01 12:00:00Z') ORDER BY subject").collect()
    assert (list(map(tuple, sql)), list(map(tuple, at))) == (LATEST, AT_NOON)
    omm = spark.read.format("syncline").option("table", "sds_omm").load(lake.tables.url)
    latest = omm.transform(omm_latest)
    assert sorted((row.subject, row.MEAN_MOTION) for row in latest.collect()) == LATEST
    assert sorted((row.subject, row.EPOCH) for row in omm_as_of(omm, NOON).collect()) == AT_NOON
    cdm = spark.read.format("syncline").option("table", "sds_cdm").load(lake.tables.url)
    assert cdm.transform(conjunctions).count() == DeltaTable(lake.table("sds_cdm").url).to_pyarrow_table().num_rows
    states = propagate(latest, [NOON, NOON + datetime.timedelta(hours=1)]).toArrow().to_pylist()
    assert sorted((row["subject"], row["at"]) for row in states) == [
        (subject, NOON + datetime.timedelta(hours=hours)) for subject, _ in LATEST for hours in (0, 1)
    ]
    assert all(row["error"] is None for row in states)
    assert all(6_500 < np.hypot(np.hypot(row["x"], row["y"]), row["z"]) < 7_500 for row in states)
