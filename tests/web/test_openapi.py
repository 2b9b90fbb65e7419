"""The HTTP API does what its OpenAPI document says: schemathesis asks every operation, rightly and wrongly."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import httpx

from tests.cli.conftest import Run, environment, up

HERE = Path(__file__).parent
ST = Path(sys.executable).with_name("st")
# Whether a message is good is for the protocol's rules to say; no JSON schema can, so a valid one may be refused.
EXCLUDED = "positive_data_acceptance"


def test_schemathesis_finds_nothing_to_complain_about(run: Run, tmp_path: Path) -> None:
    shutil.copy(HERE / "schemathesis.toml", tmp_path)
    assert run("init").returncode == 0
    with up(tmp_path) as ready, httpx.Client(base_url=ready["url"]) as node:
        for number in range(3):
            body = {"uid": "thing", "topic": "things", "data": {"n": number}}
            assert node.post("/api/v1/publish/sdsp", json=body).is_success
        command = [
            str(ST), "run", f"{ready['url']}/api/v1/openapi.json", "--seed", "1", "--max-examples", "12",
            "--phases", "examples,coverage,fuzzing", "--exclude-checks", EXCLUDED, "--request-timeout", "20",
            "--no-color", "--generation-database", "none",
        ]  # fmt: skip
        done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=110)
        assert done.returncode == 0, done.stdout[-6000:]
        status = node.get("/api/v1/status").json()
        assert status["state"] == "ready"
        assert status["statistics"]["judge_failures"] == 0


def test_the_node_serves_the_document_that_the_docs_hold(run: Run, tmp_path: Path) -> None:
    assert run("init").returncode == 0
    kept = json.loads((HERE.parents[1] / "docs" / "openapi.json").read_text())
    with up(tmp_path, "--set", "node.protocols=sdsp") as ready, httpx.Client(base_url=ready["url"]) as node:
        assert node.get("/api/v1/openapi.json").json() == kept
        for path in kept["paths"]:
            if "{" not in path and "get" in kept["paths"][path] and not path.startswith(("/shrex", "/relay")):
                assert node.get(path).is_success, path


def test_what_is_not_there_is_told_in_json(run: Run, tmp_path: Path) -> None:
    assert run("init").returncode == 0
    with up(tmp_path, "--set", "node.protocols=sdsp") as ready, httpx.Client(base_url=ready["url"]) as node:
        missing = node.get("/api/v1/nothing")
        assert (missing.status_code, missing.json()["error"]["type"]) == (404, "NotFoundError")
        wrong = node.delete("/api/v1/status")
        assert (wrong.status_code, wrong.json()["error"]["hint"]) == (405, "see docs/api.md")
