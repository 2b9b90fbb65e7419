"""Segments of many nodes and all tables in one bucket of a real S3 server (moto): landed, asked, looked after."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import obstore
import pyarrow as pa
import pytest
from obstore.store import from_url

from syncline.lake import batch
from syncline.lake.batch import InProcess, Lander, clear_left_exchanges
from syncline.lake.maintain import optimize, table_facts, vacuum
from syncline.lake.objects import object_at
from syncline.lake.query import Queries
from syncline.lake.roots import Lake, Root
from syncline.lake.segments import Segment, list_segments
from syncline.lake.source.tables import TableReader, table_schema
from syncline.lake.stages import all_tables, built_in_stages
from syncline.testing.segments import FakeJournal
from syncline.testing.traffic import Traffic, seal
from tests.lake.conftest import command
from tests.lake.truth import assert_tables_equal
from tests.ports import free_port

SECRET = "this-must-not-be-told"  # for a server on loopback that checks nothing


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """In a process of its own: delta-rs holds our interpreter while it waits for some answers."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    for _ in range(200):
        try:
            httpx.get(f"{url}/moto-api/")
            break
        except httpx.TransportError:
            assert process.poll() is None
            time.sleep(0.1)
    yield url
    process.kill()
    process.wait()


def variables(server: str) -> dict[str, str]:
    """All an operator sets, for nodes and pipelines alike."""
    return {
        "AWS_ENDPOINT_URL": server,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


@pytest.fixture
def lake(server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Lake:
    """A lake in an empty bucket."""
    for name, value in variables(server).items():
        monkeypatch.setenv(name, value)
    httpx.post(f"{server}/moto-api/reset")
    assert httpx.put(f"{server}/lake").status_code == 200
    segments = Root.at("s3://lake/segments")
    return Lake(segments, Root.at("s3://lake/tables"), Root.at(tmp_path / "checkpoints"), segments.below("blobs"))


def two_nodes(lake: Lake, folder: Path, seed: int, count: int = 120) -> Traffic:
    """The same frames, sealed by two nodes into one bucket."""
    traffic = Traffic(seed)
    sent = traffic.publish(count)
    for name in ("a", "b"):
        seal(folder, traffic.receive(FakeJournal(name), sent, disorder=40, repeats=0.1, garbage=0.05))
    store = from_url(lake.segments.url)
    for file in sorted(folder.rglob("*.parquet")):
        obstore.put(store, file.relative_to(folder).as_posix(), file.read_bytes())
    return traffic


def sealed(lake: Lake) -> list[Segment]:
    return [found for found in list_segments(lake.segments) if isinstance(found, Segment)]


def lander(lake: Lake) -> Lander:
    return Lander(lake, built_in_stages(), InProcess(), buckets=2)


def names(url: str) -> list[str]:
    return [found["path"] for page in obstore.list(from_url(url)) for found in page]


def test_segments_of_two_nodes_land_once_and_can_be_asked(lake: Lake, tmp_path: Path) -> None:
    traffic = two_nodes(lake, tmp_path / "sealed", 41)
    lander(lake).land(sealed(lake))
    lander(lake).land(sealed(lake))
    assert_tables_equal(lake, traffic.truth)
    uid, last = next(iter(traffic.truth.newest().items()))
    assert object_at(lake, uid, last.frame.serial).value == last.value
    with Queries(lake, all_tables(built_in_stages().values()).values()) as queries:
        counted = queries.ask("SELECT count(*) AS n, count(DISTINCT node) AS nodes FROM records").rows.to_pylist()
        state = queries.ask("SELECT serial FROM sdsp_objects WHERE uid = ?", [uid]).rows["serial"].to_pylist()
        joined = queries.ask("SELECT count(*) AS n FROM sdsp_frames f JOIN sdsp_objects o USING (uid)")
    assert counted == [{"n": len(traffic.truth.records), "nodes": 2}]
    assert state == [last.frame.serial]
    assert joined.rows["n"].to_pylist() == [len(traffic.truth.published)]
    assert [name for name in names("s3://lake/tables") if name.endswith("/")] == [], "no empty objects for folders"


def test_two_pipelines_at_once_leave_each_row_once(lake: Lake, tmp_path: Path) -> None:
    traffic = two_nodes(lake, tmp_path / "sealed", 42)
    segments = sealed(lake)
    rivals, failures = [lander(lake) for _ in range(2)], []
    for rival in rivals:
        rival.lacking(segments)  # the tables are there before the race begins
    both = threading.Barrier(2)

    def land(own: Lander) -> None:
        try:
            for start in range(0, len(segments), 3):
                both.wait(60)
                own.land(segments[start : start + 3])
        except BaseException as error:
            both.abort()
            failures.append(error)

    threads = [threading.Thread(target=land, args=(rival,)) for rival in rivals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert failures == []
    assert_tables_equal(lake, traffic.truth)


def test_a_damaged_segment_is_put_aside_in_the_bucket(lake: Lake, tmp_path: Path) -> None:
    two_nodes(lake, tmp_path / "sealed", 43, 40)
    path = sealed(lake)[0].path
    store = from_url(lake.segments.url)
    data = bytearray(bytes(obstore.get(store, path).bytes()))
    data[len(data) // 2] ^= 1
    obstore.put(store, path, bytes(data))
    result = lander(lake).land(sealed(lake))
    assert [damage.path for damage in result.damaged] == [path]
    assert path not in names(lake.segments.url)
    assert {f".quarantine/{path}", f".quarantine/{path}.reason.txt"} <= set(names(lake.segments.url))


def test_tables_in_a_bucket_are_looked_after(lake: Lake, tmp_path: Path) -> None:
    traffic = two_nodes(lake, tmp_path / "sealed", 44)
    segments = sealed(lake)
    own = lander(lake)
    for start in range(0, len(segments), 2):
        own.land(segments[start : start + 2])
    tables = list(all_tables(built_in_stages().values()).values())
    before = {facts.name: facts for facts in table_facts(lake, tables)}
    optimize(lake, tables)
    after = {facts.name: facts for facts in table_facts(lake, tables)}
    assert after["records"].files < before["records"].files
    assert after["records"].rows == before["records"].rows
    vacuum(lake, tables, hours=1)
    assert_tables_equal(lake, traffic.truth)


def test_a_pipeline_that_begins_leaves_the_files_of_a_running_one_alone(lake: Lake, tmp_path: Path) -> None:
    """Nothing keeps a second pipeline off a bucket, so whatever it finds there may be in use."""
    store = from_url(lake.tables.url)
    obstore.put(store, "_exchange/other/sdsp_frames-1.arrow", b"rows on their way")
    clear_left_exchanges(lake, alone=True)
    vacuum(lake, [], hours=1)
    assert names(lake.tables.url) == ["_exchange/other/sdsp_frames-1.arrow"]
    two_nodes(lake, tmp_path / "sealed", 47, 20)
    lander(lake).land(sealed(lake))
    left = [name for name in names(lake.tables.url) if name.endswith(".arrow")]
    assert left == ["_exchange/other/sdsp_frames-1.arrow"]


def test_exchange_files_that_a_killed_run_left_are_removed_when_they_are_old(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    obstore.put(from_url(lake.tables.url), "_exchange/other/sdsp_frames-1.arrow", b"left behind")
    monkeypatch.setattr(batch, "EXCHANGE_SECONDS", -60)
    vacuum(lake, [], hours=1)
    assert [name for name in names(lake.tables.url) if name.endswith(".arrow")] == []


def test_spark_reads_a_table_from_the_bucket(lake: Lake, tmp_path: Path) -> None:
    traffic = two_nodes(lake, tmp_path / "sealed", 45, 40)
    lander(lake).land(sealed(lake))
    options = {"path": lake.tables.url, "table": "sdsp_frames", "columns": "uid,serial"}
    reader = TableReader(options, table_schema(options))
    found = pa.Table.from_batches([batch for part in reader.partitions() for batch in reader.read(part)])
    assert {(row["uid"], row["serial"]) for row in found.to_pylist()} == set(traffic.truth.published)
    assert found.num_rows == len(traffic.truth.published)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_command_lands_a_bucket_and_tells_no_secret(lake: Lake, server: str, tmp_path: Path) -> None:
    traffic = two_nodes(lake, tmp_path / "sealed", 46)
    settings = {"SYNCLINE_SEGMENTS_URL": lake.segments.url, "SYNCLINE_LAKE_URL": lake.tables.url}
    told = []

    def run(*arguments: str) -> list[dict[str, Any]]:
        done = command(tmp_path, *arguments, **variables(server), **settings)
        assert done.returncode == 0, done.stderr
        told.append(done.stdout + done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    landed = run("--set", "lake.batch_segments=4", "lake", "run", "--json")[-1]
    assert (landed["records"], landed["lag"]["segments"]) == (len(traffic.truth.records), 0)
    assert_tables_equal(lake, traffic.truth)
    assert run("query", "SELECT count(*) AS n FROM sdsp_frames", "--json") == [{"n": len(traffic.truth.published)}]
    run("config", "--json")
    assert SECRET not in "".join(told)
