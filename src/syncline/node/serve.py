"""Listening: runs the node's ASGI application on hypercorn under trio, on a socket bound here.

Binding ourselves gives a clear error for a taken port and tells which port a 0 became.
"""

from __future__ import annotations

import socket

import anyio
from anyio.abc import TaskStatus
from hypercorn.config import Config
from hypercorn.trio import serve as hypercorn_serve

from syncline.core.errors import UsageError
from syncline.core.limits import API_BODY_BYTES
from syncline.core.settings import ApiSettings
from syncline.node.guard import App, check_bind


def bind(api: ApiSettings) -> socket.socket:
    """A listening socket at the address of the settings."""
    check_bind(api)
    family = socket.AF_INET6 if ":" in api.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((api.host, api.port))
    except OSError as error:
        listener.close()
        raise UsageError(
            f"cannot listen on {api.host}:{api.port}: {error.strerror}", hint="choose another with --set api.port=0"
        ) from None
    listener.listen(128)
    return listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve(app: App, listener: socket.socket, *, task_status: TaskStatus[None]) -> None:
    """Serve until cancelled; open requests get a moment to end."""
    config = Config()
    config.bind = [f"fd://{listener.detach()}"]
    config.accesslog = None
    config.errorlog = None
    config.graceful_timeout = 1.0
    config.include_server_header = False
    config.websocket_max_message_size = API_BODY_BYTES
    stop = anyio.Event()

    async def run() -> None:
        await hypercorn_serve(app, config, shutdown_trigger=stop.wait, mode="asgi")  # type: ignore[arg-type]

    async with anyio.create_task_group() as tasks:
        try:
            tasks.start_soon(run)
            task_status.started()  # the socket listens already
            await anyio.sleep_forever()
        finally:
            stop.set()
            tasks.cancel_scope.shield = True
