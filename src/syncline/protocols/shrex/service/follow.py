"""Following the chain: fetches headers from the source, one height after the other, verifies and keeps them.

A source that fails, lies or is late is our own trouble: it is counted and tried again, and no peer pays for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

import anyio
import anyio.to_thread
import structlog

from syncline.core.errors import DecodeError, UnavailableError, UnreachableError
from syncline.core.limits import SHREX_HEADERS, SHREX_HEADERS_PER_ROUND, SHREX_POOLS, SHREX_SOURCE_SECONDS
from syncline.core.ports import Ground, StateChange
from syncline.core.record import Incoming
from syncline.core.retry import Backoff
from syncline.protocols.shrex.rules.headers import Kept, Trusted, link
from syncline.protocols.shrex.rules.judge import (
    ANCHOR,
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
from syncline.protocols.shrex.wire.header import HEIGHT_MAX, Header, encode

log = structlog.get_logger()
RETRY: Final = Backoff(first=1.0, longest=60.0)
FORKED: Final = (
    "it follows another chain than we do; to follow it there, set shrex.trusted_height and shrex.trusted_hash"
)
FAILURES: Final = (UnavailableError, UnreachableError, DecodeError)
T = TypeVar("T")


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
        """Whether our head is the source's, and it answered when last asked. One that fell back is not at the tip."""
        return self.source_answers and 0 < self.head == self.source_head

    async def restore(self) -> None:
        """Tell of the headers kept in an earlier life, if they belong to what is trusted in this one."""
        if self._trusted is not None and self.head:
            await self._trust(self._trusted)
        scan = partial(self._ground.state.scan_state, HEADERS_SPACE, limit=SHREX_HEADERS)
        for key, value in await anyio.to_thread.run_sync(scan):
            await self._on_header(int.from_bytes(key, "big"), Kept.from_bytes(value).data_hash)

    async def _trust(self, trusted: Trusted) -> None:
        """Go on with the chain that is kept if the trusted header is part of it; otherwise begin anew."""
        kept = kept_header(self._ground.state, trusted.height)
        anchored = self._ground.state.get_state(CHAIN_SPACE, ANCHOR) == _anchor(trusted.height, trusted.hash)
        if anchored if kept is None else kept.hash == trusted.hash:
            if not anchored:  # known while that header is kept, and to be known after
                await self._ground.sink.receive([], [_anchored(trusted.height, trusted.hash)])
            return
        log.warning("chain_begun_anew", trusted=trusted.height, first=self.first, head=self.head)
        keys = [height_key(height) for height in range(self.first, self.head + 1)]
        changes = [StateChange(space=HEADERS_SPACE, key=key, value=None) for key in keys]
        changes += [StateChange(space=CHAIN_SPACE, key=key, value=None) for key in (RANGE, ANCHOR)]
        await self._ground.sink.receive([], changes)  # heights that were announced stay marked
        self.first = self.head = 0

    async def run(self) -> None:
        """Follow until cancelled."""
        pauses = RETRY.spans()
        while True:
            try:
                more = await self.catch_up()
                self.source_answers = True
                pauses = RETRY.spans()
                await anyio.sleep(0 if more else self._poll_seconds)
            except FAILURES as error:
                self.source_answers = False
                self.failures += 1
                log.warning("header_source_failed", error=str(error), hint=error.hint)
                await anyio.sleep(next(pauses))

    async def catch_up(self) -> bool:
        """Fetch what is new, up to a bound; whether there is more."""
        self.source_head = _height(await _answer(self._source.head()))
        height = self.head + 1 if self.head else self._start(self.source_head)
        last = min(self.source_head, height + SHREX_HEADERS_PER_ROUND - 1)
        while 0 < height <= last:
            header = await _answer(self._source.by_height(height))
            if header is None:
                raise UnavailableError(f"the header source has no header of height {height}")
            if not isinstance(header, Header) or header.height != height:
                raise DecodeError(f"asked for the header of height {height}, got {str(header)[:200]}")
            await self._keep(header)
            height += 1
        return 0 < height <= self.source_head

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
            raise UnavailableError(
                f"the source's header of height {header.height} is refused: {verdict.detail}", hint=FORKED
            )
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
        if not self.head:
            changes.append(_anchored(header.height, header.hash))
        for height in range(self.first or first, first):
            changes.append(StateChange(space=HEADERS_SPACE, key=height_key(height), value=None))
            changes.append(StateChange(space=PUBLISHED_SPACE, key=height_key(height), value=None))
        return changes


async def _answer(question: Awaitable[T]) -> T:
    """What a source says, in time. Whatever else it does is a failure of the source, never one of the node."""
    try:
        with anyio.fail_after(SHREX_SOURCE_SECONDS):
            return await question
    except FAILURES:
        raise
    except TimeoutError:
        raise UnreachableError(f"the header source does not answer within {SHREX_SOURCE_SECONDS:.0f} s") from None
    except Exception as error:  # a plug-in's own
        log.warning("header_source_raised", exc_info=error)
        raise UnavailableError(f"the header source raises {type(error).__name__}: {str(error)[:200]}") from error


def _height(found: object) -> int:
    if not isinstance(found, int) or not 0 <= found <= HEIGHT_MAX:
        raise DecodeError(f"the header source gives {str(found)[:200]!r} for its height")
    return found


def _anchor(height: int, hash_: bytes) -> bytes:
    return height_key(height) + hash_


def _anchored(height: int, hash_: bytes) -> StateChange:
    """From now on the chain that is kept is known to hang on this header."""
    return StateChange(space=CHAIN_SPACE, key=ANCHOR, value=_anchor(height, hash_))
