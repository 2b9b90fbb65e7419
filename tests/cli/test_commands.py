from __future__ import annotations

import json
import socket
import stat
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from syncline.core.keys import NodeKey
from tests.cli.conftest import Run, free_ports, up

HEAVY = ("pyspark", "libp2p", "pyarrow", "trio", "anyio", "httpx", "duckdb", "deltalake", "nacl", "structlog", "apsw")


def loaded_by(code: str) -> set[str]:
    """Which heavy packages a program pulls in."""
    script = f"{code}; import sys; print(' '.join(m for m in {HEAVY!r} if m in sys.modules))"
    return set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    )


def test_importing_the_package_pulls_in_nothing_heavy() -> None:
    assert loaded_by("import syncline") == set()


def test_help_imports_nothing_heavy(run: Run) -> None:
    assert loaded_by("import syncline.cli.main") <= {"nacl"}
    result = run("--help")
    assert result.returncode == 0
    assert "Run a node" in result.stdout


def test_init_makes_a_private_key_and_settings_once(run: Run, tmp_path: Path) -> None:
    first = run("init", "home", "--json")
    again = run("init", "home")
    found = json.loads(first.stdout)
    assert found["node"] == NodeKey.load(tmp_path / "home" / "node.key").peer_id
    assert stat.S_IMODE((tmp_path / "home" / "node.key").stat().st_mode) == 0o600
    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr.startswith("error: there is a settings file already")
    assert len(again.stderr.strip().splitlines()) == 1


def test_init_keeps_a_key_that_is_there(run: Run, tmp_path: Path) -> None:
    key = NodeKey.generate()
    key.save(tmp_path / "node.key")
    assert json.loads(run("init", "--json").stdout)["node"] == key.peer_id


def test_keys_shows_public_names_only(run: Run, tmp_path: Path) -> None:
    run("init")
    key = NodeKey.load(tmp_path / "node.key")
    shown = run("keys", "show", "--json")
    assert json.loads(shown.stdout) == {"peer_id": key.peer_id, "did": key.did, "public_key": key.public.hex()}
    assert key.seed.hex() not in shown.stdout + shown.stderr
    assert run("keys", "new", "node.key").returncode == 2
    assert NodeKey.load(tmp_path / "node.key").seed == key.seed


def test_config_shows_value_and_origin(run: Run) -> None:
    run("init")
    result = run("--set", "log.level=debug", "config", "--json", SYNCLINE_API_PORT="0", SYNCLINE_API_TOKEN="hush")
    shown = json.loads(result.stdout)
    assert shown["api.port"] == {"value": 0, "origin": "environment"}
    assert shown["log.level"] == {"value": "debug", "origin": "flag"}
    assert shown["node.data"] == {"value": "data", "origin": "file"}
    assert shown["journal.retention_hours"]["origin"] == "default"
    assert "hush" not in result.stdout
    table = run("config", "--origin").stdout
    assert "origin" in table.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--set", "api.prot=1", "config"], 2, "did you mean api.port?"),
        (["--set", "nonsense", "config"], 2, "--set takes KEY=VALUE"),
        (["--config", "absent.toml", "up"], 2, "there is no settings file"),
        (["up"], 2, "run `syncline init`"),
        (["tail", "--node", "http://127.0.0.1:9"], 3, "no node answers"),
        (["keys", "show"], 2, "there is no key file"),
        (["keys", "new", "/dev/null/x"], 1, "[/dev/null"),
        (["journal", "export", "out.csv", "--format", "csv"], 2, "there is no journal"),
        (["journal", "export", "out", "--format", "xml"], 2, "use one of parquet"),
        (["tial"], 2, "Did you mean 'tail'?; see `syncline --help`"),
        (["tail", "--reson", "x"], 2, "see `syncline tail --help`"),
        (["tail", "-n", "many"], 2, "'--number'"),
        (["journal", "backup"], 2, "Missing argument 'file'"),
    ],
)
def test_an_error_is_one_line_with_what_to_do_and_its_exit_code(
    run: Run, arguments: list[str], code: int, message: str
) -> None:
    result = run(*arguments)
    assert (result.returncode, result.stdout) == (code, "")
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_failed_export_leaves_no_file_and_never_overwrites_one(run: Run, tmp_path: Path) -> None:
    run("init")
    assert run("journal", "export", "out.csv", "--format", "csv").returncode == 2
    assert not (tmp_path / "out.csv").exists()
    with up(tmp_path):
        pass
    (tmp_path / "kept").write_text("mine")
    refused = run("journal", "export", "kept")
    assert (refused.returncode, (tmp_path / "kept").read_text()) == (2, "mine")
    assert refused.stderr == "error: a file of this name is already there [kept]; name a new one\n"


def test_a_port_that_a_protocol_cannot_have_is_told_in_one_line(run: Run) -> None:
    run("init")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"/ip4/127.0.0.1/tcp/{taken.getsockname()[1]}"
        flags = [*free_ports(), "--set", "api.port=0", "--set", f"libp2p.listen={address}"]
        result = run(*flags, "up", "--json")
    told = [line for line in result.stderr.splitlines() if not line.startswith("{")]  # beside the log
    assert (result.returncode, result.stdout) == (2, "")
    assert told == [f"error: cannot listen on {address}: Address already in use; choose another libp2p.listen"]


def test_a_node_runs_answers_and_stops_in_order(run: Run, tmp_path: Path) -> None:
    node = json.loads(run("init", "--json").stdout)["node"]
    with up(tmp_path) as ready:
        assert ready["node"] == node
        tail = run("tail", "-e", "--json", "--node", ready["url"])
        assert (tail.returncode, tail.stdout) == (0, "")
    assert (tmp_path / "data" / "journal.db").exists()


def test_a_node_with_a_token_answers_only_those_who_have_it(run: Run, tmp_path: Path) -> None:
    run("init")
    with up(tmp_path, "--set", "api.token=hush") as ready:
        without = run("tail", "-e", "--node", ready["url"])
        given = run("tail", "-e", "--node", ready["url"], SYNCLINE_API_TOKEN="hush")
    assert (without.returncode, given.returncode) == (1, 0)
    assert "SYNCLINE_API_TOKEN" in without.stderr


def findings(result: subprocess.CompletedProcess[str]) -> dict[str, dict[str, str]]:
    return {each["check"]: each for each in json.loads(result.stdout)["findings"]}


def test_doctor_finds_nothing_wrong_with_a_fresh_node(run: Run) -> None:
    run("init")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    result = run(*free_ports(), "--set", f"api.port={port}", "doctor", "--json")
    found = findings(result)
    assert {name for name, each in found.items() if each["level"] != "ok"} <= {"clock", "disk"}  # a busy disk is slow
    assert found["port"]["detail"] == f"free: api.port {port}"
    assert found["clock"]["detail"] == "compared with nobody's"
    assert "syncline doctor --clock" in found["clock"]["fix"]
    assert result.returncode == 0
    assert all(each["fix"] for each in found.values() if each["level"] != "ok")


def test_doctor_names_a_taken_port_and_a_readable_key_with_their_cure(run: Run, tmp_path: Path) -> None:
    run("init")
    (tmp_path / "node.key").chmod(0o644)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = run("--set", f"api.port={taken.getsockname()[1]}", "doctor", "--json")
    found = findings(result)
    assert result.returncode == 1
    assert found["key"]["level"] == "fail"
    assert found["key"]["fix"] == f"run `chmod 600 {tmp_path / 'node.key'}`"
    assert found["port"]["level"] == "fail"
    assert "api.port=0" in found["port"]["fix"]


def test_doctor_knows_its_own_running_node(run: Run, tmp_path: Path) -> None:
    run("init")
    with up(tmp_path, "--set", "api.token=hush") as ready:
        port = ready["url"].rpartition(":")[2]
        result = run("--set", f"api.port={port}", "doctor", "--json", SYNCLINE_API_TOKEN="hush")
    assert findings(result)["port"]["detail"] == f"this node is running at 127.0.0.1:{port}"
    assert result.returncode == 0


class OldDate(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.send_response_only(200)
        self.send_header("Date", "Mon, 01 Jan 2024 00:00:00 GMT")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


def test_doctor_finds_a_clock_that_is_off(run: Run) -> None:
    run("init")
    with HTTPServer(("127.0.0.1", 0), OldDate) as server:
        Thread(target=server.handle_request, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        result = run("doctor", "--json", "--clock", url)
    clock = findings(result)["clock"]
    assert (clock["level"], result.returncode) == ("fail", 1)
    assert f"ahead of {url}" in clock["detail"]


def test_doctor_finds_an_open_address_without_a_token(run: Run) -> None:
    run("init")
    found = findings(run("--set", "api.host=0.0.0.0", "doctor", "--json"))
    assert (found["token"]["level"], "SYNCLINE_API_TOKEN" in found["token"]["fix"]) == ("fail", True)


def test_plugins_lists_what_is_installed(run: Run) -> None:
    result = run("plugins", "--json")
    assert isinstance(json.loads(result.stdout), list)
