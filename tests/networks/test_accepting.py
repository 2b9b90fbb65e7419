"""Listeners that go on although a connection could not be taken."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import pytest
from anyio.abc import ByteStream, SocketAttribute
from structlog.testing import capture_logs

from syncline.networks.accepting import PatientListener, serve

pytestmark = pytest.mark.anyio


@contextmanager
def no_more_files() -> Iterator[None]:
    """Let this process open no further file."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)  # the lowest number that is free
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def _answer(stream: ByteStream) -> None:
    async with stream:
        await stream.send(b"welcome")


def _serve_plainly(listener: Any) -> Callable[[], Any]:
    return partial(serve, listener, _answer)


def _serve_as_a_listener(listener: Any) -> Callable[[], Any]:
    return partial(PatientListener(listener).serve, _answer)


@pytest.mark.parametrize("serving", [_serve_plainly, _serve_as_a_listener])
async def test_a_listener_outlives_running_out_of_files(serving: Callable[[Any], Callable[[], Any]]) -> None:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    port = listener.extra(SocketAttribute.local_port)
    with socket.socket() as caller, capture_logs() as logged:
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(serving(listener))
            with no_more_files():
                caller.connect(("127.0.0.1", port))
                with anyio.fail_after(10):
                    while not logged:
                        await anyio.sleep(0.01)
            caller.settimeout(10)
            assert await anyio.to_thread.run_sync(caller.recv, 7) == b"welcome"
            tasks.cancel_scope.cancel()
    assert {entry["event"] for entry in logged} == {"connection_not_taken"}
