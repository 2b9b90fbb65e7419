"""docs/quickstart-spark.md, block by block, against a real node, with exactly the output it shows."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.cli.conftest import up
from tests.lake.conftest import command, environment

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "quickstart-spark.md"
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(), re.DOTALL)


def trimmed(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(400)  # half a minute, unless the machine is busy
def test_every_block_runs_and_prints_what_the_page_shows(tmp_path: Path) -> None:
    shell = [line for kind, block in BLOCKS if kind == "bash" for line in block.splitlines()]
    install, init, start, *later = shell
    extra = re.fullmatch(r"pip install 'syncline\[(\w+)\]'", install)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extra is not None
    assert extra[1] in extras
    assert (init, start) == ("syncline init", "syncline up")
    assert command(tmp_path, "init").returncode == 0
    with up(tmp_path, "--set", "segments.seconds=0.5") as node:
        python = [block.replace("http://127.0.0.1:7070", node["url"]) for kind, block in BLOCKS if kind == "python"]
        done = subprocess.run(
            [sys.executable, "-m", "tests.lake.notebook"],
            input=json.dumps(python),
            cwd=tmp_path,
            env={**environment(), "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
            capture_output=True,
            text=True,
            timeout=360,
        )
    assert done.returncode == 0, done.stderr[-3_000:]
    printed = iter(json.loads(line) for line in done.stdout.splitlines())
    for (kind, _), (following, shown) in zip(BLOCKS, [*BLOCKS[1:], ("", "")], strict=True):
        if kind == "python":
            assert trimmed(next(printed)) == (trimmed(shown) if following == "text" else [])
    for line in later:
        found = command(tmp_path, *shlex.split(line)[1:])
        assert found.returncode == 0, found.stderr
    assert len((tmp_path / "omm.csv").read_text().splitlines()) == 3
