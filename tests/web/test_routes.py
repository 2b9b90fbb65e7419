"""What the dashboard asks of a node beside the API: satellites and lag, without any lake."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from syncline.core.verdict import Reason
from syncline.testing.samples import satellite_updates
from syncline.web.tables import _shown
from tests.cli.conftest import PROGRAM, environment, up


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    import subprocess

    folder: Path = tmp_path_factory.mktemp("node")
    subprocess.run([*PROGRAM, "init"], cwd=folder, env=environment(), check=True, capture_output=True)
    with up(folder, "--set", "node.protocols=sds,sdsp") as ready, httpx.Client(base_url=ready["url"]) as client:
        yield client


def publish(node: httpx.Client, **changes: Any) -> None:
    elements = {**satellite_updates()[0], **changes}
    data = {name: value for name, value in elements.items() if value is not None}
    assert node.post("/api/v1/publish/sds", json={"schema": "OMM", "data": data}).is_success


def test_a_satellite_is_where_its_newest_elements_put_it(node: httpx.Client) -> None:
    assert node.get("/api/v1/satellites/").json()["satellites"] == []
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}"
    publish(node, EPOCH=now, OBJECT_NAME="OLD NAME", MEAN_ANOMALY=10.0)
    publish(node, EPOCH=now, OBJECT_NAME="NEW NAME")
    publish(node, NORAD_CAT_ID=990002, EPOCH="1999-01-01T00:00:00")  # long past: said, not drawn
    publish(node, NORAD_CAT_ID=990003, INCLINATION=None)  # good, but not enough to propagate
    found = node.get("/api/v1/satellites/").json()
    [satellite] = found["satellites"]
    assert (satellite["name"], satellite["number"], found["too_old"]) == ("NEW NAME", 990001, 1)
    assert 500 < satellite["altitude"] < 600
    assert len(satellite["track"]) == 49
    record = satellite["record"]
    kept = node.get(f"/api/v1/records/{record['epoch']}/{record['lsn']}").json()
    assert kept["decoded"]["data"]["OBJECT_NAME"] == "NEW NAME"


def test_lag_counts_what_no_lake_holds(node: httpx.Client) -> None:
    before = node.get("/api/v1/lag/").json()
    assert node.post("/api/v1/publish/sdsp", json={"uid": "x", "topic": "t", "data": 1}).is_success
    after = node.get("/api/v1/lag/").json()
    assert (after["has_tables"], after["landed"]) == (False, {})
    assert after["newest"] == before["newest"] + 1
    assert after["not_landed"]["sdsp"] == before["not_landed"]["sdsp"] + 1
    assert after["behind_seconds"] > 0


def test_a_table_that_is_not_there_is_said_to_be_missing(node: httpx.Client) -> None:
    assert node.get("/api/v1/tables/nonsense").status_code == 404
    empty = node.get("/api/v1/tables/records")
    assert (empty.status_code, empty.json()["error"]["hint"]) == (404, "run `syncline lake run`")
    assert node.get("/api/v1/tables/records?limit=many").status_code == 400


def test_lag_counts_every_waiting_record_and_asks_a_silent_protocol_only_once(node: httpx.Client) -> None:
    before = node.get("/api/v1/lag/").json()
    for number in range(3):
        body = {"uid": "many", "topic": "t", "data": {"n": number}}
        assert node.post("/api/v1/publish/sdsp", json=body).is_success
        found = node.get("/api/v1/lag/").json()
        assert found["not_landed"]["sdsp"] == before["not_landed"]["sdsp"] + number + 1
        assert found["not_landed_records"] == found["newest"]  # nothing has landed, so all of it waits
        assert found["or_more"] is False


def test_records_are_found_by_their_reason(node: httpx.Client) -> None:
    assert node.post("/api/v1/publish/sdsp", json={"topic": "t", "frame": "{not json"}).status_code == 403
    answer = node.get("/api/v1/records?reason=malformed&last=10").text.splitlines()
    assert [json.loads(line)["reason"] for line in answer] == ["malformed"]
    assert node.get("/api/v1/records?reason=duplicate&last=10").text == ""


def test_every_reason_is_explained(node: httpx.Client) -> None:
    told = {each["reason"]: each["meaning"] for each in node.get("/api/v1/reasons").json()["reasons"]}
    assert told == {reason.value: reason.doc for reason in Reason}


def test_what_is_long_in_a_row_is_cut_and_said_to_be() -> None:
    assert _shown(b"\x01\xff") == "01ff"
    assert _shown(bytes(3_000)) == "0" * 2_000 + "… (4000 more)"
    assert _shown({"a": ["x" * 2_001, None, 1.5]}) == {"a": ["x" * 2_000 + "… (1 more)", None, 1.5]}
    assert len(_shown(list(range(1_000)))) == 100


def test_a_track_belongs_to_its_satellite_even_beside_one_that_has_decayed(node: httpx.Client) -> None:
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}"
    publish(node, NORAD_CAT_ID=990010, OBJECT_NAME="LOW", EPOCH=now)
    publish(node, NORAD_CAT_ID=990011, OBJECT_NAME="FALLEN", EPOCH=now, MEAN_MOTION=18.5)  # below the ground
    publish(node, NORAD_CAT_ID=990012, OBJECT_NAME="HIGH", EPOCH=now, MEAN_MOTION=2.0)
    found = node.get("/api/v1/satellites/").json()["satellites"]
    names = [each["name"] for each in found]
    assert names == sorted(names)
    assert "FALLEN" not in names
    for each in found:
        assert each["track"][0] == pytest.approx([each["longitude"], each["latitude"]], abs=0.1)


def test_records_are_found_by_their_number(node: httpx.Client) -> None:
    for number in range(3):
        body = {"uid": "numbered", "topic": "t", "data": {"n": number, "pad": "x" * 200}}
        assert node.post("/api/v1/publish/sdsp", json=body).is_success
    [line] = node.get("/api/v1/records?protocol=sdsp&key=numbered&seq=1&last=10").text.splitlines()
    assert (json.loads(line)["key"], int(json.loads(line)["seq"])) == ("numbered", 1)
    assert node.get("/api/v1/records?seq=99999999999999999999999&last=1").text == ""
    assert node.get("/api/v1/records?seq=one").status_code == 400
