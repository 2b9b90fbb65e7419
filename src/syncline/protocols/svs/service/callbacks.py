"""Calling what an application gave us. Its mistakes are logged; they stop neither the group nor other callbacks."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable

import structlog

from syncline.protocols.svs.session import Failure, Publication
from syncline.protocols.svs.wire.mapping import MappingEntry

log = structlog.get_logger()
Callback = Callable[[Publication], Awaitable[None] | None]
FailureCallback = Callable[[Failure], None]
Filter = Callable[[MappingEntry], bool]


def guarded(filter: Filter | None) -> Filter | None:
    """A filter of the application's that raises lets nothing pass."""
    if filter is None:
        return None

    def passes(entry: MappingEntry) -> bool:
        try:
            return filter(entry)
        except Exception:
            log.exception("svs_filter_failed", seq=entry.seq)
            return False

    return passes


async def call(callback: Callback, publication: Publication) -> None:
    try:
        waiting = callback(publication)
        if inspect.isawaitable(waiting):
            await waiting
    except Exception:
        log.exception("svs_callback_failed", topic=publication.topic, seq=publication.seq)


def safely(callback: FailureCallback, failure: Failure) -> None:
    try:
        callback(failure)
    except Exception:
        log.exception("svs_callback_failed", node=failure.node, seq=failure.low)
