"""From a bare byte stream to a secure one: agree on Noise, shake hands, agree on Yamux.

Everything here happens before the peer has proven who it is, so every length is bounded; the time-out is the caller's.
"""

from __future__ import annotations

import os
from typing import Final

import anyio
from anyio.abc import ByteStream as AnyByteStream

from syncline.core.errors import UnreachableError
from syncline.core.keys import NodeKey
from syncline.formats.framing import Framing
from syncline.networks.libp2p import noise, yamux
from syncline.networks.libp2p.multistream import propose, respond

CHUNK: Final = 65_536
FRAMING: Final = Framing("u16be", noise.MESSAGE_MAX)


class SecureStream:
    """A byte stream sealed in both directions. Sends are to be made by one task, receives by one task."""

    def __init__(self, raw: AnyByteStream) -> None:
        self._raw = raw
        self._reader = FRAMING.reader()
        self._sealed: list[bytes] = []
        self._plain = b""
        self._seal: noise.Cipher | None = None
        self._open: noise.Cipher | None = None
        self.remote_key = b""
        self.sent = self.received = 0  # bytes on the wire

    async def handshake(self, key: NodeKey, *, initiator: bool, expected: bytes | None = None) -> None:
        """Prove our identity and learn the peer's; afterwards both sides speak Yamux."""
        bare = _Bare(self._raw)
        await (propose(bare, [noise.PROTOCOL]) if initiator else respond(bare, [noise.PROTOCOL]))
        shake = noise.Handshake(
            key,
            initiator=initiator,
            static=os.urandom(noise.KEY),
            ephemeral=os.urandom(noise.KEY),
            muxers=(yamux.PROTOCOL,),
            expected=expected,
        )
        if initiator:
            await bare.send(FRAMING.wrap(shake.start()))
        while not shake.done:
            answer = shake.receive(await self._message())
            if answer is not None:
                await bare.send(FRAMING.wrap(answer))
        self._seal, self._open = shake.ciphers()
        self.remote_key = shake.remote_key
        if yamux.PROTOCOL not in shake.remote_muxers:  # else both know already, and a round trip is saved
            await (propose(self, [yamux.PROTOCOL]) if initiator else respond(self, [yamux.PROTOCOL]))

    async def receive(self, most: int = CHUNK) -> bytes:
        """Up to `most` bytes; b"" at the end."""
        while not self._plain:
            if not self._sealed:
                chunk = await self._chunk()
                if not chunk:
                    return b""
                self._sealed = self._reader.feed(chunk)
            assert self._open is not None
            self._plain = b"".join(map(self._open.open, self._sealed))
            self._sealed = []
        data, self._plain = self._plain[:most], self._plain[most:]
        return data

    async def send(self, data: bytes) -> None:
        assert self._seal is not None
        seal, step = self._seal.seal, noise.PLAIN_MAX
        parts = [FRAMING.wrap(seal(data[start : start + step])) for start in range(0, len(data), step)]
        sealed = b"".join(parts)
        self.sent += len(sealed)
        await _send(self._raw, sealed)

    async def end(self) -> None:
        """Say that nothing more will be sent."""
        try:
            await self._raw.send_eof()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            pass

    async def close(self) -> None:
        await anyio.aclose_forcefully(self._raw)

    async def _message(self) -> bytes:
        while not self._sealed:
            chunk = await self._chunk()
            if not chunk:
                raise UnreachableError("the peer hung up during the handshake")
            self._sealed = self._reader.feed(chunk)
        return self._sealed.pop(0)

    async def _chunk(self) -> bytes:
        chunk = await _receive(self._raw, CHUNK)
        self.received += len(chunk)
        return chunk


class _Bare:
    """The stream before it is secure, in the shape multistream needs."""

    def __init__(self, raw: AnyByteStream) -> None:
        self._raw = raw

    async def receive(self, most: int) -> bytes:
        return await _receive(self._raw, most)

    async def send(self, data: bytes) -> None:
        await _send(self._raw, data)


async def _receive(raw: AnyByteStream, most: int) -> bytes:
    try:
        return await raw.receive(most)
    except anyio.EndOfStream:
        return b""
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
        raise UnreachableError(f"the connection broke: {type(error).__name__}") from None


async def _send(raw: AnyByteStream, data: bytes) -> None:
    try:
        await raw.send(data)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
        raise UnreachableError(f"the connection broke: {type(error).__name__}") from None


async def secured(
    raw: AnyByteStream, key: NodeKey, *, initiator: bool, timeout: float, expected: bytes | None = None
) -> SecureStream:
    """The stream after its handshake; closed again if anything goes wrong or takes too long."""
    stream = SecureStream(raw)
    try:
        with anyio.fail_after(timeout):
            await stream.handshake(key, initiator=initiator, expected=expected)
    except TimeoutError:
        await stream.close()
        raise UnreachableError("the handshake took too long") from None
    except BaseException:
        with anyio.CancelScope(shield=True):
            await stream.close()
        raise
    return stream
