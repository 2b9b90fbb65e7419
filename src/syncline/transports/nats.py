"""SDSP over NATS JetStream: one stream for many topics, one subject per object, serials guarded by the server.

The NATS client knows only asyncio, so it lives behind the portal thread and gets and gives batches. JetStream answers
before it has synced to disk unless the server runs with `sync_interval: always`: a publish that returned survives a crash
of the server process, but with that default not a power failure.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

import anyio

from syncline.core.errors import OverloadedError, SynclineError, UsageError
from syncline.core.limits import SDSP_BATCH, SDSP_PENDING
from syncline.networks.portal import Portal, open_portal
from syncline.protocols.sdsp.plugins import Capabilities, Delivery, Start, header_of
from syncline.transports.jetstream import Outgoing, Remote, Subscription, connected

DEFAULT_STREAM: Final = "SDSP"
REQUEST_SECONDS: Final = 5.0


class NatsTransport:
    """Implements `Transport`. Publishes of many tasks travel together."""

    def __init__(self, portal: Portal, remote: Remote) -> None:
        self._portal = portal
        self._remote = remote
        self._waiting: list[Outgoing] = []
        self._crossing = anyio.Lock()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            max_payload=self._remote.max_payload,
            ordered=True,
            history=True,
            optimistic=True,
            durable=True,
            authenticated=False,
        )

    async def publish(self, topic: str, payload: bytes, *, dedupe_id: str, expect_serial: int | None) -> None:
        if len(self._waiting) >= SDSP_PENDING:
            raise OverloadedError("too many publishes wait for NATS")
        item = Outgoing(self._remote.subject(topic, header_of(payload).uid), payload, dedupe_id, expect_serial)
        self._waiting.append(item)
        async with self._crossing:
            if item.outcome is None:
                await self._send_waiting()
        if isinstance(item.outcome, SynclineError):
            raise item.outcome

    async def _send_waiting(self) -> None:
        batch, self._waiting = self._waiting[:SDSP_BATCH], self._waiting[SDSP_BATCH:]
        try:
            await self._portal.call(self._remote.publish_all, batch)
        finally:  # cancelled halfway: whoever else waits sends the rest again, which the server takes once
            self._waiting[:0] = [item for item in batch if item.outcome is None]

    @asynccontextmanager
    async def subscribe(self, topic: str, start: Start) -> AsyncIterator[AsyncIterator[Delivery]]:
        remote = await self._portal.call(self._remote.subscribe, self._remote.subject(topic, start.uid), start)
        deliveries = self._deliveries(remote)
        try:
            yield deliveries
        finally:
            with anyio.CancelScope(shield=True):
                await deliveries.aclose()
                await self._portal.call(remote.close)

    async def _deliveries(self, remote: Subscription) -> AsyncGenerator[Delivery, None]:
        while True:
            for payload in await self._portal.call(remote.take):
                yield Delivery(payload)

    async def replay(self, topic: str, *, uid: str, first: int, last: int) -> Sequence[bytes]:
        return await self._portal.call(self._remote.replay, self._remote.subject(topic, uid), first, last)

    async def newest(self, topic: str, *, uid: str) -> bytes | None:
        return await self._portal.call(self._remote.newest, self._remote.subject(topic, uid))


@asynccontextmanager
async def open_nats(url: str, *, stream: str = "", timeout: float = REQUEST_SECONDS) -> AsyncIterator[NatsTransport]:
    """The JetStream of `nats://user:password@host:port/STREAM`; the stream is made if it is not there.

    `timeout` is how many seconds the server gets for an answer.
    """
    parts = urlsplit(url)
    name = stream or parts.path.strip("/") or DEFAULT_STREAM
    if parts.query:
        raise UsageError("a NATS address takes no parameters", about=url)
    server = parts._replace(path="", query="", fragment="").geturl()
    async with open_portal() as portal:
        remote = await portal.call(connected, name, server, timeout)
        try:
            yield NatsTransport(portal, remote)
        finally:
            with anyio.CancelScope(shield=True):
                await portal.call(remote.close)
