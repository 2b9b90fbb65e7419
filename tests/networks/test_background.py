from __future__ import annotations

import anyio
import pytest

from syncline.networks.background import background
from syncline.networks.portal import open_portal

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["trio", "asyncio"], scope="module")]


async def test_what_the_block_raises_comes_out_unwrapped_and_its_tasks_end() -> None:
    ended = []

    async def task() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(True)

    async def block() -> None:
        async with background() as tasks:
            tasks.start_soon(task)
            await anyio.sleep(0.01)
            print(1 / 0)

    with pytest.raises(ZeroDivisionError):
        await block()
    assert ended == [True]


async def test_cancellation_from_outside_passes_through() -> None:
    with anyio.move_on_after(0.05) as scope:
        async with background() as tasks:
            tasks.start_soon(anyio.sleep_forever)
            await anyio.sleep_forever()
    assert scope.cancelled_caught


async def test_calls_run_on_asyncio_and_bring_back_values_and_errors() -> None:
    import asyncio

    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    async def fail() -> None:
        raise ZeroDivisionError

    async with open_portal() as portal:
        assert [await portal.call(double, n) for n in range(3)] == [0, 2, 4]
        with pytest.raises(ZeroDivisionError):
            await portal.call(fail)


async def test_a_cancelled_call_is_cancelled_on_the_other_side() -> None:
    import asyncio

    cancelled = anyio.Event()
    seen: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def nothing() -> None:
        await asyncio.sleep(0)

    async with open_portal() as portal:
        with anyio.move_on_after(0.05):
            await portal.call(wait)
        for _ in range(100):
            await portal.call(nothing)
            if seen:
                cancelled.set()
                break
    assert seen == ["cancelled"]
