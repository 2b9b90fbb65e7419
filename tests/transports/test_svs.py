"""SDSP over an SVS-PS group: frames arrive whole, and objects end up the same."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from syncline.core.clock import SystemClock
from syncline.core.errors import UsageError
from syncline.formats.ndn import names
from syncline.networks.ndn.doors import DoorOptions
from syncline.networks.ndn.hub import HubOptions, running
from syncline.protocols.sdsp.plugins import Delivery, Start
from syncline.transports.svs import SvsTransport, open_svs
from tests.transports.frames import delta, full, serials

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["trio", "asyncio"])]


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with running(HubOptions(doors=DoorOptions(tcp_port=0)), SystemClock()) as hub:
        yield hub.addresses["tcp"].removeprefix("tcp://")


async def some(deliveries: AsyncIterator[Delivery], number: int) -> list[int]:
    with anyio.fail_after(10):
        return sorted(serials([(await anext(deliveries)).payload for _ in range(number)]))


async def put(transport: SvsTransport, payload: bytes, name: str) -> None:
    await transport.publish("sats/low", payload, dedupe_id=name, expect_serial=None)


async def test_frames_of_an_object_arrive_once_each_and_others_do_not(address: str) -> None:
    async with open_svs(f"svs://{address}/room?node=/alice") as alice, open_svs(f"svs://{address}/room") as bob:
        async with bob.subscribe("sats/low", Start(uid="sat.1")) as deliveries:
            await put(alice, full("sat.1", 0), "0")
            await put(alice, full("sat.1", 0), "0")  # repeated
            await put(alice, full("other", 7), "other")
            await put(alice, delta("sat.1", 1, 1), "1")
            assert await some(deliveries, 2) == [0, 1]
            await put(alice, delta("sat.1", 2, 2), "2")
            assert await some(deliveries, 1) == [2]


async def test_the_same_frame_on_another_topic_is_not_a_repeat(address: str) -> None:
    async with open_svs(f"svs://{address}/room?node=/alice") as alice, open_svs(f"svs://{address}/room") as bob:
        async with bob.subscribe("other", Start(uid="sat.1")) as deliveries:
            await put(alice, full("sat.1", 0), "0")
            await alice.publish("other", full("sat.1", 0), dedupe_id="0", expect_serial=None)
            assert await some(deliveries, 1) == [0]


async def test_a_late_joiner_gets_what_the_publisher_still_serves(address: str) -> None:
    async with open_svs(f"svs://{address}/room?node=/alice") as alice:
        for serial in range(4):
            await put(alice, full("sat.1", serial), str(serial))
        async with open_svs(f"svs://{address}/room") as late:
            async with late.subscribe("sats/low", Start(uid="sat.1")) as deliveries:
                assert await some(deliveries, 4) == [0, 1, 2, 3]
            assert await late.replay("sats/low", uid="sat.1", first=0, last=3) == []
            assert await late.newest("sats/low", uid="sat.1") is None
            assert not late.capabilities.history


async def test_a_group_is_named_as_names_are_written(address: str) -> None:
    async with open_svs(f"svs://{address}/a%2Fb/50%25") as transport:
        assert transport._group.name == names.generic(b"a/b") + names.generic(b"50%")


async def test_an_address_without_a_group_is_refused() -> None:
    for url in ("svs://127.0.0.1:6363", "svs://127.0.0.1/room?fly=1", "svs:/room"):
        with pytest.raises(UsageError):
            async with open_svs(url):
                pass
