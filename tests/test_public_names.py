"""The root package exports exactly the names it promises, and each can be had."""

from __future__ import annotations

import syncline


def test_every_promised_name_can_be_had() -> None:
    for name in syncline.__all__:
        assert getattr(syncline, name) is not None
    assert len(syncline.__all__) <= 15
    assert sorted(syncline.__all__) == sorted(syncline._HOMES)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(syncline, "Publsher")
