"""What the container files say can be true: commands, settings, ports and metrics in them exist. Nothing is built here."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
import yaml

from syncline.core.settings import CORE_SECTIONS, variable_of
from syncline.lake.metrics import serve_metrics
from syncline.lake.pipeline import Pipeline
from syncline.lake.roots import Lake
from syncline.node.plugins import protocol_sections
from tests.cli.conftest import PROGRAM, Run, environment, free_ports, run, up
from tests.cli.test_help import calls, check

__all__ = ["run"]
ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"] == "syncline"}
SCRAPES = {
    each["job_name"]: each for each in yaml.safe_load(COMPOSE["configs"]["prometheus"]["content"])["scrape_configs"]
}
DASHBOARD = json.loads((ROOT / "deploy/grafana/dashboards/syncline.json").read_text())


def idle_pipeline(folder: Path) -> Pipeline:
    """One that never ran, so it needs no Spark."""
    spark = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1))
    pipeline = Pipeline(cast(Any, spark), Lake.below(folder), stages={})
    pipeline.summary.added["records"] = 0
    return pipeline


def test_the_services_are_nodes_a_cluster_a_pipeline_and_metrics() -> None:
    assert sorted(SERVICES) == [
        "grafana", "node-a", "node-b", "pipeline", "prometheus", "spark-master", "spark-worker",
    ]  # fmt: skip
    assert SERVICES["spark-worker"]["deploy"]["replicas"] == 2


@pytest.mark.parametrize("name", OURS)
def test_a_service_runs_commands_that_exist(name: str) -> None:
    service = OURS[name]
    if "entrypoint" in service:  # a shell with one line
        found = calls(service["command"][0].strip().replace("\n", " && "))
        assert found[-1] == ["up"]
    else:
        found = [service["command"]]
    for call in found:
        if call[:2] == ["lake", "cluster"]:
            assert call[2] in ("master", "worker")
        else:
            check(call)


@pytest.mark.parametrize("name", OURS)
def test_a_service_sets_settings_that_exist(name: str) -> None:
    sections = {**CORE_SECTIONS, **protocol_sections()}
    known = {
        variable_of(f"{section}.{field}") for section, kind in sections.items() for field in kind.__struct_fields__
    }
    assert set(OURS[name].get("environment", {})) <= known


def test_every_volume_and_file_that_is_mounted_is_there() -> None:
    mounts = [mount.split(":") for service in SERVICES.values() for mount in service.get("volumes", [])]
    for source, target, *_ in mounts:
        assert target.startswith("/")
        assert (ROOT / source).is_dir() if source.startswith("./") else source in COMPOSE["volumes"], source
    assert all(port.startswith("127.0.0.1:") for service in SERVICES.values() for port in service.get("ports", []))


def test_the_image_has_every_folder_that_a_volume_is_mounted_at() -> None:
    """Docker gives a new volume to the owner of the folder it covers; one that is not there would belong to root."""
    image = (ROOT / "Dockerfile").read_text()
    [owned] = re.findall(r"chown syncline ([/a-z ]+)", image)
    mounted = {mount.split(":")[1] for service in OURS.values() for mount in service["volumes"]}
    assert mounted == set(owned.split())
    assert image.index("chown") < image.index("USER syncline")


def test_pages_show_the_tables_that_the_pipeline_fills() -> None:
    places = {OURS[name]["environment"]["SYNCLINE_LAKE_URL"] for name in ("node-a", "node-b", "pipeline")}
    [place] = places
    assert place.startswith("/lake/")
    assert all("lake:/lake" in mount for name in ("node-a", "node-b") for mount in OURS[name]["volumes"][2:])


def test_the_second_node_finds_the_first_by_the_lines_that_start_it(tmp_path: Path) -> None:
    """Its own shell lines, with the names of the containers and the program put as they are here."""
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        folder.mkdir()
    subprocess.run([*PROGRAM, "init"], cwd=first, env=environment(), check=True, capture_output=True)
    with up(first) as ready:
        address = httpx.get(f"{ready['url']}/api/v1/status").json()["addresses"][0]
        lines = OURS["node-b"]["command"][0].replace("$$", "$").replace("/tmp/", f"{second}/")
        lines = lines.replace("http://node-a:7070", ready["url"]).replace("python", sys.executable)
        lines = lines.replace("/dns4/node-a/tcp/7071", address.partition("/p2p/")[0])
        rest = shlex.join([*free_ports(), "--set", "api.port=0"])
        script = f'syncline() {{ {shlex.join(PROGRAM)} {rest} "$@"; }}\n' + lines.replace("exec ", "")
        started = subprocess.Popen(["sh", "-c", script], cwd=second, env=environment(), start_new_session=True)
        try:
            end = time.monotonic() + 40
            while not (peers := httpx.get(f"{ready['url']}/api/v1/peers").json()["peers"]):
                assert time.monotonic() < end
                time.sleep(0.3)
            theirs = subprocess.run([*PROGRAM, "keys", "show", "--json"], cwd=second, capture_output=True, check=True)
            assert json.loads(theirs.stdout)["peer_id"] in {peer["peer"] for peer in peers}
        finally:
            os.killpg(started.pid, signal.SIGTERM)
            started.wait(20)


def test_prometheus_scrapes_the_nodes_with_the_token() -> None:
    scrape = SCRAPES["syncline"]
    assert scrape["static_configs"] == [{"targets": ["node-a:7070", "node-b:7070"]}]
    assert scrape["authorization"]["credentials"] == "${SYNCLINE_API_TOKEN}"
    hosts = OURS["node-a"]["environment"]["SYNCLINE_API_HOSTS"].split(",")
    assert {"node-a", "node-b"} <= set(hosts)  # else the guard would answer 421


def test_prometheus_scrapes_the_pipeline_where_it_serves_its_metrics() -> None:
    command = OURS["pipeline"]["command"]
    options = dict(pairwise(command))
    assert options["--metrics-host"] == "0.0.0.0"
    assert SCRAPES["pipeline"]["static_configs"] == [{"targets": [f"pipeline:{options['--metrics-port']}"]}]
    assert "ports" not in OURS["pipeline"]  # there is no token


def test_the_metrics_of_a_pipeline_are_served_on_the_address_that_was_asked_for(tmp_path: Path) -> None:
    port = serve_metrics(idle_pipeline(tmp_path), 0, "127.0.0.2")
    assert "syncline_lake_lag_segments 0.0" in httpx.get(f"http://127.0.0.2:{port}/metrics").text
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/metrics")


def test_every_metric_of_the_grafana_dashboard_is_one_a_node_or_the_pipeline_has(run: Run, tmp_path: Path) -> None:
    wanted = {
        name
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
        for name in re.findall(r"syncline_[a-z0-9_]+", target["expr"])
    }
    assert len(wanted) > 10
    assert run("init").returncode == 0
    with up(tmp_path) as ready, httpx.Client(base_url=ready["url"]) as node:
        assert node.post("/api/v1/publish/sdsp", json={"uid": "x", "topic": "t", "data": 1}).is_success
        exposed = node.get("/metrics").text
    exposed += httpx.get(f"http://127.0.0.1:{serve_metrics(idle_pipeline(tmp_path), 0, '127.0.0.1')}/metrics").text
    assert sorted(wanted - set(re.findall(r"^(syncline_[a-z0-9_]+)[ {]", exposed, re.MULTILINE))) == []
    assert {panel["datasource"]["uid"] for panel in DASHBOARD["panels"]} == {"prometheus"}


def test_the_image_is_built_from_what_is_in_the_tree() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copied = [part for line in lines if line.startswith("COPY") for part in line.split()[1:-1]]
    assert [part for part in copied if not (ROOT / part).exists()] == []
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert not set(copied) & set(ignored)
    entry = next(json.loads(line.removeprefix("ENTRYPOINT ")) for line in lines if line.startswith("ENTRYPOINT"))
    command = next(json.loads(line.removeprefix("CMD ")) for line in lines if line.startswith("CMD"))
    health = next(line.partition("CMD ")[2] for line in lines if line.startswith("HEALTHCHECK"))
    for call in ([*entry, *command], json.loads(health)):
        assert call[0] == "syncline"
        check(shlex.split(shlex.join(call))[1:])
