"""SDSP over the relay network: the frames of one object on one topic, cached by relays until their time is over.

A relay answers when a frame is on its disk and carries it to subscribers on every server of its federation. It orders
frames only as they reached it and knows no serials, so two publishers of one object are not kept apart. Relays carry
text, which JSON frames are; subscribers are not told who published.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Final

from syncline.core.errors import DecodeError, UsageError
from syncline.core.keys import NodeKey
from syncline.core.limits import RELAY_MESSAGE_BYTES, RELAY_TTL_MAX
from syncline.core.retry import Backoff
from syncline.protocols.relay.client import RelayClient, RelayMessage
from syncline.protocols.sdsp.plugins import Capabilities, Delivery, Header, Start, header_of

TAG: Final = 0


class RelayTransport:
    """Implements `Transport` as clients of one relay: one that publishes, and a new one for every reader.

    A reader with a name of its own is sent everything that is still cached, which is what history and late joiners need.
    """

    capabilities: Final = Capabilities(
        max_payload=RELAY_MESSAGE_BYTES,
        ordered=False,
        history=True,
        optimistic=False,
        durable=True,
        authenticated=False,
    )

    def __init__(self, publisher: RelayClient, url: str, *, ttl: int, options: _ClientOptions) -> None:
        self._publisher = publisher
        self._url = url
        self._ttl = ttl
        self._options = options

    async def publish(self, topic: str, payload: bytes, *, dedupe_id: str, expect_serial: int | None) -> None:
        """A repeat is the same text on the same topic, which a relay takes once."""
        try:
            text = payload.decode()
        except UnicodeDecodeError:
            raise UsageError("a relay carries text, and this frame is not UTF-8") from None
        where = relay_topic(topic, header_of(payload).uid)
        await self._publisher.publish(where, text, ttl=self._ttl, tag=TAG)

    @asynccontextmanager
    async def subscribe(self, topic: str, start: Start) -> AsyncIterator[AsyncIterator[Delivery]]:
        where = relay_topic(topic, start.uid)
        begin = await self._base(where, start.uid) if start.after is None else start.after + 1
        async with self._reader() as reader, reader.subscribe(where) as messages:
            deliveries = _deliveries(messages, begin)
            try:
                yield deliveries
            finally:
                await deliveries.aclose()

    async def replay(self, topic: str, *, uid: str, first: int, last: int) -> Sequence[bytes]:
        frames = await self._cached(relay_topic(topic, uid), uid)
        return [payload for serial, payload in sorted(frames.items()) if first <= serial <= last]

    async def newest(self, topic: str, *, uid: str) -> bytes | None:
        frames = await self._cached(relay_topic(topic, uid), uid)
        return frames[max(frames)] if frames else None

    async def _base(self, where: str, uid: str) -> int:
        frames = await self._cached(where, uid)
        return header_of(frames[max(frames)]).base if frames else 0

    async def _cached(self, where: str, uid: str) -> dict[int, bytes]:
        """What the relay still has of this object, by serial; of two frames with one serial, the first."""
        async with self._reader() as reader:
            payloads = [message.message.encode() for message in await reader.fetch(where)]
        found: dict[int, bytes] = {}
        for payload in payloads:
            header = _header(payload)
            if header is not None and header.uid == uid:
                found.setdefault(header.serial, payload)
        return found

    def _reader(self) -> RelayClient:
        return self._options.client(self._url, NodeKey.generate())


class _ClientOptions:
    """How clients of this transport are made."""

    def __init__(
        self, project_id: str, tls: ssl.SSLContext | None, backoff: Backoff | None, random: Random | None
    ) -> None:
        self._project_id = project_id
        self._tls = tls
        self._backoff = backoff
        self._random = random

    def client(self, url: str, key: NodeKey) -> RelayClient:
        return RelayClient(
            url, key, project_id=self._project_id, tls=self._tls, backoff=self._backoff, random=self._random
        )


async def _deliveries(messages: AsyncIterator[RelayMessage], begin: int) -> AsyncGenerator[Delivery, None]:
    async for message in messages:
        payload = message.message.encode()
        header = _header(payload)
        if header is None or header.serial >= begin:  # what is no frame is for the session to count
            yield Delivery(payload)


def _header(payload: bytes) -> Header | None:
    """Anybody may publish anything on a topic he has guessed."""
    try:
        return header_of(payload)
    except DecodeError:
        return None


def relay_topic(topic: str, uid: str) -> str:
    """The relay topic of one object: 32 bytes that follow from its SDSP topic and uid."""
    return hashlib.sha256(f"sdsp\0{topic}\0{uid}".encode()).hexdigest()


@asynccontextmanager
async def open_relay(
    url: str,
    *,
    key: NodeKey | None = None,
    ttl: int = RELAY_TTL_MAX,
    project_id: str = "",
    tls: ssl.SSLContext | None = None,
    backoff: Backoff | None = None,
    random: Random | None = None,
) -> AsyncIterator[RelayTransport]:
    """The relay at `relay:ws://host:port` or `relay:wss://…`; `ttl` is how long frames stay there, in seconds."""
    address = url.removeprefix("relay:")
    if not 1 <= ttl <= RELAY_TTL_MAX:
        raise UsageError(f"a relay keeps frames between 1 and {RELAY_TTL_MAX} s, not {ttl}")
    options = _ClientOptions(project_id, tls, backoff, random)
    async with options.client(address, key or NodeKey.generate()) as publisher:
        yield RelayTransport(publisher, address, ttl=ttl, options=options)
