"""A killed relay loses nothing it answered true to, wherever the kill falls."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import anyio
import pytest

from syncline.core.errors import SynclineError
from syncline.core.keys import NodeKey
from syncline.core.retry import Backoff
from syncline.protocols.relay.client import RelayClient
from tests.ports import free_port
from tests.relays import topic_of
from tests.relays.processes import RelayProcess

NEWS = topic_of("news")
SOON = Backoff(first=0.02, longest=0.2)


async def publish_until_killed(server: RelayProcess, kept: list[str], *, start: int, count: int) -> None:
    """Several clients publish; the server is killed when `count` messages have been answered."""
    async with anyio.create_task_group() as tasks:

        async def publisher(number: int) -> None:
            async with RelayClient(server.url, backoff=SOON) as client:
                for index in range(10_000):
                    text = f"{start}-{number}-{index}"
                    try:
                        await client.publish(NEWS, text, timeout=10)
                    except SynclineError:
                        return
                    kept.append(text)

        for number in range(4):
            tasks.start_soon(publisher, number)
        with anyio.fail_after(20):
            while len(kept) < count:
                await anyio.sleep(0.001)
        await server.kill()
        tasks.cancel_scope.cancel()


async def test_a_killed_relay_has_everything_it_answered_true_to(tmp_path: Path) -> None:
    server = RelayProcess(tmp_path / "a", free_port())
    kept: list[str] = []
    try:
        for round_ in range(2):
            await server.start()
            await publish_until_killed(server, kept, start=round_, count=len(kept) + 40)
        await server.start()
        async with RelayClient(server.url) as reader:
            found = [each.message for each in await reader.fetch(NEWS)]
    finally:
        await server.kill()
    assert len(kept) >= 80
    assert set(kept) <= set(found)
    assert max(Counter(found).values()) == 1


@pytest.mark.parametrize("point", ["journal.before-commit", "journal.after-commit"])
async def test_a_kill_at_a_named_point_of_the_commit_loses_nothing(
    tmp_path: Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = RelayProcess(tmp_path / "a", free_port())
    kept: list[str] = []
    try:
        monkeypatch.setenv("SYNCLINE_CRASH_AT", f"{point}:12")
        await server.start()
        async with RelayClient(server.url, backoff=SOON) as client:
            for index in range(50):
                try:
                    await client.publish(NEWS, str(index), timeout=0.5)
                except SynclineError:
                    break
                kept.append(str(index))
        monkeypatch.delenv("SYNCLINE_CRASH_AT")
        await server.kill()
        await server.start()
        async with RelayClient(server.url) as reader:
            found = [each.message for each in await reader.fetch(NEWS)]
    finally:
        await server.kill()
    assert 0 < len(kept) < 50
    assert found[: len(kept)] == kept
    assert len(found) - len(kept) in (0, 1)  # the one that was not answered may or may not be there


async def test_what_was_acknowledged_before_a_kill_is_not_delivered_again(tmp_path: Path) -> None:
    server, key = RelayProcess(tmp_path / "a", free_port()), NodeKey.generate()
    try:
        await server.start()
        async with RelayClient(server.url) as alice, RelayClient(server.url, key) as bob:
            with anyio.fail_after(10):
                async with bob.subscribe(NEWS) as messages:
                    for index in range(5):
                        await alice.publish(NEWS, str(index))
                    had = [(await anext(aiter(messages))).message for _ in range(5)]
                await anyio.sleep(1.5)  # acknowledgements are on disk within a second
        await server.kill()
        await server.start()
        async with RelayClient(server.url) as alice, RelayClient(server.url, key) as bob:
            with anyio.fail_after(10):
                async with bob.subscribe(NEWS) as messages:
                    await alice.publish(NEWS, "new")
                    later = (await anext(aiter(messages))).message
    finally:
        await server.kill()
    assert had == ["0", "1", "2", "3", "4"]
    assert later == "new"
