"""Answers share the interpreter: one page at a time, and as much rest as work."""

from __future__ import annotations

import anyio
import pytest

from syncline.protocols.sds.service.turns import REST_MOST, Turns
from syncline.testing.clock import FakeClock

pytestmark = pytest.mark.anyio


async def test_after_a_turn_everybody_rests_as_long_as_it_took() -> None:
    clock = FakeClock()
    turns = Turns(clock)
    async with turns.turn():
        clock.advance(0.02)
    assert turns.free_at == pytest.approx(clock.monotonic() + 0.02)
    clock.advance(0.02)
    with anyio.fail_after(5):  # rested enough, by the clock
        async with turns.turn():
            clock.advance(10.0)  # the disk was slow
    assert turns.free_at == pytest.approx(clock.monotonic() + REST_MOST)


async def test_a_turn_that_fails_is_rested_for_and_lets_the_next_one_work() -> None:
    clock = FakeClock()
    turns = Turns(clock)

    async def break_down() -> None:
        async with turns.turn():
            clock.advance(0.01)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await break_down()
    assert turns.free_at == pytest.approx(clock.monotonic() + 0.01)
    with anyio.fail_after(5):
        async with turns.turn():
            pass


async def test_turns_are_taken_one_at_a_time_in_order() -> None:
    turns, seen = Turns(FakeClock()), list[str]()

    async def work(name: str) -> None:
        for _ in range(3):
            async with turns.turn():
                seen.append(name)
                await anyio.sleep(0)
                seen.append(name)

    async with anyio.create_task_group() as tasks:
        for name in "ab":
            tasks.start_soon(work, name)
    assert [seen[n] == seen[n + 1] for n in range(0, len(seen), 2)] == [True] * 6  # nobody worked in between
    assert seen.count("a") == seen.count("b") == 6
    assert len(set(seen[:4])) == 2  # and nobody had two turns while another waited
