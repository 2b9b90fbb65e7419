"""Kill -9 around a publish: no height is ever announced twice."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
import pytest

from syncline.core.keys import NodeKey
from syncline.networks.libp2p.host import running_host
from syncline.protocols.shrex.wire import header as headers
from syncline.protocols.shrex.wire.notification import TOPIC, decode
from syncline.testing.headers import chain

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).resolve().parents[3]


async def publish(folder: Path, address: str, height: int, data_hash: bytes, crash_at: str = "") -> tuple[int, str]:
    command = [
        sys.executable,
        "-m",
        "tests.protocols.shrex.publisher",
        str(folder),
        address,
        str(folder.parent / "headers.jsonl"),
        str(height),
        data_hash.hex(),
    ]
    path = os.environ.get("PYTHONPATH") or str(ROOT / "src")
    environment = {**os.environ, "SYNCLINE_CRASH_AT": crash_at, "PYTHONPATH": f"{path}{os.pathsep}{ROOT}"}
    done = await anyio.run_process(command, env=environment, cwd=ROOT, check=False, stderr=None)
    said = [line.removeprefix("result: ") for line in done.stdout.decode().splitlines() if line.startswith("result: ")]
    return done.returncode, "".join(said)


@pytest.mark.parametrize(
    ("point", "first", "heard"),
    [
        ("shrex.publish.marked", (-9, ""), 0),  # marked, never sent: at most once, and said so
        ("shrex.publish.sent", (-9, ""), None),  # handed to the connection: it may or may not have left
        ("journal.before-commit:6", (-9, ""), None),  # five headers, then the mark: not kept, so it may be sent later
        ("journal.after-commit:6", (-9, ""), 0),
        ("", (0, "sent"), 1),
    ],
)
async def test_a_height_is_announced_at_most_once_wherever_the_kill_falls(
    tmp_path: Path, point: str, first: tuple[int, str], heard: int | None
) -> None:
    made = chain(5)
    (tmp_path / "headers.jsonl").write_bytes(b"".join(headers.encode(header) + b"\n" for header in made))
    folder, tip = tmp_path / "node", made[-1]
    found: list[int] = []
    async with running_host(NodeKey.generate()) as listener, listener.flood.subscribe(TOPIC) as subscription:

        async def listen() -> None:
            async for batch in subscription:
                found.extend(decode(delivery.message.data).height for delivery in batch)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            assert await publish(folder, listener.addresses[0], 5, tip.data_hash, point) == first
            second = await publish(folder, listener.addresses[0], 5, tip.data_hash)
            third = await publish(folder, listener.addresses[0], 5, tip.data_hash)
            await anyio.sleep(0.2)
            tasks.cancel_scope.cancel()
    assert third == (0, "ConflictError")
    assert second == ((0, "sent") if point.startswith("journal.before") else (0, "ConflictError"))
    assert len(found) <= 1
    assert set(found) <= {5}
    if heard is not None:
        assert len(found) == heard
