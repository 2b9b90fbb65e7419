"""What the dashboard asks of a node beside the API: satellites and lag, without any lake."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from syncline.testing.samples import satellite_updates
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
