"""Publishers and followers killed without warning, as real processes, against a real NATS server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import pytest

from syncline.protocols.sdsp.deltas import Deltas
from syncline.protocols.sdsp.publisher import Publisher
from syncline.protocols.sdsp.rebuild import State, object_at
from syncline.protocols.sdsp.wire import decode
from syncline.transports.nats import open_nats
from tests.transports.conftest import NatsServer

pytestmark = pytest.mark.anyio

PUBLISH = """
import sys, anyio
from pathlib import Path
from syncline.protocols.sdsp.publisher import Publisher
from syncline.core.errors import NotFoundError
from syncline.transports.nats import open_nats

async def main(url, folder, uid):
    async with open_nats(url) as transport, Publisher(transport, state=folder) as publisher:
        try:
            sat = await publisher.open(uid)
        except NotFoundError:
            sat = await publisher.create({"n": 0, "pad": "x" * 300}, uid=uid)
        print("at", sat.serial, flush=True)
        while True:
            await sat.update({**sat.value, "n": sat.value["n"] + 1})
            print("sent", sat.serial, sat.value["n"], flush=True)

anyio.run(main, *sys.argv[1:], backend="trio")
"""

FOLLOW = """
import sys, anyio
from pathlib import Path
from syncline.protocols.sdsp.subscriber import follow
from syncline.protocols.sdsp.rebuild import State
from syncline.transports.nats import open_nats

async def main(url, file, uid):
    kept = Path(file)
    state = State.from_bytes(kept.read_bytes()) if kept.exists() else None
    async with open_nats(url) as transport, follow(transport, uid, state=state) as object:
        async for event in object:
            print(type(event).__name__, event.serial, object.value["n"], flush=True)
            fresh = kept.with_suffix(".new")
            fresh.write_bytes(object.state.to_bytes())
            fresh.replace(kept)

anyio.run(main, *sys.argv[1:], backend="trio")
"""


class Program:
    """A child process whose lines are read one by one, and which is killed, not asked to stop."""

    def __init__(self, code: str, *arguments: str) -> None:
        self._process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._out: IO[str] = self._process.stdout

    def lines(self, number: int) -> list[list[str]]:
        return [self._out.readline().split() for _ in range(number)]

    def kill(self) -> list[list[str]]:
        """Kill it; what it had still said."""
        self._process.kill()
        rest = self._out.read().splitlines()
        self._process.wait()
        self._out.close()
        return [line.split() for line in rest]


async def published(url: str, uid: str) -> Sequence[bytes]:
    async with open_nats(url) as transport:
        return await transport.replay(uid, uid=uid, first=0, last=10**6)


async def test_a_publisher_killed_at_any_moment_goes_on_without_using_a_serial_twice(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    uid = f"killed-{tmp_path.name}"
    acknowledged = 0
    for round in range(4):
        program = Program(PUBLISH, nats_server.url, str(tmp_path / "state"), uid)
        [[word, first]] = program.lines(1)
        assert word == "at"
        assert int(first) >= acknowledged
        said = [*program.lines(15 + 7 * round), *program.kill()]
        acknowledged = max(int(line[1]) for line in said if len(line) == 3)
    frames = [decode(raw) for raw in await published(nats_server.url, uid)]
    assert [frame.serial for frame in frames] == list(range(len(frames)))
    assert len(frames) > acknowledged
    final = object_at(frames[-1].serial, frames, Deltas())
    assert isinstance(final, State)
    assert final.value["n"] == frames[-1].serial  # every serial carried exactly one step


async def test_a_publisher_killed_between_writing_and_sending_sends_the_same_frame(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    uid = f"between-{tmp_path.name}"
    async with open_nats(nats_server.url) as transport:

        class Dying:
            """Takes a frame and dies before it is sent."""

            capabilities = transport.capabilities

            async def publish(self, topic: str, payload: bytes, *, dedupe_id: str, expect_serial: int | None) -> None:
                raise KeyboardInterrupt

        async with Publisher(transport, state=tmp_path / "state") as publisher:
            await publisher.create({"n": 0, "pad": "x" * 300}, uid=uid)
        async with Publisher(transport, state=tmp_path / "state") as publisher:
            sat = await publisher.open(uid)
            publisher.transport = Dying()  # type: ignore[assignment]
            with pytest.raises(KeyboardInterrupt):
                await sat.update({"n": 1, "pad": "x" * 300})
        async with Publisher(transport, state=tmp_path / "state") as publisher:
            sat = await publisher.open(uid)
            assert (sat.serial, sat.value["n"]) == (1, 1)
            assert await sat.update({"n": 2, "pad": "x" * 300}) == 2
        frames = [json.loads(raw) for raw in await transport.replay(uid, uid=uid, first=0, last=9)]
    assert [frame["serial"] for frame in frames] == [0, 1, 2]


async def test_a_follower_killed_mid_stream_hears_the_rest_without_loss_or_repeats(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    uid = f"follower-{tmp_path.name}"
    async with open_nats(nats_server.url) as transport, Publisher(transport) as publisher:
        sat = await publisher.create({"n": 0, "pad": "x" * 5_000}, uid=uid)
        for n in range(1, 21):
            await sat.update({**sat.value, "n": n})
        program = Program(FOLLOW, nats_server.url, str(tmp_path / "state"), uid)
        heard = [*program.lines(10), *program.kill()]
        for n in range(21, 31):
            await sat.update({**sat.value, "n": n})
        kept = State.from_bytes((tmp_path / "state").read_bytes()).serial
        again = Program(FOLLOW, nats_server.url, str(tmp_path / "state"), uid)
        rest = again.lines(30 - kept)
        again.kill()
    assert heard[0] == ["Ready", "0", "0"]
    assert rest[0][0] == "Update"
    whole = [line for line in heard if int(line[1]) <= kept] + rest
    assert [int(line[1]) for line in whole] == list(range(31))
    assert all(line[1] == line[2] for line in whole)
