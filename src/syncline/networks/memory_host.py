"""libp2p hosts inside one process: the whole stack of `networks/libp2p`, on pipes instead of sockets.

For tests, simulation and demos; with a virtual clock under the event loop, for virtual time. Hosts of one fabric find
each other by the addresses they announce; a line between two of them can be slow, and can be cut.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from random import Random
from typing import Any, Final

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import ByteStream, TaskGroup

from syncline.core.clock import Clock
from syncline.core.errors import UnreachableError, UsageError
from syncline.core.keys import NodeKey
from syncline.networks.libp2p.host import HostSettings, Libp2pHost, running_host
from syncline.networks.libp2p.multiaddr import Address
from syncline.networks.libp2p.transport import Accept
from syncline.networks.signal import Signal

PIPE_BYTES: Final = 65_536  # under way in one direction
MOUTHFUL: Final = 1_024  # bytes that come at once over a slow line


class MemoryFabric:
    """Where memory hosts find each other."""

    def __init__(self) -> None:
        self.listeners: dict[str, tuple[Accept, TaskGroup]] = {}
        self._pipes: list[tuple[frozenset[str], PipeStream, PipeStream]] = []
        self._severed: set[frozenset[str]] = set()
        self.bytes_per_second = math.inf  # of lines opened from now on

    def host(
        self,
        key: NodeKey,
        settings: HostSettings | None = None,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> AbstractAsyncContextManager[Libp2pHost]:
        """A host of this fabric, for the length of an `async with` block."""
        listening = msgspec.structs.replace(settings or HostSettings(), listen=(f"/memory/{key.peer_id}",))
        transport = MemoryTransport(self, key.peer_id)
        return running_host(key, listening, transport=transport, clock=clock, random=random)

    def connect(self, dialler: str, listener: str) -> PipeStream:
        """The dialler's end of a new pipe."""
        line = frozenset((dialler, listener))
        if listener not in self.listeners or line in self._severed:
            raise UnreachableError("nobody answers", about=f"/memory/{listener}")
        ours, theirs = pipe(self.bytes_per_second)
        accept, tasks = self.listeners[listener]
        tasks.start_soon(accept, theirs, Address("memory", dialler, 0))
        self._pipes = [each for each in self._pipes if not each[1].closed]
        self._pipes.append((line, ours, theirs))
        return ours

    def sever(self, one: str, other: str) -> None:
        """Break the line between two hosts and keep it broken until `mend`."""
        line = frozenset((one, other))
        self._severed.add(line)
        for between, ours, theirs in self._pipes:
            if between == line:
                ours.break_off()
                theirs.break_off()

    def mend(self, one: str, other: str) -> None:
        self._severed.discard(frozenset((one, other)))


class MemoryTransport:
    """Implements `networks.libp2p.transport.Transport` on pipes."""

    def __init__(self, fabric: MemoryFabric, name: str) -> None:
        self._fabric, self._name = fabric, name

    async def listen(self, address: Address, accept: Accept, tasks: TaskGroup) -> Address:
        if address.host in self._fabric.listeners:
            raise UsageError("somebody listens there already", about=str(address))
        self._fabric.listeners[address.host] = accept, tasks

        async def until_cancelled() -> None:
            try:
                await anyio.sleep_forever()
            finally:
                del self._fabric.listeners[address.host]

        tasks.start_soon(until_cancelled)
        await anyio.lowlevel.checkpoint()
        return address

    async def dial(self, address: Address) -> ByteStream:
        await anyio.lowlevel.checkpoint()
        return self._fabric.connect(self._name, address.host)


class MemoryNetworks:
    """Implements `core.ports.Networks` with a host that is already running."""

    def __init__(self, host: Libp2pHost) -> None:
        self._host = host

    async def libp2p(self) -> Libp2pHost:
        return self._host

    async def run(self, *, task_status: Any) -> None:
        task_status.started()

    def addresses(self) -> Sequence[str]:
        return self._host.addresses

    def statistics(self) -> Mapping[str, int | float]:
        return self._host.statistics()


class _Direction:
    """Bytes under way in one direction."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.ended = False  # the writer will send no more
        self.broken = False
        self.changed = Signal()


class PipeStream(ByteStream):
    """One end of an in-process pipe: a byte stream with a bounded buffer."""

    def __init__(self, inward: _Direction, outward: _Direction, bytes_per_second: float = math.inf) -> None:
        self._inward, self._outward, self._rate = inward, outward, bytes_per_second
        self.closed = False

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        await anyio.lowlevel.checkpoint()
        way = self._inward
        while not way.data:
            if self.closed:
                raise anyio.ClosedResourceError
            if way.broken:
                raise anyio.BrokenResourceError
            if way.ended:
                raise anyio.EndOfStream
            await way.changed.wait()
        if math.isfinite(self._rate):
            max_bytes = min(max_bytes, MOUTHFUL)
            await anyio.sleep(MOUTHFUL / self._rate)
        data = bytes(way.data[:max_bytes])
        del way.data[:max_bytes]
        way.changed.set()
        return data

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        way, rest = self._outward, memoryview(item)
        while rest:
            if self.closed:
                raise anyio.ClosedResourceError
            if way.broken or way.ended:
                raise anyio.BrokenResourceError
            room = PIPE_BYTES - len(way.data)
            if room > 0:
                way.data += rest[:room]
                rest = rest[room:]
                way.changed.set()
            else:
                await way.changed.wait()

    async def send_eof(self) -> None:
        self._outward.ended = True
        self._outward.changed.set()

    def break_off(self) -> None:
        """As when a cable is pulled."""
        for way in (self._inward, self._outward):
            way.broken = True
            way.data.clear()
            way.changed.set()

    async def aclose(self) -> None:
        self.closed = True
        self._outward.ended = self._inward.broken = True
        for way in (self._inward, self._outward):
            way.changed.set()
        await anyio.lowlevel.checkpoint()

    @property
    def extra_attributes(self) -> Mapping[Any, Any]:
        return {}


def pipe(bytes_per_second: float = math.inf) -> tuple[PipeStream, PipeStream]:
    """Two ends that hear each other."""
    there, back = _Direction(), _Direction()
    return PipeStream(back, there, bytes_per_second), PipeStream(there, back, bytes_per_second)
