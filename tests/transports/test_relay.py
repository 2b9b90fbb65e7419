"""SDSP on a relay topic: what the transport promises, and a publisher and followers end to end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import count

import anyio
import pytest

from syncline.core.errors import RefusedError, UsageError
from syncline.core.retry import Backoff
from syncline.protocols.relay.client import RelayClient
from syncline.protocols.relay.plugin import Relay
from syncline.protocols.relay.service import RelayService
from syncline.protocols.sdsp.plugins import Delivery, Start
from syncline.protocols.sdsp.publisher import Publisher
from syncline.protocols.sdsp.subscriber import follow
from syncline.transports.relay import RelayTransport, open_relay, relay_topic
from tests.nodes import NodeThread
from tests.transports.frames import delta, full, serials

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["trio", "asyncio"], scope="module")]
_UIDS = count()
SOON = Backoff(first=0.02, longest=0.1)


@pytest.fixture(scope="module")
def relay_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeThread]:
    flags = {"relay.port": 0, "relay.drain_seconds": 0.2, "relay.request_burst": 100_000}
    node = NodeThread(tmp_path_factory.mktemp("relay"), {"relay": Relay()}, **flags).start()
    yield node
    node.stop()


@pytest.fixture
def url(relay_node: NodeThread) -> str:
    service = relay_node.node.service("relay")
    assert isinstance(service, RelayService)
    return f"relay:{service.url}"


@pytest.fixture
async def transport(url: str) -> AsyncIterator[RelayTransport]:
    async with open_relay(url, backoff=SOON) as opened:
        yield opened


@pytest.fixture
def uid() -> str:
    return f"sat.{next(_UIDS)} *>"


async def chain(transport: RelayTransport, uid: str) -> None:
    """Serials 0 to 5; 0 and 3 are full."""
    for serial in range(6):
        ver = serial % 3
        payload = delta(uid, serial, ver) if ver else full(uid, serial)
        await transport.publish("sats", payload, dedupe_id=f"{uid}/{serial}", expect_serial=None)


async def some(deliveries: AsyncIterator[Delivery], number: int) -> list[int]:
    with anyio.fail_after(5):
        return serials([(await anext(deliveries)).payload for _ in range(number)])


async def test_a_late_joiner_starts_at_the_newest_full_frame(transport: RelayTransport, uid: str) -> None:
    await chain(transport, uid)
    async with transport.subscribe("sats", Start(uid=uid)) as deliveries:
        assert await some(deliveries, 3) == [3, 4, 5]
        await transport.publish("sats", full(uid, 6), dedupe_id="6", expect_serial=None)
        assert await some(deliveries, 1) == [6]


async def test_a_subscriber_goes_on_after_the_serial_it_has(transport: RelayTransport, uid: str) -> None:
    await chain(transport, uid)
    async with transport.subscribe("sats", Start(uid=uid, after=1)) as deliveries:
        assert await some(deliveries, 4) == [2, 3, 4, 5]


async def test_history_answers_a_range_and_the_newest(transport: RelayTransport, uid: str) -> None:
    assert await transport.newest("sats", uid=uid) is None
    await chain(transport, uid)
    assert serials(await transport.replay("sats", uid=uid, first=1, last=4)) == [1, 2, 3, 4]
    assert await transport.newest("sats", uid=uid) == delta(uid, 5, 2)
    assert list(await transport.replay("other", uid=uid, first=0, last=9)) == []


async def test_a_repeated_publish_is_taken_once(transport: RelayTransport, uid: str) -> None:
    for _ in range(3):
        await transport.publish("sats", full(uid, 0), dedupe_id="0", expect_serial=None)
    assert serials(await transport.replay("sats", uid=uid, first=0, last=9)) == [0]


async def test_rubbish_on_the_topic_disturbs_nobody(transport: RelayTransport, url: str, uid: str) -> None:
    async with RelayClient(url.removeprefix("relay:")) as stranger:
        await stranger.publish(relay_topic("sats", uid), "rubbish")
        await stranger.publish(relay_topic("sats", uid), full("another", 99).decode())
    await chain(transport, uid)
    assert serials(await transport.replay("sats", uid=uid, first=0, last=99)) == [0, 1, 2, 3, 4, 5]


async def test_a_frame_too_large_for_the_relay_is_refused(transport: RelayTransport, uid: str) -> None:
    payload = full(uid, 0, "x" * transport.capabilities.max_payload)
    with pytest.raises(RefusedError, match="98304"):
        await transport.publish("sats", payload, dedupe_id="0", expect_serial=None)


async def test_a_time_to_live_that_no_relay_gives_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        async with open_relay(url, ttl=0):
            pass


async def test_an_object_is_published_and_followed_over_a_relay(transport: RelayTransport, uid: str) -> None:
    async with Publisher(transport) as publisher:
        published = await publisher.create({"n": 0}, uid=uid, topic="sats")
        async with follow(transport, uid, topic="sats") as followed:
            await published.update({"n": 1, "name": "one"})
            await published.update({"n": 2, "name": "two"})
            await published.freeze()
            with anyio.fail_after(5):
                async for _ in followed:
                    if followed.state is not None and followed.state.serial == 3:
                        break
        assert followed.value == {"n": 2, "name": "two"}
