"""Publishing once: an Idempotency-Key is kept in the same transaction as the message it published.

A repeated request with the same body gets the first answer, also after a crash in between; with another body it is a
conflict. Keys are forgotten after a day.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from syncline.core.clock import Clock
from syncline.core.errors import ConflictError
from syncline.core.limits import DAY
from syncline.core.ports import StateChange
from syncline.journal import Journal

SPACE: Final = "api.idempotency"


class _Kept(msgspec.Struct, frozen=True):
    body: str  # sha256
    answer: dict[str, Any] | None  # None: published, but the answer was lost in a crash


class Idempotency:
    """The keys of one node's publish requests."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock

    async def once(
        self,
        key: str,
        body: bytes,
        publish: Callable[[Sequence[StateChange]], Awaitable[Mapping[str, Any]]],
    ) -> Mapping[str, Any]:
        """Publish unless this key has, and answer as the first time."""
        digest = hashlib.sha256(body).hexdigest()
        name = hashlib.sha256(key.encode()).digest()
        kept = self._kept(name)
        if kept is not None:
            return _replay(kept, digest)
        mark = self._change(name, _Kept(digest, None), expect=True)
        try:
            answer = dict(await publish([mark]))
        except ConflictError:
            kept = self._kept(name)  # a twin request may have been first
            if kept is None:
                raise
            return _replay(kept, digest)
        await self._journal.append([], [self._change(name, _Kept(digest, answer))])
        return answer

    def _kept(self, name: bytes) -> _Kept | None:
        value = self._journal.get_state(SPACE, name)
        return None if value is None else msgspec.json.decode(value, type=_Kept)

    def _change(self, name: bytes, kept: _Kept, *, expect: bool = False) -> StateChange:
        value, expires_at = msgspec.json.encode(kept, enc_hook=str), self._clock.now() + DAY
        if expect:
            return StateChange(space=SPACE, key=name, value=value, expires_at=expires_at, expect=None)
        return StateChange(space=SPACE, key=name, value=value, expires_at=expires_at)


def _replay(kept: _Kept, digest: str) -> Mapping[str, Any]:
    if kept.body != digest:
        raise ConflictError("this Idempotency-Key was used with another body", hint="use a new key for a new message")
    return {**(kept.answer or {"published": True}), "replayed": True}
