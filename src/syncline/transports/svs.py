"""SDSP over an SVS-PS group: each frame is a publication under /sdsp/<topic>/<uid>/<serial>.

`svs://host:port/group?node=/prefix` names a forwarder, a group and the prefix to publish under. The group itself brings late
joiners what its publishers still serve, oldest first per publisher but without a promise of order; it answers no questions
about the past. Groups with keys are opened in Python: `SvsTransport(group, authenticated=True)`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import parse_qs, urlsplit

from syncline.core.errors import UsageError
from syncline.core.limits import SDSP_FRAME_MAX, SVS_PUBLICATION_BYTES
from syncline.formats.ndn import types as t
from syncline.formats.ndn.names import Name, generic, number
from syncline.protocols.sdsp.plugins import Capabilities, Delivery, Start, header_of
from syncline.protocols.svs.service import Group, join

ROOT: Final = generic(b"sdsp")
REMEMBERED: Final = 4_096  # publishes that are recognised when they are repeated


class SvsTransport:
    """Implements `Transport` on a group."""

    def __init__(self, group: Group, *, authenticated: bool = False) -> None:
        self._group = group
        self._authenticated = authenticated
        self._published: OrderedDict[tuple[str, str], None] = OrderedDict()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            max_payload=min(SVS_PUBLICATION_BYTES, SDSP_FRAME_MAX),
            ordered=False,
            history=False,
            optimistic=False,
            durable=False,
            authenticated=self._authenticated,
        )

    async def publish(self, topic: str, payload: bytes, *, dedupe_id: str, expect_serial: int | None) -> None:
        if (topic, dedupe_id) in self._published:
            return
        header = header_of(payload)
        await self._group.publish(_prefix(topic, header.uid) + number(t.SEQUENCE, header.serial), payload)
        self._published[topic, dedupe_id] = None
        if len(self._published) > REMEMBERED:
            self._published.popitem(last=False)

    @asynccontextmanager
    async def subscribe(self, topic: str, start: Start) -> AsyncIterator[AsyncIterator[Delivery]]:
        publications = self._group.publications(_prefix(topic, start.uid))

        async def deliveries() -> AsyncIterator[Delivery]:
            async for publication in publications:
                yield Delivery(publication.payload, publication.node if self._authenticated else "")

        found = deliveries()
        try:
            yield found
        finally:
            publications.close()
            await found.aclose()  # type: ignore[attr-defined]

    async def replay(self, topic: str, *, uid: str, first: int, last: int) -> Sequence[bytes]:
        return []

    async def newest(self, topic: str, *, uid: str) -> bytes | None:
        return None


@asynccontextmanager
async def open_svs(url: str) -> AsyncIterator[SvsTransport]:
    """The group a URL names."""
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    unknown = set(query) - {"node"}
    if not parts.hostname or parts.path in ("", "/") or unknown:
        raise UsageError("an SVS-PS group is written svs://host:port/group?node=/prefix", about=url)
    forwarder = f"tcp://{parts.netloc.rpartition('@')[2]}"
    async with join(parts.path, node=query.get("node"), forwarder=forwarder) as group:
        yield SvsTransport(group)


def _prefix(topic: str, uid: str) -> Name:
    return ROOT + generic(topic.encode()) + generic(uid.encode())
