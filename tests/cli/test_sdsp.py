"""`syncline pub sdsp` and `syncline sdsp …` against a running node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from syncline.cli.main import app
from syncline.core.errors import SynclineError
from tests.cli.conftest import Run, up


class Shell:
    """The program, told where the node is. In this process, as it is called many times; exit codes as `main` gives them."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, *arguments: str, given: str | bytes = "", code: int = 0) -> str:
        result = CliRunner().invoke(app, [*arguments, "--node", self._url], input=given)
        if isinstance(result.exception, SynclineError):
            assert result.exception.exit_code == code, str(result.exception)
            return str(result.exception)
        assert (result.exit_code, result.exception) == (code, None), result.output
        return result.stdout

    def json(self, *arguments: str, given: str | bytes = "") -> Any:
        lines = self(*arguments, "--json", given=given).splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
def shell(run: Run, tmp_path: Path) -> Iterator[Shell]:
    run("init")
    with up(tmp_path) as ready:
        yield Shell(ready["url"])


def test_an_object_is_published_read_compared_and_frozen(shell: Shell) -> None:
    pad = "x" * 200
    assert (
        shell("pub", "sdsp", "--uid", "sat-1", "--topic", "sats", given=json.dumps({"n": 0, "pad": pad}))
        == "sat-1  0\n"
    )
    [second] = shell.json("pub", "sdsp", "--uid", "sat-1", given=json.dumps({"n": 1, "pad": pad}))
    assert (second["serial"], second["kind"], second["topic"]) == (1, "delta", "sats")
    assert "(nothing changed)" in shell("pub", "sdsp", "--uid", "sat-1", given=json.dumps({"n": 1, "pad": pad}))
    patch = json.dumps([{"op": "replace", "path": "/n", "value": 2}])
    assert shell("pub", "sdsp", "--uid", "sat-1", "--delta", "jp", given=patch) == "sat-1  2\n"
    assert json.loads(shell("sdsp", "cat", "sat-1"))["n"] == 2
    assert json.loads(shell("sdsp", "cat", "sat-1", "--at", "0"))["n"] == 0
    assert shell.json("sdsp", "cat", "sat-1")[0]["serial"] == 2
    assert shell("sdsp", "diff", "sat-1") == "replace /n 2\n"
    assert shell.json("sdsp", "diff", "sat-1", "0", "1")[0]["changes"] == [{"op": "replace", "path": "/n", "value": 1}]
    assert shell("sdsp", "freeze", "sat-1") == "sat-1 is frozen at serial 3\n"
    assert "is frozen" in shell("pub", "sdsp", "--uid", "sat-1", given="1", code=1)
    frames = shell.json("sdsp", "log", "sat-1")
    assert [(each["serial"], each["ver"], each["kind"], each["alg"]) for each in frames] == [
        (0, 0, "full", None),
        (1, 1, "delta", "jp"),
        (2, 2, "delta", "jp"),
        (3, 3, "freeze", None),
    ]
    assert "freeze" in shell("sdsp", "log", "sat-1")
    [listed] = shell.json("sdsp", "list")
    assert listed == {"uid": "sat-1", "topic": "sats", "serial": 3, "kind": "json", "status": "frozen"}
    assert "frozen" in shell("sdsp", "list")
    events = shell.json("sdsp", "watch", "sat-1")
    assert [(event["type"], event["serial"]) for event in events] == [
        ("ready", 0),
        ("update", 1),
        ("update", 2),
        ("frozen", 3),
    ]
    assert shell.json("sdsp", "watch", "sat-1", "--after", "3") == []  # it was frozen there
    rest = shell.json("sdsp", "watch", "sat-1", "--after", "1")
    assert [(event["type"], event["serial"]) for event in rest] == [("update", 2), ("frozen", 3)]
    assert shell("sdsp", "watch", "sat-1").splitlines()[-1].startswith("     3  frozen  {")


def test_texts_and_binaries_are_recognised(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "note.txt"
    file.write_text("one\ntwo\n")
    [first] = shell.json("pub", "sdsp", str(file))
    file.write_text("one\nthree\n")
    shell("pub", "sdsp", str(file), "--uid", first["uid"])
    assert shell("sdsp", "cat", first["uid"]) == "one\nthree\n"
    assert shell("sdsp", "diff", first["uid"]).splitlines()[3:] == [" one", "-two", "+three"]
    [binary] = shell.json("pub", "sdsp", "--whole", given=b"\xff\x00\xff")
    assert shell.json("sdsp", "cat", binary["uid"])[0]["kind"] == "binary"


def test_what_cannot_be_done_is_said_in_one_line(shell: Shell) -> None:
    assert shell("sdsp", "cat", "nobody", code=1) == "this node has no object of that name [nobody]"
    assert "this is not JSON" in shell("pub", "sdsp", "--kind", "json", given="{", code=2)
    assert "a kind is one of" in shell("pub", "sdsp", "--kind", "xml", given="{", code=2)
    assert "cannot read it" in shell("pub", "sdsp", "missing.json", code=2)
    shell("pub", "sdsp", "--uid", "a", given="{}")
    assert "this node has no frame 9 of the object" in shell("sdsp", "cat", "a", "--at", "9", code=1)


def test_nobody_there_is_exit_code_3(run: Run) -> None:
    for command in (("sdsp", "cat", "x"), ("sdsp", "watch", "x"), ("sdsp", "list")):
        done = run(*command, "--node", "http://127.0.0.1:9")
        assert done.returncode == 3, done.stderr
        assert done.stderr.startswith("error: no node answers")
