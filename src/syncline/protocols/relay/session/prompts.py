"""Webhooks of prompting messages: which are registered for a topic, and which calls are still owed.

A call is owed from the commit of its message on, so a crash does not lose it; it may then be made twice. Making it is the
driver's business.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from syncline.core import limits
from syncline.core.errors import NotFoundError, RefusedError
from syncline.core.ports import StateChange
from syncline.core.verdict import Reason
from syncline.protocols.relay.session.cache import Entry
from syncline.protocols.relay.session.durable import position_key
from syncline.protocols.relay.wire.messages import NetworkMessage

HOOKS: Final = "relay.webhooks"  # topic, id → webhook
OWED: Final = "relay.prompts"  # position, id → nothing


class Webhook(msgspec.Struct, frozen=True):
    """An address that is called when a prompting message is cached on a topic."""

    id: str
    topic: str
    url: str


class Prompt(msgspec.Struct, frozen=True):
    """One call to make."""

    webhook: Webhook
    position: int
    digest: str
    message: NetworkMessage

    @property
    def key(self) -> bytes:
        return owed_key(self.position, self.webhook)


def webhook_of(topic: str, url: str) -> Webhook:
    return Webhook(id=hashlib.sha256(f"{topic} {url}".encode()).hexdigest()[:16], topic=topic, url=url)


def owed_key(position: int, webhook: Webhook) -> bytes:
    return position_key(position) + bytes.fromhex(webhook.id)


class Prompts:
    """The registered webhooks and the calls that wait."""

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[str, Webhook]] = {}
        self._count = 0
        self.waiting: list[Prompt] = []
        self.calling = 0  # taken by the driver, and not settled yet
        self.dropped = 0

    def webhooks(self) -> Iterable[Webhook]:
        return (each for hooks in self._by_topic.values() for each in hooks.values())

    def restore(self, webhook: Webhook) -> None:
        hooks = self._by_topic.setdefault(webhook.topic, {})
        self._count += webhook.id not in hooks
        hooks[webhook.id] = webhook

    def register(self, webhook: Webhook) -> StateChange:
        """Add a webhook; returns what to write down. Raises RefusedError when there is no room."""
        hooks = self._by_topic.get(webhook.topic, {})
        if webhook.id not in hooks:
            if len(hooks) >= limits.RELAY_WEBHOOKS_PER_TOPIC:
                raise _full(f"a topic has at most {limits.RELAY_WEBHOOKS_PER_TOPIC} webhooks")
            if self._count >= limits.RELAY_WEBHOOKS:
                raise _full(f"a server has at most {limits.RELAY_WEBHOOKS} webhooks")
        self.restore(webhook)
        return StateChange(space=HOOKS, key=_hook_key(webhook), value=msgspec.json.encode(webhook))

    def remove(self, webhook_id: str) -> StateChange:
        for topic, hooks in self._by_topic.items():
            webhook = hooks.pop(webhook_id, None)
            if webhook is not None:
                self._count -= 1
                if not hooks:
                    del self._by_topic[topic]
                return StateChange(space=HOOKS, key=_hook_key(webhook), value=None)
        raise NotFoundError("there is no such webhook", about=webhook_id)

    def owed(self, entry: Entry, message: NetworkMessage) -> Sequence[StateChange]:
        """What to write down with a message: the calls it will owe."""
        if not message.prompt or entry.topic not in self._by_topic:
            return ()
        return [
            StateChange(space=OWED, key=owed_key(entry.position, hook), value=b"", expires_at=entry.expires_at)
            for hook in self._by_topic[entry.topic].values()
        ]

    def fire(self, entry: Entry, message: NetworkMessage) -> None:
        """The message is live: its calls wait to be made."""
        if message.prompt and entry.topic in self._by_topic:
            for hook in self._by_topic[entry.topic].values():
                self.resume(hook, entry, message)

    def resume(self, hook: Webhook, entry: Entry, message: NetworkMessage) -> None:
        if len(self.waiting) + self.calling >= limits.RELAY_PROMPTS:
            self.dropped += 1
            return
        self.waiting.append(Prompt(hook, entry.position, entry.digest.hex(), message))

    def find(self, topic: str, webhook_id: str) -> Webhook | None:
        return self._by_topic.get(topic, {}).get(webhook_id)

    def take(self) -> list[Prompt]:
        """Calls to make now. Settle each of them: so many are on their way at most."""
        waiting, self.waiting = self.waiting, []
        self.calling += len(waiting)
        return waiting

    def settle(self, prompt: Prompt) -> StateChange:
        """A call is made, or given up; returns what to write down."""
        self.calling -= 1
        return StateChange(space=OWED, key=prompt.key, value=None)


def _hook_key(webhook: Webhook) -> bytes:
    return bytes.fromhex(webhook.topic) + bytes.fromhex(webhook.id)


def _full(message: str) -> RefusedError:
    return RefusedError(message, reason=Reason.QUOTA_EXCEEDED)
