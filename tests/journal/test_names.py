from __future__ import annotations

import random

import pytest

from syncline.journal.names import Filters
from syncline.journal.terms import NAME

NUMBERS = bytes(16)  # lsn and expiry of an entry


def some_names(chance: random.Random, count: int) -> list[bytes]:
    return [NAME + chance.randbytes(16) for _ in range(count)]


def entries(names: list[bytes]) -> bytes:
    return b"".join(name + NUMBERS for name in names)


@pytest.mark.parametrize("most", [4_096, 50])
def test_a_name_is_always_found_in_its_run_and_hardly_ever_elsewhere(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """More runs than one word has bits; and, in the second case, more than have a filter."""
    monkeypatch.setattr("syncline.core.limits.JOURNAL_FILTER_RUNS", most)
    chance, filters = random.Random(5), Filters()
    named = {run: some_names(chance, 300) for run in range(1, 81)}
    for run, names in named.items():
        filters.add(run, entries(names))
    wrong = 0
    for run, names in named.items():
        found = filters.find(names)
        assert all(run in found[name] for name in names)
        wrong += sum(len(runs) - 1 for runs in found.values())
        assert run not in filters.without(names[0])
    beyond = {run for run in named if run > most}
    assert wrong - 300 * sum(len(beyond - {run}) for run in named) < 20
    strangers = some_names(chance, 1_000)
    assert len([name for name, runs in filters.find(strangers).items() if set(runs) - beyond]) < 20


def test_a_dropped_run_is_not_found_and_its_place_is_used_again() -> None:
    chance, filters = random.Random(6), Filters()
    first, second, third = (some_names(chance, 100) for _ in range(3))
    filters.add(1, entries(first))
    filters.add(2, entries(second))
    filters.drop(1)
    assert filters.find(first) == {}
    filters.add(3, entries(third))
    assert filters.find(first) == {}
    assert filters.find(third) == {key: [3] for key in third}
    assert filters.find(second) == {key: [2] for key in second}
    assert filters.without(second[0]) == {3}
    assert len(filters._runs) == 2


def test_the_same_run_again_changes_nothing() -> None:
    names, filters = some_names(random.Random(7), 10), Filters()
    filters.add(1, entries(names))
    filters.add(1, b"")
    assert filters.find(names) == {key: [1] for key in names}
    assert filters.find([]) == {}
