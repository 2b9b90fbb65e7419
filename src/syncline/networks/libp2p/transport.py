"""How bytes get from one host to another: TCP here, in-process pipes in `networks/memory_host.py`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

import anyio
import structlog
from anyio.abc import ByteStream, SocketAttribute, SocketListener, TaskGroup

from syncline.core.errors import UnreachableError, UsageError
from syncline.networks.libp2p.multiaddr import Address

log = structlog.get_logger()
ACCEPT_PAUSE: Final = 0.1  # seconds before the next try, when a connection could not be taken
Accept = Callable[[ByteStream, Address], Coroutine[Any, Any, None]]


class Transport(Protocol):
    """Dials and listens. `accept` gets each incoming stream with the address it comes from, in a task of its own."""

    async def listen(self, address: Address, accept: Accept, tasks: TaskGroup) -> Address:
        """Listen until the task group ends; returns the address with the port that was taken."""
        ...

    async def dial(self, address: Address) -> ByteStream:
        """Raises UnreachableError when nobody answers. The time-out is the caller's."""
        ...


class TcpTransport:
    """Implements Transport on TCP."""

    async def listen(self, address: Address, accept: Accept, tasks: TaskGroup) -> Address:
        if address.kind not in ("ip4", "ip6"):
            raise UsageError("a host listens on an IP address", about=str(address))
        try:
            listener = await anyio.create_tcp_listener(local_host=address.host, local_port=address.port)
        except OSError as error:
            raise UsageError(
                f"cannot listen on {address}: {error.strerror or error}", hint="choose another libp2p.listen"
            ) from None
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610

        async def handle(stream: ByteStream) -> None:
            await accept(stream, _remote(stream))

        async def serve() -> None:
            async with listener, anyio.create_task_group() as doors:
                for each in listener.listeners:
                    assert isinstance(each, SocketListener)
                    doors.start_soon(accept_from, each, handle, tasks)

        tasks.start_soon(serve)
        return Address(address.kind, address.host, int(port))

    async def dial(self, address: Address) -> ByteStream:
        try:
            return await anyio.connect_tcp(address.host, address.port)
        except OSError as error:
            raise UnreachableError(f"nobody answers: {error.strerror or error}", about=str(address)) from None


async def accept_from(
    listener: SocketListener, handle: Callable[[ByteStream], Coroutine[Any, Any, None]], tasks: TaskGroup
) -> None:
    """Take connections until cancelled. When one cannot be taken (too many open files, or the caller hung up first), the
    next may: a node must not end because strangers open sockets."""
    while True:
        try:
            stream = await listener.accept()
        except (OSError, anyio.BrokenResourceError) as error:
            log.warning("connection_not_taken", error=str(error.__cause__ or error))
            await anyio.sleep(ACCEPT_PAUSE)
            continue
        tasks.start_soon(handle, stream)


def _remote(stream: ByteStream) -> Address:
    remote: Any = stream.extra(SocketAttribute.remote_address, ("0.0.0.0", 0))  # noqa: S104, S610
    return Address("ip6" if ":" in remote[0] else "ip4", remote[0].partition("%")[0], int(remote[1]))
