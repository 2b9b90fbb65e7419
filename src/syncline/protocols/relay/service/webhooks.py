"""Calls the webhooks of prompting messages: signed, retried with growing pauses, never to addresses that are not public.

A call that is owed survives a restart, so it may be made twice; receivers tell repeats apart by topic and hash.
"""

from __future__ import annotations

from random import Random
from typing import Final

import anyio
import msgspec
import structlog

from syncline.core.clock import Clock
from syncline.core.errors import SynclineError
from syncline.core.keys import NodeKey
from syncline.core.limits import RELAY_PROMPT_TRIES
from syncline.core.retry import Backoff
from syncline.networks.fetch import Fetcher, FetchPolicy
from syncline.protocols.relay.service.driver import Driver
from syncline.protocols.relay.session.prompts import Prompt

log = structlog.get_logger()
CALLS: Final = 16  # at the same time
BACKOFF: Final = Backoff(first=1.0, longest=60.0)
SIGNED: Final = b"syncline relay webhook/1\0"


class Body(msgspec.Struct, frozen=True):
    """What a webhook is told, as JSON."""

    topic: str
    hash: str
    tag: int
    published_at: int  # milliseconds since 1970
    ttl: int
    message: str


class Webhooks:
    """Makes the calls that wait."""

    def __init__(
        self,
        driver: Driver,
        key: NodeKey,
        clock: Clock,
        networks: tuple[str, ...],
        random: Random,
        backoff: Backoff = BACKOFF,
    ) -> None:
        self._driver = driver
        self._key = key
        self._clock = clock
        self._random = random
        self._backoff = backoff
        self._fetcher = Fetcher(FetchPolicy(allowed=networks))
        self._slots = anyio.CapacityLimiter(CALLS)
        self.made = 0
        self.failed = 0

    async def run(self) -> None:
        """Call, for ever."""
        async with anyio.create_task_group() as tasks:
            while True:
                for prompt in self._driver.hub.prompts.take():
                    tasks.start_soon(self._call, prompt)
                await self._driver.prompts.wait()

    async def _call(self, prompt: Prompt) -> None:
        """Until it is made, refused for good, or given up."""
        spans = self._backoff.spans(self._random)
        for left in reversed(range(RELAY_PROMPT_TRIES)):
            if prompt.message.expires_at <= self._clock.now():
                break
            async with self._slots:
                outcome = await self._try(prompt)
            if outcome == "":
                self.made += 1
                break
            if not left:
                self.failed += 1
                log.warning("relay_webhook_failed", url=prompt.webhook.url, topic=prompt.webhook.topic, error=outcome)
                break
            await anyio.sleep(next(spans))
        hub = self._driver.hub
        hub.queue.put([], [hub.prompts.settle(prompt)])
        self._driver.pump()

    async def _try(self, prompt: Prompt) -> str:
        """What went wrong; nothing if it was taken."""
        content = body_of(prompt)
        stamp = str(self._clock.now() // 1_000_000)
        headers = {
            "Content-Type": "application/json",
            "Syncline-Key": self._key.did,
            "Syncline-Timestamp": stamp,
            "Syncline-Signature": self._key.sign(signed_bytes(stamp, content)).hex(),
        }
        try:
            status = await self._fetcher.post(prompt.webhook.url, content, headers)
        except SynclineError as error:
            return str(error)
        return "" if 200 <= status < 300 else f"answered {status}"


def body_of(prompt: Prompt) -> bytes:
    message = prompt.message
    return msgspec.json.encode(
        Body(
            topic=prompt.webhook.topic,
            hash=prompt.digest,
            tag=message.tag,
            published_at=message.timestamp,
            ttl=message.ttl,
            message=message.message.decode(),
        )
    )


def signed_bytes(stamp: str, content: bytes) -> bytes:
    """What the signature in the headers covers."""
    return SIGNED + stamp.encode() + b"\0" + content
