"""Taking connections from a listener for as long as it is there. What is done with them is the caller's business."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import anyio
import structlog
from anyio.abc import ByteStream, Listener, TaskGroup
from anyio.streams.stapled import MultiListener

log = structlog.get_logger()
Stream = TypeVar("Stream", bound=ByteStream)
PAUSE: Final = 0.1  # seconds before the next try, when a connection could not be taken


class PatientListener(Listener[Stream]):
    """Serves although now and then a connection cannot be taken: too many open files, or the caller hung up first.

    anyio's own listeners end then, and a node must not end because strangers open sockets.
    """

    def __init__(self, listener: Listener[Stream]) -> None:
        self._listener = listener

    async def serve(self, handler: Callable[[Stream], Any], task_group: TaskGroup | None = None) -> None:
        """Run `handler` for every connection, until cancelled."""
        inner = self._listener
        async with anyio.create_task_group() as doors:
            for each in inner.listeners if isinstance(inner, MultiListener) else (inner,):
                doors.start_soon(_accept, each, handler, task_group or doors)

    async def aclose(self) -> None:
        await self._listener.aclose()

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        return self._listener.extra_attributes


async def serve(
    listener: Listener[Stream], handler: Callable[[Stream], Any], task_group: TaskGroup | None = None
) -> None:
    """Run `handler` for every connection, patiently, in `task_group` if there is one; closes the listener at the end."""
    async with PatientListener(listener) as patient:
        await patient.serve(handler, task_group)


async def _accept(listener: Any, handler: Callable[[Any], Any], tasks: TaskGroup) -> None:
    while True:
        try:
            stream = await listener.accept()
        except (OSError, anyio.BrokenResourceError) as error:
            log.warning("connection_not_taken", error=str(error.__cause__ or error))
            await anyio.sleep(PAUSE)
            continue
        tasks.start_soon(handler, stream)
