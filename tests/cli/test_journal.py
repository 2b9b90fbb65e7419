from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import PROGRAM, Run, environment, free_ports, running_in, up


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped node that has kept five frames."""
    folder = tmp_path_factory.mktemp("node")
    run = running_in(folder)
    run("init")
    with up(folder) as ready:
        for number in range(5):
            (folder / "o.json").write_text(json.dumps({"n": number, "pad": "x" * 300}))
            assert run("pub", "sdsp", "o.json", "--uid", "thing", "--node", ready["url"]).returncode == 0
    return folder


@pytest.fixture
def home(stopped: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged at will."""
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    return tmp_path


def damage(file: Path) -> None:
    """Flip one bit in the middle of every page but the first."""
    content = bytearray(file.read_bytes())
    for page in range(4096, len(content), 4096):
        content[page + 2048] ^= 1
    file.write_bytes(content)


def read(result: Any) -> Any:
    return json.loads(result.stdout)


def test_inspect_and_verify_tell_what_is_there(run: Run, home: Path) -> None:
    found = read(run("journal", "inspect", "--json"))
    assert (found["records"], found["newest"], found["sealed"], found["unsealed"]) == (5, 5, 5, 0)
    assert [(each["protocol"], each["verdict"], each["records"]) for each in found["counts"]] == [("sdsp", "accept", 5)]
    checked = read(run("journal", "verify", "--json"))
    assert (checked["sound"], checked["records"], checked["sealed_records"]) == (True, 5, 5)
    assert "lsn 1 to 5" in run("journal", "inspect").stdout


def test_export_and_backup_hold_every_record(run: Run, home: Path) -> None:
    assert read(run("journal", "export", "out.parquet", "--format", "parquet", "--json"))["records"] == 5
    assert pq.read_table(home / "out.parquet")["lsn"].to_pylist() == [1, 2, 3, 4, 5]
    lines = run("journal", "export", "--after", "3").stdout.splitlines()
    assert [json.loads(line)["lsn"] for line in lines] == [4, 5]
    assert read(run("journal", "backup", "copy.db", "--json"))["newest"] == 5
    assert run("journal", "backup", "copy.db").returncode == 2


def test_a_damaged_journal_is_told_by_every_command_and_recovered_by_one(run: Run, home: Path) -> None:
    file = home / "data" / "journal.db"
    damage(file)
    before = file.read_bytes()
    verified = run("journal", "verify")
    started = run("up")
    doctor = run("doctor", "--json")
    assert (verified.returncode, started.returncode, doctor.returncode) == (4, 4, 1)
    assert "syncline journal recover" in verified.stderr
    [finding] = [each for each in read(doctor)["findings"] if each["check"] == "journal"]
    assert finding["level"] == "fail"
    assert "syncline journal" in finding["fix"]
    assert file.read_bytes() == before  # nothing was changed
    recovered = read(run("journal", "recover", "--json"))
    [aside] = [Path(name) for name in recovered["quarantined"] if name.endswith("Z")]
    assert aside.read_bytes() == before
    assert recovered["missing"] == []  # all five are in segments
    assert run("journal", "verify").returncode == 0


def test_doctor_names_a_java_that_cannot_run_spark(run: Run, home: Path) -> None:
    (home / "old" / "bin").mkdir(parents=True)
    java = home / "old" / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    result = run("doctor", "--json", JAVA_HOME=str(home / "old"))
    [finding] = [each for each in read(result)["findings"] if each["check"] == "java"]
    assert (finding["level"], "JAVA_HOME" in finding["detail"]) == ("warn", True)
    assert finding["fix"] == "point JAVA_HOME at Java 17 or newer, or unset it"


def test_an_older_copy_put_back_ends_the_node_with_4_before_a_number_is_used_twice(run: Run, home: Path) -> None:
    """Its next records would bear numbers that sealed segments already hold."""
    journal = home / "data" / "journal.db"
    older = journal.read_bytes()
    with up(home) as ready:
        assert run("pub", "sdsp", "o.json", "--uid", "other", "--node", ready["url"]).returncode == 0
    journal.with_name("journal.db-mark").unlink()
    journal.write_bytes(older)
    flags = [*free_ports(), "--set", "api.port=0", "--set", "segments.seconds=0.1"]
    process = subprocess.Popen(
        [*PROGRAM, *flags, "up", "--json"],
        cwd=home,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    run("pub", "sdsp", "o.json", "--uid", "third", "--node", ready["url"])
    _, told = process.communicate(timeout=30)
    last = told.splitlines()[-1]
    assert process.returncode == 4
    assert last.startswith("error: a visible segment does not agree with the journal")
    assert "run `syncline journal recover`" in last
