"""Yamux: many streams over one connection, each with its own flow control. Sans-I/O: chunks in, events out.

Bounds: a peer that sends past its window, opens streams of the wrong parity or breaks the framing ends the session; one
that opens too many streams has the surplus reset. What is written waits in `output` until the driver takes it; how much
may wait there is the driver's business.
"""

from __future__ import annotations

import struct
from typing import Final, Literal

import msgspec

from syncline.core.errors import DecodeError
from syncline.core.limits import STREAM_WINDOW, STREAMS_PER_CONNECTION
from syncline.core.verdict import Reason

PROTOCOL: Final = "/yamux/1.0.0"
INITIAL_WINDOW: Final = 262_144  # fixed by the specification
HEADER: Final = struct.Struct(">BBHII")
FRAME_MAX: Final = 65_519 - HEADER.size  # content of one data frame of ours: fits one message of the secure channel
WINDOW_LIMIT: Final = 2**32 - 1
DATA, WINDOW, PING, GO_AWAY = range(4)
SYN, ACK, FIN, RST = 1, 2, 4, 8


class Opened(msgspec.Struct, frozen=True):
    """The peer opened a stream."""

    stream: MuxStream


class Changed(msgspec.Struct, frozen=True):
    """Something a reader or writer of the stream may wait for has happened: bytes, room, an end or a reset."""

    stream: MuxStream


class Pong(msgspec.Struct, frozen=True):
    """The peer answered our ping of this value."""

    value: int


class GoneAway(msgspec.Struct, frozen=True):
    """The peer opens no more streams and is about to leave."""

    code: int


Event = Opened | Changed | Pong | GoneAway


class MuxStream:
    """State of one stream. Changed only by its session."""

    __slots__ = ("abandoned", "consumed", "credit", "id", "inbox", "local_end", "remote_end", "reset", "room")

    def __init__(self, number: int) -> None:
        self.id = number
        self.room = INITIAL_WINDOW  # bytes we may still send
        self.credit = STREAM_WINDOW  # bytes the peer may still send
        self.consumed = 0  # bytes taken from the inbox and not yet given back as credit
        self.inbox = bytearray()
        self.local_end = self.remote_end = self.reset = False
        self.abandoned = False  # nobody reads it any more


class Session:
    """One side of a Yamux connection."""

    def __init__(self, *, initiator: bool) -> None:
        self._initiator = initiator
        self._next = 1 if initiator else 2
        self._highest_remote = 0
        self._buffer = bytearray()
        self._wanted = HEADER.size
        self.output = bytearray()
        self.streams: dict[int, MuxStream] = {}
        self.inbound = 0  # streams the peer has open
        self.refused = 0  # streams reset because the peer has too many open
        self.closing = False

    def open(self) -> MuxStream:
        """A new stream; the peer hears of it with the next output."""
        stream = MuxStream(self._next)
        self._next += 2
        self.streams[stream.id] = stream
        self._write(WINDOW, SYN, stream.id, STREAM_WINDOW - INITIAL_WINDOW)
        return stream

    def write(self, stream: MuxStream, data: memoryview) -> int:
        """Put as much of `data` into the output as the peer has room for; returns how much."""
        taken = min(len(data), stream.room)
        for start in range(0, taken, FRAME_MAX):
            part = data[start : min(start + FRAME_MAX, taken)]
            self._write(DATA, 0, stream.id, len(part))
            self.output += part
        stream.room -= taken
        return taken

    def read(self, stream: MuxStream, most: int) -> bytes:
        """Take up to `most` received bytes, giving the peer room for more once half the window is used up."""
        data = bytes(stream.inbox[:most])
        del stream.inbox[:most]
        stream.consumed += len(data)
        if stream.consumed >= STREAM_WINDOW // 2 and not stream.remote_end and not stream.reset:
            self._write(WINDOW, 0, stream.id, stream.consumed)
            stream.credit += stream.consumed
            stream.consumed = 0
        return data

    def end(self, stream: MuxStream) -> None:
        """Nothing more will be sent on this stream."""
        if not stream.local_end and not stream.reset:
            stream.local_end = True
            self._write(WINDOW, FIN, stream.id, 0)
            self._forget_if_over(stream)

    def abandon(self, stream: MuxStream) -> None:
        """End our side and drop whatever the peer still sends, without disturbing what it has yet to read."""
        self.end(stream)
        stream.abandoned = True
        stream.inbox.clear()

    def reset(self, stream: MuxStream) -> None:
        """End both directions at once."""
        if not stream.reset and not (stream.local_end and stream.remote_end):
            self._write(WINDOW, RST, stream.id, 0)
        self._drop(stream)

    def ping(self, value: int) -> None:
        self._write(PING, SYN, 0, value)

    def go_away(self, code: Literal[0, 1, 2] = 0) -> None:
        """Tell the peer that we leave: 0 normally, 1 for its fault, 2 for ours."""
        self._write(GO_AWAY, 0, 0, code)
        self.closing = True

    def take(self, most: int) -> bytes:
        """Output to be sent, at most this many bytes."""
        data = bytes(self.output[:most])
        del self.output[:most]
        return data

    def receive(self, chunk: bytes) -> list[Event]:
        """Everything that whole frames in the stream so far have brought about."""
        self._buffer += chunk
        events: list[Event] = []
        if len(self._buffer) < self._wanted:
            return events
        data, position = bytes(self._buffer), 0
        while True:
            if len(data) - position < HEADER.size:
                self._wanted = HEADER.size
                break
            version, kind, flags, number, length = HEADER.unpack_from(data, position)
            if version != 0 or kind > GO_AWAY:
                raise DecodeError("not a Yamux frame")
            end = position + HEADER.size
            if kind == DATA:
                if length > STREAM_WINDOW:
                    raise DecodeError(f"a Yamux frame of {length} bytes", reason=Reason.OVERSIZE)
                if len(data) < end + length:
                    self._wanted = end + length - position
                    break
                end += length
            self._frame(kind, flags, number, length, data[end - length : end] if kind == DATA else b"", events)
            position = end
        del self._buffer[:position]
        return events

    def _frame(self, kind: int, flags: int, number: int, length: int, content: bytes, events: list[Event]) -> None:
        if kind == PING:
            if flags & SYN:
                self._write(PING, ACK, 0, length)
            elif flags & ACK:
                events.append(Pong(length))
            return
        if kind == GO_AWAY:
            events.append(GoneAway(length))
            return
        stream = self._opened(number, events) if flags & SYN else self.streams.get(number)
        if stream is None:
            return  # for a stream that is over, or refused: frames may still have been under way
        if kind == DATA:
            if length > stream.credit:
                raise DecodeError("more bytes than the window allows", reason=Reason.QUOTA_EXCEEDED)
            stream.credit -= length
            if not stream.abandoned:
                stream.inbox += content
        else:
            if stream.room + length > WINDOW_LIMIT:
                raise DecodeError("a window beyond 32 bits", reason=Reason.INVALID_FIELD)
            stream.room += length
        if flags & FIN:
            stream.remote_end = True
            self._forget_if_over(stream)
        if flags & RST:
            self._drop(stream)
        events.append(Changed(stream))

    def _opened(self, number: int, events: list[Event]) -> MuxStream | None:
        if number == 0 or number % 2 == self._initiator or number <= self._highest_remote:
            raise DecodeError(f"{number} is not a stream the peer may open", reason=Reason.INVALID_FIELD)
        self._highest_remote = number
        if self.inbound >= STREAMS_PER_CONNECTION or self.closing:
            self.refused += 1
            self._write(WINDOW, RST, number, 0)
            return None
        stream = self.streams[number] = MuxStream(number)
        self.inbound += 1
        self._write(WINDOW, ACK, number, STREAM_WINDOW - INITIAL_WINDOW)
        events.append(Opened(stream))
        return stream

    def _forget_if_over(self, stream: MuxStream) -> None:
        if stream.local_end and stream.remote_end:
            self._remove(stream)

    def _drop(self, stream: MuxStream) -> None:
        stream.reset = stream.local_end = stream.remote_end = True
        stream.inbox.clear()
        self._remove(stream)

    def _remove(self, stream: MuxStream) -> None:
        if self.streams.pop(stream.id, None) is not None and stream.id % 2 != self._initiator:
            self.inbound -= 1

    def _write(self, kind: int, flags: int, number: int, length: int) -> None:
        self.output += HEADER.pack(0, kind, flags, number, length)
