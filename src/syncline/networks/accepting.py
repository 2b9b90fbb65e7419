"""Taking connections from a listener for as long as it is there. What is done with them is the caller's business."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

import anyio
import structlog
from anyio.abc import ByteStream, SocketListener, TaskGroup
from anyio.streams.stapled import MultiListener

log = structlog.get_logger()
PAUSE: Final = 0.1  # seconds before the next try, when a connection could not be taken


async def serve(
    listener: MultiListener[Any], handle: Callable[[ByteStream], Coroutine[Any, Any, None]], tasks: TaskGroup
) -> None:
    """Run `handle` for every connection, in `tasks`, until cancelled; closes the listener then.

    When a connection cannot be taken (too many open files, or the caller hung up first), the next may: anyio's own `serve`
    ends instead, and a node must not end because strangers open sockets.
    """
    async with listener, anyio.create_task_group() as doors:
        for each in listener.listeners:
            assert isinstance(each, SocketListener)
            doors.start_soon(_accept, each, handle, tasks)


async def _accept(
    listener: SocketListener, handle: Callable[[ByteStream], Coroutine[Any, Any, None]], tasks: TaskGroup
) -> None:
    while True:
        try:
            stream = await listener.accept()
        except (OSError, anyio.BrokenResourceError) as error:
            log.warning("connection_not_taken", error=str(error.__cause__ or error))
            await anyio.sleep(PAUSE)
            continue
        tasks.start_soon(handle, stream)
