"""Publishing once: an Idempotency-Key is kept in the same transaction as the message it published.

A repeated request with the same body gets the first answer, be it a refusal, also after a crash in between; with another
body it is a conflict. Keys are forgotten after a day.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from syncline.core.clock import Clock
from syncline.core.errors import ConflictError, SynclineError, restored, shown
from syncline.core.limits import DAY
from syncline.core.ports import StateChange
from syncline.journal import Journal

SPACE: Final = "api.idempotency"


class _Kept(msgspec.Struct, frozen=True):
    body: str  # sha256
    answer: dict[str, Any] | None  # None: published, but the answer was lost in a crash
    refused: dict[str, Any] | None = None  # the error, as JSON shows it
    request: str = ""  # which of several twins made this


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
        request = os.urandom(8).hex()
        mark = self._change(name, _Kept(digest, None, request=request), expect=True)
        try:
            answer = dict(await publish([mark]))
        except SynclineError as error:
            return await self._failed(name, digest, request, error)
        await self._journal.append([], [self._change(name, _Kept(digest, answer))])
        return answer

    async def _failed(self, name: bytes, digest: str, request: str, error: SynclineError) -> Mapping[str, Any]:
        """A message that our own rules refuse has a record like any other, and the key with it: remember the refusal."""
        kept = self._kept(name)
        if kept is not None and kept.request == request:
            if not error.retry:
                refused = _Kept(digest, None, refused=shown(error))
                await self._journal.append([], [self._change(name, refused)])
        elif kept is not None and isinstance(error, ConflictError):  # a twin was first
            return _replay(kept, digest)
        raise error

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
    if kept.refused is not None:
        raise restored({"error": kept.refused}, "this message was refused")
    return {**(kept.answer or {"published": True}), "replayed": True}
