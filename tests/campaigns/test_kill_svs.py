"""Kill -9 of a node that publishes into a group: what was acknowledged is there and served, no number is used twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import anyio
import pytest

from syncline.protocols.svs.service import join
from syncline.protocols.svs.session import Options, Publication
from tests.campaigns.conftest import LONG, Figures
from tests.ports import free_port

pytestmark = [pytest.mark.campaign, pytest.mark.anyio]
ROOT = Path(__file__).resolve().parents[2]
KILLS = 60 if LONG else 6


class Life:
    """One life of the publisher."""

    def __init__(self, folder: Path, port: int, number: int) -> None:
        command = [sys.executable, "-m", "tests.campaigns.svs_publisher", str(folder), str(port), str(number)]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        self._process = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._lines = self._process.stdout
        assert self._next() == "ready"

    def _next(self) -> str:
        """What it says next, past its log."""
        for line in self._lines:
            if line.startswith("ack ") and line.endswith("\n"):
                return line[4:-1]
        return ""

    def acknowledged(self, count: int) -> dict[int, str]:
        """So many acknowledged publications, then a kill; more may have been on their way."""
        found = [self._next() for _ in range(count)]
        self._process.kill()
        while line := self._next():
            found.append(line)
        self._process.wait()
        self._lines.close()
        return {int(seq): text for seq, _, text in (line.partition(" ") for line in found)}


@pytest.mark.timeout(1_800)
async def test_a_killed_publisher_loses_nothing_it_acknowledged_and_uses_no_number_twice(
    tmp_path: Path, figures: Figures, seed: int
) -> None:
    chance, port = Random(seed), free_port()
    kept: dict[int, str] = {}
    for number in range(KILLS):
        life = await anyio.to_thread.run_sync(Life, tmp_path / "node", port, number)
        found = await anyio.to_thread.run_sync(life.acknowledged, chance.randrange(1, 60))
        assert found, "nothing was acknowledged before the kill"
        assert min(found) > max(kept, default=0), "a number was used twice"
        kept |= found
    last = await anyio.to_thread.run_sync(Life, tmp_path / "node", port, KILLS)
    heard: dict[int, str] = {}
    try:
        everything = Options(backlog=None)
        async with join("/room", forwarder=f"tcp://127.0.0.1:{port}", options=everything) as group:

            def take(publication: Publication) -> None:
                text = bytes(publication.payload).decode()
                assert heard.setdefault(publication.seq, text) == text

            group.subscribe("/log", take)
            with anyio.fail_after(120):
                while not kept.keys() <= heard.keys():
                    await anyio.sleep(0.05)
    finally:
        await anyio.to_thread.run_sync(last.acknowledged, 1)
    assert {seq: heard[seq] for seq in kept} == kept
    assert len(set(heard.values())) == len(heard), "one publication under two numbers"
    figures(kills=KILLS, acknowledged=len(kept), served=len(heard), highest=max(heard))
