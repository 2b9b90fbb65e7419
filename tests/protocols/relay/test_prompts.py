"""Webhook calls as the session counts them; making them is in test_node.py."""

from __future__ import annotations

import pytest

from syncline.protocols.relay.session.prompts import OWED, webhook_of
from tests.protocols.relay.desk import Desk
from tests.relays import topic_of

NEWS = topic_of("news")


def test_so_many_calls_are_on_their_way_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that a slow webhook keeps waiting count too: each is a task. What does not fit is still owed on disk."""
    monkeypatch.setattr("syncline.core.limits.RELAY_PROMPTS", 3)
    desk = Desk()
    alice, prompts = desk.client(1), desk.hub.prompts
    prompts.register(webhook_of(NEWS, "https://push.example.org"))
    taken = []
    for number in range(5):
        desk.publish(alice, NEWS, f"{number}", prompt=True)
        taken += prompts.take()
    assert [each.message.message for each in taken] == [b"0", b"1", b"2"]
    assert (prompts.dropped, len(desk.disk.scan(OWED))) == (2, 5)
    desk.disk.append([], [prompts.settle(each) for each in taken])
    assert len(desk.disk.scan(OWED)) == 2
    desk.publish(alice, NEWS, "5", prompt=True)
    assert [each.message.message for each in prompts.take()] == [b"5"]
