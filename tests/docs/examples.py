"""Runs the code blocks of a page as a reader would: one shell, one folder, in order, with the output they promise.

`sh` and `python` blocks are executed; a `text` block after one is what it prints, where a line may hold … for anything.
Default ports are replaced by free ones, in the page and, through variables, in the nodes it starts.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PORTS = (7070, 7071, 7072, 6363, 8070, 8071, 8072, 8363)
MARK = "--- end of block"
MAKE = re.compile(r"^make \w+", re.MULTILINE)


class Block:
    """One fenced block, and where it is."""

    def __init__(self, page: Path, language: str, code: str, line: int) -> None:
        self.language, self.code, self.where = language, code, f"{page.relative_to(ROOT)}:{line}"


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(page, match[1], match[2], text[: match.start()].count("\n") + 1)
        for match in BLOCK.finditer(text)
        if not MAKE.search(match[2])
    ]


def run_page(page: Path, folder: Path, seconds: float = 110.0) -> None:
    """Run every block of a page; fail with the block's place and what it said."""
    blocks = blocks_of(page)
    steps = [block for block in blocks if block.language in ("sh", "python")]
    assert steps, "a page without examples"
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    script = "\n".join(["set -e", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT", *map(_step, steps)])
    script = re.sub(r"\b(" + "|".join(map(str, PORTS)) + r")\b", lambda match: str(ports[int(match[1])]), script)
    process = subprocess.Popen(
        ["bash", "-c", script], cwd=folder, env=_environment(folder, ports), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
        pytest.fail(f"{page.name} takes too long; it said:\n{said[-4000:]}")
    parts = said.split(MARK + "\n")
    done = len(parts) - 1
    for step, part in zip(steps[:done], parts, strict=False):
        _check(step, _promised(blocks, step), part)
    if process.returncode != 0 or done < len(steps):
        pytest.fail(f"{steps[min(done, len(steps) - 1)].where} failed ({process.returncode}):\n{parts[-1][-4000:]}")


def _step(block: Block) -> str:
    code = block.code
    if block.language == "python":
        code = f"python - <<'END_OF_PYTHON'\n{code}END_OF_PYTHON\n"
    return f"{code}\necho {shlex.quote(MARK)}"


def _promised(blocks: list[Block], step: Block) -> list[str]:
    """The lines of the `text` block right behind this one."""
    at = blocks.index(step) + 1
    return blocks[at].code.splitlines() if at < len(blocks) and blocks[at].language == "text" else []


def _check(step: Block, promised: list[str], said: str) -> None:
    lines = [" ".join(line.split()) for line in said.splitlines()]
    for line in promised:
        pattern = re.escape(" ".join(line.split())).replace("…", ".*")
        if not any(re.fullmatch(pattern, each) for each in lines):
            pytest.fail(f"{step.where} does not print {line!r}, but:\n{said[-3000:]}")


def _environment(folder: Path, ports: dict[int, int]) -> dict[str, str]:
    programs = folder.parent / "programs"
    programs.mkdir(exist_ok=True)
    for name, arguments in (("python", ""), ("syncline", "-m syncline.cli.main")):
        script = programs / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments} "$@"\n')
        script.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SYNCLINE_")}
    return {
        **kept,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "NO_COLOR": "1",
        "COLUMNS": "160",
        "SYNCLINE_API_PORT": str(ports[7070]),
        "SYNCLINE_LIBP2P_LISTEN": f"/ip4/127.0.0.1/tcp/{ports[7071]}",
        "SYNCLINE_RELAY_PORT": str(ports[7072]),
        "SYNCLINE_SVS_TCP_PORT": str(ports[6363]),
        "SYNCLINE_SVS_UDP_PORT": "-1",
        "SYNCLINE_SVS_WEBSOCKET_PORT": "-1",
        "SYNCLINE_SEGMENTS_SECONDS": "1",
    }
