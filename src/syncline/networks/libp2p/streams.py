"""Framed streams with time-outs, as protocols see them. Implements `networks.host.Stream` on a connection's channel."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import anyio

from syncline.core.errors import UnavailableError
from syncline.formats.framing import Framing
from syncline.networks.libp2p.connection import Channel


class FramedStream:
    """Frames on one channel. Several tasks may send; one may receive."""

    def __init__(self, channel: Channel, framing: Framing, timeout: float) -> None:
        self._channel, self._framing, self._timeout = channel, framing, timeout
        self._reader = framing.reader()
        self._ready: deque[bytes] = deque()
        self._turn = anyio.Lock()

    @property
    def peer(self) -> str:
        return self._channel.peer

    @property
    def protocol(self) -> str:
        return self._channel.protocol

    async def receive(self) -> bytes | None:
        while not self._ready:
            try:
                with anyio.fail_after(self._timeout):
                    chunk = await self._channel.receive()
            except TimeoutError:
                raise UnavailableError("the peer sent nothing in time", about=self.peer) from None
            if not chunk:
                self._reader.finish()
                return None
            self._ready.extend(self._reader.feed(chunk))
        return self._ready.popleft()

    async def send(self, frame: bytes) -> None:
        await self.send_many([frame])

    async def send_many(self, frames: Sequence[bytes]) -> None:
        data = b"".join(map(self._framing.wrap, frames))
        try:
            with anyio.fail_after(self._timeout):
                async with self._turn:
                    await self._channel.send(data)
        except TimeoutError:
            self._channel.reset()  # part of a frame may have left: nobody can follow this stream any more
            raise UnavailableError("the peer takes nothing", about=self.peer) from None

    async def end(self) -> None:
        self._channel.end()
        await anyio.lowlevel.checkpoint()

    async def close(self) -> None:
        self._channel.close()
        await anyio.lowlevel.checkpoint()
