"""How bytes get from one host to another: TCP here, in-process pipes in `networks/memory_host.py`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import anyio
from anyio.abc import ByteStream, SocketAttribute, TaskGroup

from syncline.core.errors import UnreachableError, UsageError
from syncline.networks.accepting import serve
from syncline.networks.libp2p.multiaddr import Address

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

        tasks.start_soon(serve, listener, handle, tasks)
        return Address(address.kind, address.host, int(port))

    async def dial(self, address: Address) -> ByteStream:
        try:
            return await anyio.connect_tcp(address.host, address.port)
        except OSError as error:
            raise UnreachableError(f"nobody answers: {error.strerror or error}", about=str(address)) from None


def _remote(stream: ByteStream) -> Address:
    remote: Any = stream.extra(SocketAttribute.remote_address, ("0.0.0.0", 0))  # noqa: S104, S610
    return Address("ip6" if ":" in remote[0] else "ip4", remote[0].partition("%")[0], int(remote[1]))
