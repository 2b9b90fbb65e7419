"""`syncline pub relay` against a running relay."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from syncline.protocols.relay.client import RelayClient
from syncline.protocols.relay.plugin import Relay
from syncline.protocols.relay.service import RelayService
from tests.cli.conftest import Run
from tests.nodes import NodeThread
from tests.relays import topic_of

WEATHER = hashlib.sha256(b"weather").hexdigest()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeThread]:
    folder = tmp_path / "node"
    folder.mkdir()
    thread = NodeThread(folder, {"relay": Relay()}, **{"relay.port": 0, "relay.drain_seconds": 0.2}).start()
    try:
        yield thread
    finally:
        thread.stop()


def relay_url(node: NodeThread) -> str:
    service = node.node.service("relay")
    assert isinstance(service, RelayService)
    return service.url


def cached(url: str, topic: str) -> list[tuple[str, int]]:
    async def fetch() -> list[tuple[str, int]]:
        async with RelayClient(url) as reader:
            return [(each.message, each.tag) for each in await reader.fetch(topic)]

    return anyio.run(fetch)


def test_a_message_is_published_through_a_node(node: NodeThread, run: Run) -> None:
    done = run("pub", "relay", "--name", "weather", "sunny", "--tag", "7", "--node", node.url, "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"topic": WEATHER, "published": True})
    assert cached(relay_url(node), WEATHER) == [("sunny", 7)]


def test_a_message_is_published_to_a_relay_directly(node: NodeThread, run: Run) -> None:
    topic = topic_of("direct")
    done = run("pub", "relay", topic, "hello", "--relay", relay_url(node))
    assert (done.returncode, done.stdout.strip()) == (0, topic)
    assert cached(relay_url(node), topic) == [("hello", 0)]


def test_a_bad_topic_and_nobody_there_have_their_exit_codes(node: NodeThread, run: Run) -> None:
    refused = run("pub", "relay", "weather", "sunny", "--node", node.url)
    assert refused.returncode == 1
    assert "64 lower-case hex digits" in refused.stderr
    assert run("pub", "relay", "--name", "weather", "sunny", "--node", "http://127.0.0.1:9").returncode == 3
