"""Background tasks for the length of a block, without changing what the block's own exceptions look like."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup


@asynccontextmanager
async def background() -> AsyncIterator[TaskGroup]:
    """A task group that is cancelled when the block ends.

    What the block raises comes out as it is, not wrapped in a group: whoever writes the block need not know that tasks
    run beside it. Tasks are expected to hand their own errors over and not to raise.
    """
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        try:
            yield tasks
        except Exception as error:
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
