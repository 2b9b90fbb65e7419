"""Plug-ins for SDSP by somebody else: a transport, a history, an object storage and a delta algorithm."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from syncline.core.errors import DeltaError, NotFoundError
from syncline.core.verdict import Reason
from syncline.protocols.sdsp.deltas import Budget
from syncline.protocols.sdsp.plugins import Capabilities, Delivery, HistoryGround, Location, Start, header_of
from syncline.protocols.sdsp.wire import Frame, ObjectKind
from syncline.transports.memory import MemoryHub

LOFTS: dict[str, Loft] = {}


class Loft(MemoryHub):
    """A transport that carries little and forgets: subscribers hear only what comes after they did."""

    capabilities = Capabilities(
        max_payload=150, ordered=True, history=False, optimistic=False, durable=False, authenticated=False
    )

    def __init__(self) -> None:
        super().__init__()
        self.attic: list[bytes] = []

    async def publish(self, topic: str, payload: bytes, *, dedupe_id: str, expect_serial: int | None) -> None:
        self.attic.append(payload)
        await super().publish(topic, payload, dedupe_id=dedupe_id, expect_serial=None)

    @asynccontextmanager
    async def subscribe(self, topic: str, start: Start) -> AsyncIterator[AsyncIterator[Delivery]]:
        newest = await self.newest(topic, uid=start.uid)
        after = -1 if newest is None else header_of(newest).serial - 1
        async with super().subscribe(topic, Start(uid=start.uid, after=after)) as deliveries:
            yield deliveries


@asynccontextmanager
async def open_pigeon(url: str) -> AsyncIterator[Loft]:
    yield LOFTS.setdefault(url, Loft())


class Attic:
    """A history of everything a loft has carried."""

    def __init__(self, loft: Loft) -> None:
        self._loft = loft

    async def history(self, frame: Frame) -> Sequence[bytes]:
        return list(self._loft.attic)

    async def last(self, uid: str) -> bytes | None:
        return self._loft.attic[-1] if self._loft.attic else None


def make_attic(ground: HistoryGround) -> Attic | None:
    return Attic(ground.transport) if isinstance(ground.transport, Loft) else None


class Shoebox:
    """An object storage in a dictionary."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    async def store(self, content: bytes, *, media_type: str = "application/json") -> Location:
        uid = f"card-{len(self._kept)}"
        self._kept[f"shoebox:{uid}"] = content
        return Location(f"shoebox:{uid}", uid)

    async def load(self, uri: str) -> bytes:
        if uri not in self._kept:
            raise NotFoundError("not in this box", about=uri)
        return self._kept[uri]

    async def delete(self, uri: str) -> None:
        self._kept.pop(uri, None)

    def owns(self, uri: str) -> bool:
        return uri in self._kept


def open_shoebox(url: str, **options: Any) -> Shoebox:
    return Shoebox()


class Append:
    """A delta algorithm for texts that only ever grow."""

    code = "X-append"
    kinds = frozenset({ObjectKind.TEXT})

    def make(self, old: Any, new: Any) -> Any | None:
        return new[len(old) :] if new.startswith(old) else None

    def apply(self, old: Any, delta: Any, budget: Budget, *, in_place: bool = False) -> Any:
        if not isinstance(delta, str):
            raise DeltaError("not a text", reason=Reason.INVALID_PAYLOAD)
        budget.grow(len(delta))
        return old + delta
