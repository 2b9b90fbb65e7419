"""What every transport with history and optimistic serials promises, on each of ours."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from itertools import count
from typing import Any

import anyio
import pytest

from syncline.core.errors import ConflictError
from syncline.protocols.sdsp.plugins import Delivery, Start, Transport
from syncline.transports.http import open_http
from syncline.transports.memory import MemoryHub
from syncline.transports.nats import open_nats
from tests.transports.frames import delta, full, serials

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["trio", "asyncio"], scope="module")]
_UIDS = count()


@pytest.fixture(params=["memory", "nats", "sse", "websocket", "poll"])
async def transport(request: pytest.FixtureRequest) -> AsyncIterator[Transport]:
    opening: Any
    if request.param == "memory":
        opening = nullcontext(MemoryHub())
    elif request.param == "nats":
        opening = open_nats(request.getfixturevalue("nats_server").url)
    else:
        opening = open_http(request.getfixturevalue("sdsp_node").url, follow=request.param)
    async with opening as opened:
        yield opened


@pytest.fixture
def sees_topics(request: pytest.FixtureRequest) -> bool:
    """A node knows an object by its uid alone."""
    return request.node.callspec.params["transport"] in ("memory", "nats")


@pytest.fixture
def uid() -> str:
    return f"sat.{next(_UIDS)} *>"


async def put(transport: Transport, payload: bytes, name: str, expect: int | None = None) -> None:
    await transport.publish("sats/low.orbit", payload, dedupe_id=name, expect_serial=expect)


async def chain(transport: Transport, uid: str) -> None:
    """Serials 0 to 5; 0 and 3 are full."""
    for serial in range(6):
        ver = serial % 3
        payload = delta(uid, serial, ver) if ver else full(uid, serial)
        await put(transport, payload, f"{uid}/{serial}", serial - 1)


async def some(deliveries: AsyncIterator[Delivery], number: int) -> list[int]:
    with anyio.fail_after(5):
        return serials([(await anext(deliveries)).payload for _ in range(number)])


async def test_a_late_joiner_starts_at_the_newest_full_frame(transport: Transport, uid: str) -> None:
    await chain(transport, uid)
    async with transport.subscribe("sats/low.orbit", Start(uid=uid)) as deliveries:
        assert await some(deliveries, 3) == [3, 4, 5]
        await put(transport, full(uid, 6), f"{uid}/6")
        assert await some(deliveries, 1) == [6]


@pytest.mark.parametrize(("after", "expected"), [(0, [1, 2, 3, 4, 5, 6]), (3, [4, 5, 6]), (4, [5, 6]), (5, [6])])
async def test_a_subscriber_goes_on_after_the_serial_it_has(
    transport: Transport, uid: str, after: int, expected: list[int]
) -> None:
    await chain(transport, uid)
    async with transport.subscribe("sats/low.orbit", Start(uid=uid, after=after)) as deliveries:
        await put(transport, full(uid, 6), f"{uid}/6")
        assert await some(deliveries, len(expected)) == expected


async def test_a_subscriber_may_come_before_the_first_frame(transport: Transport, uid: str) -> None:
    async with transport.subscribe("sats/low.orbit", Start(uid=uid)) as deliveries:
        await chain(transport, uid)
        assert await some(deliveries, 6) == [0, 1, 2, 3, 4, 5]


async def test_history_answers_a_range_and_the_newest(transport: Transport, uid: str) -> None:
    assert await transport.newest("sats/low.orbit", uid=uid) is None
    assert list(await transport.replay("sats/low.orbit", uid=uid, first=0, last=9)) == []
    await chain(transport, uid)
    assert serials(await transport.replay("sats/low.orbit", uid=uid, first=1, last=4)) == [1, 2, 3, 4]
    assert serials(await transport.replay("sats/low.orbit", uid=uid, first=3, last=99)) == [3, 4, 5]
    assert await transport.newest("sats/low.orbit", uid=uid) == delta(uid, 5, 2)


async def test_a_repeated_publish_is_taken_once(transport: Transport, uid: str) -> None:
    for _ in range(3):
        await put(transport, full(uid, 0), f"{uid}/0", -1)
    assert serials(await transport.replay("sats/low.orbit", uid=uid, first=0, last=9)) == [0]


@pytest.mark.parametrize("expect", [-1, 0, 2])
async def test_a_publish_on_a_serial_that_is_not_the_newest_is_a_conflict(
    transport: Transport, uid: str, expect: int
) -> None:
    await put(transport, full(uid, 0), f"{uid}/0", -1)
    await put(transport, delta(uid, 1, 1), f"{uid}/1", 0)
    with pytest.raises(ConflictError):
        await put(transport, full(uid, expect + 1, {"by": "another"}), f"{uid}/other", expect)
    assert serials(await transport.replay("sats/low.orbit", uid=uid, first=0, last=9)) == [0, 1]


async def test_of_two_publishers_at_once_one_wins_and_the_other_hears_of_the_conflict(
    transport: Transport, uid: str
) -> None:
    await put(transport, full(uid, 0), f"{uid}/0", -1)
    outcomes: list[str] = []

    async def race(name: str) -> None:
        try:
            await put(transport, full(uid, 1, {"by": name}), f"{uid}/1/{name}", 0)
            outcomes.append("taken")
        except ConflictError:
            outcomes.append("conflict")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(race, "one")
        tasks.start_soon(race, "two")
    assert sorted(outcomes) == ["conflict", "taken"]
    assert serials(await transport.replay("sats/low.orbit", uid=uid, first=0, last=9)) == [0, 1]


async def test_objects_and_topics_are_kept_apart(transport: Transport, uid: str, sees_topics: bool) -> None:
    await put(transport, full(uid, 0), f"{uid}/0", -1)
    await put(transport, full(f"{uid}.b", 0), f"{uid}.b/0", -1)
    if sees_topics:
        await transport.publish("other", full(uid, 7), dedupe_id=f"{uid}/7", expect_serial=-1)
    assert serials(await transport.replay("sats/low.orbit", uid=uid, first=0, last=9)) == [0]


async def test_the_same_frame_on_another_topic_is_not_a_repeat(
    transport: Transport, uid: str, sees_topics: bool
) -> None:
    await put(transport, full(uid, 0), f"{uid}/0", -1)
    if sees_topics:
        await transport.publish("other", full(uid, 0), dedupe_id=f"{uid}/0", expect_serial=-1)
        assert serials(await transport.replay("other", uid=uid, first=0, last=9)) == [0]
        await transport.publish("other", delta(uid, 1, 1), dedupe_id=f"{uid}/1", expect_serial=0)
        assert serials(await transport.replay("other", uid=uid, first=0, last=9)) == [0, 1]
    assert serials(await transport.replay("sats/low.orbit", uid=uid, first=0, last=9)) == [0]


async def test_many_publishes_at_once_all_arrive_in_order(transport: Transport, uid: str) -> None:
    async def one(name: str) -> None:
        for serial in range(10):
            await put(transport, full(name, serial), f"{name}/{serial}", serial - 1)

    names = [f"{uid}-{n}" for n in range(20)]
    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(one, name)
    for name in names:
        assert serials(await transport.replay("sats/low.orbit", uid=name, first=0, last=99)) == list(range(10))
    async with transport.subscribe("sats/low.orbit", Start(uid=names[0], after=0)) as deliveries:
        assert await some(deliveries, 9) == list(range(1, 10))


async def test_a_cancelled_publish_does_not_keep_others_waiting(transport: Transport, uid: str) -> None:
    async with anyio.create_task_group() as tasks:
        for n in range(10):
            tasks.start_soon(put, transport, full(f"{uid}-x{n}", 0), f"{uid}-x{n}/0")
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    with anyio.fail_after(5):
        await put(transport, full(uid, 0), f"{uid}/0", -1)
    assert serials(await transport.replay("sats/low.orbit", uid=uid, first=0, last=9)) == [0]


async def test_a_closed_subscription_leaves_nothing_behind(transport: Transport, uid: str) -> None:
    @asynccontextmanager
    async def opened() -> AsyncIterator[AsyncIterator[Delivery]]:
        async with transport.subscribe("sats/low.orbit", Start(uid=uid)) as deliveries:
            yield deliveries

    await chain(transport, uid)
    for _ in range(5):
        async with opened() as deliveries:
            assert await some(deliveries, 1) == [3]
    with anyio.move_on_after(0.1) as scope:
        async with opened() as deliveries:
            assert await some(deliveries, 3) == [3, 4, 5]
            await anext(deliveries)
    assert scope.cancelled_caught
