"""The HTTP transport where a node comes and goes, refuses, or answers oddly."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

from syncline.core.errors import ConflictError, FrozenError, RefusedError, UnreachableError, UsageError
from syncline.core.retry import Backoff
from syncline.core.verdict import Reason
from syncline.protocols.sdsp.plugins import Start
from syncline.protocols.sdsp.publisher import Publisher
from syncline.protocols.sdsp.service import PLUGIN
from syncline.protocols.sdsp.subscriber import follow
from syncline.transports.http import open_http
from tests.nodes import NodeThread
from tests.transports.frames import full, serials

pytestmark = pytest.mark.anyio
WAYS = ["sse", "websocket", "poll"]
QUICK = Backoff(first=0.02, longest=0.2)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeThread]:
    served = NodeThread(tmp_path, {"sdsp": PLUGIN}).start()
    yield served
    served.stop()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[NodeThread]:
    served = NodeThread(tmp_path, {"sdsp": PLUGIN}, **{"api.token": "hunter2"}).start()
    yield served
    served.stop()


@pytest.mark.parametrize("anyio_backend", ["trio", "asyncio"])
@pytest.mark.parametrize("way", WAYS)
async def test_a_follower_goes_on_when_the_node_comes_back_without_loss_or_repeats(node: NodeThread, way: Any) -> None:
    async with open_http(node.url, follow=way, backoff=QUICK, random=Random(1)) as transport:
        async with transport.subscribe("t", Start(uid="a")) as deliveries:
            got = []
            for round in range(3):
                for serial in range(round * 3, round * 3 + 3):
                    await transport.publish("t", full("a", serial), dedupe_id=f"a/{serial}", expect_serial=serial - 1)
                with anyio.fail_after(10):
                    got += [(await anext(deliveries)).payload for _ in range(3)]
                await anyio.to_thread.run_sync(node.stop)
                await anyio.to_thread.run_sync(node.start)
    assert serials(got) == list(range(9))


@pytest.mark.parametrize("way", WAYS)
async def test_a_wrong_token_is_refused_at_once(guarded: NodeThread, way: Any) -> None:
    async with open_http(guarded.url, token="wrong", follow=way) as transport:
        with pytest.raises(RefusedError) as refused:
            await transport.publish("t", full("a", 0), dedupe_id="a/0", expect_serial=-1)
        assert refused.value.reason is Reason.UNAUTHORISED
        assert refused.value.hint == "give the node's api.token"
        async with follow(transport, "a") as object:
            with anyio.fail_after(5), pytest.raises(RefusedError):
                await anext(object)


@pytest.mark.parametrize("way", WAYS)
async def test_the_right_token_opens_everything(guarded: NodeThread, way: Any) -> None:
    async with open_http(guarded.url, token="hunter2", follow=way) as transport, Publisher(transport) as publisher:
        sat = await publisher.create({"n": 0})
        async with follow(transport, sat.uid) as object:
            with anyio.fail_after(5):
                assert (await anext(object)).serial == 0


@pytest.mark.parametrize("way", WAYS)
async def test_a_node_that_was_never_there_is_unreachable(way: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        async with open_http(url, follow=way, backoff=QUICK) as transport:
            with pytest.raises(UnreachableError):
                await transport.publish("t", full("a", 0), dedupe_id="a/0", expect_serial=-1)
            async with follow(transport, "a") as object:
                with anyio.fail_after(5), pytest.raises(UnreachableError):
                    await anext(object)


async def test_what_a_node_refuses_comes_out_as_the_error_it_is(node: NodeThread) -> None:
    async with open_http(node.url) as transport:
        await transport.publish("t", full("a", 0), dedupe_id="a/0", expect_serial=-1)
        with pytest.raises(ConflictError):
            await transport.publish("t", full("a", 0, "other"), dedupe_id="a/0x", expect_serial=-1)
        frozen = b'{"uid":"a","serial":1,"ver":1,"frozen":true}'
        await transport.publish("t", frozen, dedupe_id="a/1", expect_serial=0)
        with pytest.raises(FrozenError):
            await transport.publish("t", full("a", 2), dedupe_id="a/2", expect_serial=1)
        with pytest.raises(RefusedError) as refused:
            await transport.publish("t", b'{"uid":"b","serial":0}', dedupe_id="b/0", expect_serial=-1)
        assert refused.value.reason is Reason.INVALID_FIELD


async def test_history_longer_than_one_page_is_read_whole(node: NodeThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.protocols.sdsp.shelf.SDSP_PAGE_FRAMES", 3)
    async with open_http(node.url) as transport:
        for serial in range(10):
            await transport.publish("t", full("a", serial), dedupe_id=f"a/{serial}", expect_serial=serial - 1)
        assert serials(await transport.replay("t", uid="a", first=1, last=99)) == list(range(1, 10))
    with monkeypatch.context() as inner:
        inner.setattr("syncline.protocols.sdsp.shelf.SDSP_PAGE_BYTES", 1)
        async with open_http(node.url) as transport:
            assert serials(await transport.replay("t", uid="a", first=0, last=4)) == [0, 1, 2, 3, 4]


async def test_text_that_javascript_takes_for_line_ends_arrives_whole(node: NodeThread) -> None:
    text = "one\u2028two\u2029three\u0085four\r\nfive"
    async with open_http(node.url) as transport, Publisher(transport) as publisher:
        sat = await publisher.create({"text": text})
        async with follow(transport, sat.uid) as object:
            with anyio.fail_after(5):
                await anext(object)
            assert object.value == {"text": text}


async def test_another_way_to_follow_is_refused(node: NodeThread) -> None:
    with pytest.raises(UsageError, match="not 'pigeon'"):
        async with open_http(node.url, follow="pigeon"):  # type: ignore[arg-type]
            pass


async def test_the_publisher_of_a_node_goes_on_from_its_history_after_a_crash(node: NodeThread) -> None:
    """No state of its own: the node knows what was published."""
    async with open_http(node.url) as transport:
        async with Publisher(transport) as first:
            sat = await first.create({"n": 0, "pad": "x" * 200}, topic="sats", uid="sat-1")
            await sat.update({"n": 1, "pad": "x" * 200})
        async with Publisher(transport) as second:
            again = await second.open("sat-1", topic="sats")
            assert (again.serial, again.value["n"]) == (1, 1)
            assert await again.update({"n": 2, "pad": "x" * 200}) == 2
        frames = [json.loads(raw) for raw in await transport.replay("sats", uid="sat-1", first=0, last=9)]
    assert [(frame["serial"], frame.get("ver", 0)) for frame in frames] == [(0, 0), (1, 1), (2, 2)]
