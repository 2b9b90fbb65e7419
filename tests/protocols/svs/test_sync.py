"""State vector sync by itself: merging, the periodic timer, suppression and the recently-updated rule."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.formats.ndn import names
from syncline.protocols.svs.session.events import Options
from syncline.protocols.svs.session.sync import Sync, Update

A, B, C = (names.parse(f"/{letter}") for letter in "abc")
OPTIONS = Options(hellos=1)


def started(seed: int = 1, **vector: int) -> Sync:
    """A member that has said hello and is in the steady state at time 0, knowing these nodes since long ago."""
    sync = Sync(OPTIONS, Random(seed), 0.0)
    assert sync.tick(0.0)
    for node, seq in vector.items():
        sync.set(names.parse(f"/{node}"), seq)
    return sync


def hear(sync: Sync, now: float, **vector: int) -> list[Update]:
    claims = {names.parse(f"/{node}"): seq for node, seq in vector.items()}
    return sync.receive(claims, claims, now)


def test_a_member_says_hello_when_it_starts() -> None:
    sync = Sync(OPTIONS, Random(1), 7.0)
    assert sync.deadline == 7.0
    assert sync.tick(7.0)
    assert not sync.tick(7.1)


def test_a_hello_is_repeated_until_somebody_says_something() -> None:
    sync = Sync(Options(), Random(1), 0.0)
    assert [sync.tick(0.0), sync.deadline, sync.tick(0.5), sync.deadline] == [True, 0.5, True, 1.0]
    assert sync.tick(1.0)
    assert sync.deadline > 20
    sync = Sync(Options(), Random(1), 0.0)
    assert sync.tick(0.0)
    hear(sync, 0.1)
    assert sync.deadline == 0.5  # an empty vector says nothing
    hear(sync, 0.2, a=1)
    assert sync.deadline > 20


def test_new_numbers_are_merged_and_told() -> None:
    sync = started(a=3)
    assert hear(sync, 1.0, a=5, b=2) == [Update(A, 4, 5), Update(B, 1, 2)]
    assert sync.vector == {A: 5, B: 2}
    assert hear(sync, 2.0, a=4, b=2) == []
    assert sync.vector == {A: 5, B: 2}


def test_only_what_is_believed_is_merged() -> None:
    sync = started(a=3)
    assert sync.receive({A: 10**9, B: 1}, {B: 1}, 1.0) == [Update(B, 1, 1)]
    assert sync.vector == {A: 3, B: 1}


@given(st.integers(0, 10**6))
def test_the_periodic_timer_is_thirty_seconds_give_or_take_a_tenth(seed: int) -> None:
    sync = started(seed)
    assert 27.0 <= sync.deadline <= 33.0
    first = sync.deadline
    assert sync.tick(first)
    assert 27.0 <= sync.deadline - first <= 33.0


def test_hearing_what_we_know_puts_the_periodic_timer_off() -> None:
    sync = started(a=3)
    before = sync.deadline
    hear(sync, 20.0, a=3)
    assert sync.deadline >= 20.0 + 27.0 > before
    assert not sync.suppressing


def test_hearing_something_newer_puts_the_periodic_timer_off() -> None:
    sync = started(a=3)
    hear(sync, 20.0, a=9)
    assert sync.deadline >= 47.0
    assert not sync.suppressing


def test_a_publication_is_announced_at_once() -> None:
    sync = started(a=3)
    sync.publish(C, 1, 5.0)
    assert sync.deadline == 5.0
    assert sync.tick(5.0)
    assert sync.vector == {A: 3, C: 1}


def test_a_publication_is_announced_at_once_whatever_others_have_been_told() -> None:
    sync = started(a=3, b=1)
    hear(sync, 10.0, a=3)
    sync.receive({A: 3, B: 1, C: 2**62}, {}, 10.01)  # others know it all, and a lie covers our next number
    assert sync.suppressing
    sync.publish(C, 1, 10.02)
    assert sync.tick(10.02)


def test_an_announcement_that_is_due_is_not_put_off() -> None:
    sync = started(a=3)
    sync.publish(C, 1, 5.0)
    hear(sync, 5.0, a=3, c=1)
    assert sync.tick(5.0)


def test_somebody_behind_is_told_after_a_short_wait() -> None:
    sync = started(a=3, b=1)
    hear(sync, 10.0, a=3)
    assert sync.suppressing
    assert 10.0 <= sync.deadline <= 10.2
    assert sync.tick(sync.deadline)
    assert sync.deadline > 30.0


def test_nobody_is_told_twice() -> None:
    sync = started(a=3, b=1)
    hear(sync, 10.0, a=3)
    hear(sync, 10.01, a=3, b=1)  # somebody else was faster
    assert sync.suppressing
    deadline = sync.deadline
    assert not sync.tick(deadline)
    assert sync.deadline > deadline + 20


def test_what_was_heard_in_the_meantime_must_cover_everything() -> None:
    sync = started(a=3, b=1, c=5)
    hear(sync, 10.0, a=2)
    hear(sync, 10.01, a=3)
    hear(sync, 10.02, b=1, c=4)
    assert sync.tick(sync.deadline)


def test_a_second_vector_does_not_restart_the_wait() -> None:
    sync = started(a=3, b=1)
    hear(sync, 10.0, a=3)
    deadline = sync.deadline
    hear(sync, 10.001, a=2)
    assert sync.deadline == deadline


def test_what_we_learned_just_now_is_no_reason_to_speak() -> None:
    sync = started(a=3)
    hear(sync, 10.0, a=3, b=7)
    hear(sync, 10.1, a=3)  # lacks b, which may still be on its way
    assert not sync.suppressing
    hear(sync, 10.0 + OPTIONS.suppression, a=3)
    assert sync.suppressing


def test_one_old_entry_they_lack_is_reason_enough() -> None:
    sync = started(a=3, c=1)
    hear(sync, 10.0, a=3, b=7, c=1)
    hear(sync, 10.1, a=3, c=0)
    assert sync.suppressing


@given(st.floats(0, 1, exclude_max=True))
def test_the_suppression_wait_is_the_curve_of_the_specification(v: float) -> None:
    class Dice(Random):
        def random(self) -> float:
            return v

    sync = Sync(OPTIONS, Dice(), 0.0)
    c, f = 0.2, 10.0
    assert sync._suppression_delay() == pytest.approx(c * (1 - math.exp((v * c - c) / (c / f))))


def test_most_waits_are_long_and_a_few_are_short() -> None:
    sync = Sync(OPTIONS, Random(5), 0.0)
    waits = [sync._suppression_delay() for _ in range(2_000)]
    assert min(waits) < 0.05
    assert sum(wait > 0.15 for wait in waits) / len(waits) > 0.8
    assert max(waits) < 0.2


def test_nodes_with_news_come_first() -> None:
    sync = started(a=3, b=2)
    hear(sync, 5.0, c=1)
    assert sync.recent_first() == [C, A, B]
    sync.forget(C)
    assert (sync.recent_first(), sync.vector) == ([A, B], {A: 3, B: 2})
