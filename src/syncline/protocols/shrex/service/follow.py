"""Following the chain: fetches headers from the source, one height after the other, verifies and keeps them.

A source that fails, lies or is late is our own trouble: it is counted and tried again, and no peer pays for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
import structlog

from syncline.core.errors import DecodeError, UnavailableError, UnreachableError
from syncline.core.limits import SHREX_HEADERS, SHREX_HEADERS_PER_ROUND, SHREX_POOLS
from syncline.core.ports import Ground, StateChange
from syncline.core.record import Incoming
from syncline.core.retry import Backoff
from syncline.protocols.shrex.rules.headers import Kept, Trusted, link
from syncline.protocols.shrex.rules.judge import (
    CHAIN_SPACE,
    HEADERS_SPACE,
    HEADERS_TOPIC,
    PROTOCOL,
    PUBLISHED_SPACE,
    RANGE,
    height_key,
    kept_header,
    range_of,
)
from syncline.protocols.shrex.service.sources import HeaderSource
from syncline.protocols.shrex.wire.header import Header, encode

log = structlog.get_logger()
RETRY: Final = Backoff(first=1.0, longest=60.0)


class Follower:
    """Keeps our chain up with a source. `on_header(height, data_hash)` is called after each commit, in order."""

    def __init__(
        self,
        ground: Ground,
        source: HeaderSource,
        trusted: Trusted | None,
        *,
        poll_seconds: float,
        on_header: Callable[[int, bytes], Awaitable[None]],
    ) -> None:
        self._ground, self._source, self._trusted = ground, source, trusted
        self._poll_seconds, self._on_header = poll_seconds, on_header
        self.first, self.head = range_of(ground.state)
        self.source_head = 0
        self.source_answers = False
        self.failures = self.refused = 0

    @property
    def synced(self) -> bool:
        """Whether we have every header the source has, and it answered when last asked."""
        return self.source_answers and self.head > 0 and self.head >= self.source_head

    async def restore(self) -> None:
        """Tell of the headers kept in an earlier life."""
        scan = partial(self._ground.state.scan_state, HEADERS_SPACE, limit=SHREX_HEADERS)
        for key, value in await anyio.to_thread.run_sync(scan):
            await self._on_header(int.from_bytes(key, "big"), Kept.from_bytes(value).data_hash)

    async def run(self) -> None:
        """Follow until cancelled."""
        pauses = RETRY.spans()
        while True:
            try:
                more = await self.catch_up()
                self.source_answers = True
                pauses = RETRY.spans()
                await anyio.sleep(0 if more else self._poll_seconds)
            except (UnavailableError, UnreachableError, DecodeError) as error:
                self.source_answers = False
                self.failures += 1
                log.warning("header_source_failed", error=str(error))
                await anyio.sleep(next(pauses))

    async def catch_up(self) -> bool:
        """Fetch what is new, up to a bound; whether there is more."""
        self.source_head = await self._source.head()
        height = self.head + 1 if self.head else self._start(self.source_head)
        last = min(self.source_head, height + SHREX_HEADERS_PER_ROUND - 1)
        while 0 < height <= last:
            header = await self._source.by_height(height)
            if header is None:
                raise UnavailableError(f"the header source has no header of height {height}")
            await self._keep(header)
            height += 1
        return self.head < self.source_head

    def _start(self, source_head: int) -> int:
        """Where the chain begins: at the trusted header, or with what the pools need."""
        if self._trusted is not None:
            return self._trusted.height if source_head >= self._trusted.height else 0
        return max(1, source_head - SHREX_POOLS) if source_head else 0

    async def _keep(self, header: Header) -> None:
        previous = kept_header(self._ground.state, header.height - 1)
        verdict = link(header, previous, self._trusted, is_first=not self.head)
        await self._ground.sink.receive([self._record(header)], self._changes(header) if verdict.accepted else ())
        if not verdict.accepted:
            self.refused += 1
            raise UnavailableError(f"the source's header of height {header.height} is refused: {verdict.detail}")
        self.first, self.head = self._range(header.height)
        await self._on_header(header.height, header.data_hash)

    def _record(self, header: Header) -> Incoming:
        return Incoming(
            protocol=PROTOCOL,
            topic=HEADERS_TOPIC,
            raw=encode(header),
            peer=type(self._source).__name__,
            received_at=self._ground.clock.now(),
        )

    def _range(self, height: int) -> tuple[int, int]:
        return max(self.first or height, height - SHREX_HEADERS + 1), height

    def _changes(self, header: Header) -> list[StateChange]:
        """The header and the range of heights kept; what falls out of the range goes."""
        first, head = self._range(header.height)
        kept = Kept(header.hash, header.data_hash).to_bytes()
        changes = [
            StateChange(space=HEADERS_SPACE, key=height_key(head), value=kept),
            StateChange(space=CHAIN_SPACE, key=RANGE, value=first.to_bytes(8, "big") + head.to_bytes(8, "big")),
        ]
        for height in range(self.first or first, first):
            changes.append(StateChange(space=HEADERS_SPACE, key=height_key(height), value=None))
            changes.append(StateChange(space=PUBLISHED_SPACE, key=height_key(height), value=None))
        return changes
