"""multistream-select 1.0: how two sides of a stream agree on the protocol they will speak on it.

Works on anything with `receive(most)` and `send(data)`. Reads exactly its own bytes, never those of the protocol that
follows. Limits on time belong to the caller.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, Protocol

from syncline.core.errors import DecodeError, RefusedError
from syncline.core.verdict import Reason
from syncline.formats.framing import encode_varint

VERSION: Final = "/multistream/1.0.0"
LINE_MAX: Final = 1_024  # bytes of a protocol name
PROPOSALS_MAX: Final = 64  # what one peer may propose on one stream before we give up


class ByteStream(Protocol):
    """What is needed of a stream. `receive` returns b"" at its end."""

    async def receive(self, most: int) -> bytes: ...

    async def send(self, data: bytes) -> None: ...


async def propose(stream: ByteStream, protocols: Sequence[str]) -> str:
    """The first of our protocols that the other side speaks; RefusedError if none. The first is proposed at once."""
    await stream.send(_line(VERSION) + _line(protocols[0]))
    if (greeting := await _read(stream)) != VERSION:
        raise DecodeError("the other side does not speak multistream", about=greeting[:80])
    for position, protocol in enumerate(protocols):
        if position:
            await stream.send(_line(protocol))
        answer = await _read(stream)
        if answer == protocol:
            return protocol
        if answer != "na":
            raise DecodeError("an answer nobody asked for", about=answer[:80])
    raise RefusedError("no common protocol", reason=Reason.UNSUPPORTED_VERSION, about=", ".join(protocols))


async def respond(stream: ByteStream, protocols: Collection[str]) -> str:
    """The protocol the other side proposes and we speak."""
    if (greeting := await _read(stream)) != VERSION:
        raise DecodeError("the other side does not speak multistream", about=greeting[:80])
    await stream.send(_line(VERSION))
    for _ in range(PROPOSALS_MAX):
        proposal = await _read(stream)
        if proposal in protocols:
            await stream.send(_line(proposal))
            return proposal
        await stream.send(_line("na"))
    raise DecodeError("too many proposals", reason=Reason.TOO_COMPLEX)


def _line(text: str) -> bytes:
    line = text.encode() + b"\n"
    return encode_varint(len(line)) + line


async def _read(stream: ByteStream) -> str:
    length = shift = 0
    while True:
        [byte] = await _exactly(stream, 1)
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
        if shift > 14:
            raise DecodeError("a protocol name is too long", reason=Reason.OVERSIZE)
    if not 0 < length <= LINE_MAX:
        raise DecodeError("a protocol name is too long or empty", reason=Reason.OVERSIZE)
    line = await _exactly(stream, length)
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise DecodeError("a protocol name is not UTF-8") from None
    if not text.endswith("\n"):
        raise DecodeError("a protocol name without its end")
    return text[:-1]


async def _exactly(stream: ByteStream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = await stream.receive(size - len(data))
        if not part:
            raise DecodeError("the stream ends while a protocol is chosen")
        data += part
    return data
