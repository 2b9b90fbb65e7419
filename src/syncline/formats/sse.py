"""Server-sent events: bytes ⇄ events, as the HTML standard describes the stream. Pure; fed with chunks.

Reconnecting and what an event means are the caller's.
"""

from __future__ import annotations

from typing import Final

import msgspec

from syncline.core.errors import DecodeError
from syncline.core.verdict import Reason

MEDIA_TYPE: Final = "text/event-stream"
KEEP_ALIVE: Final = b": keep-alive\n\n"


class ServerEvent(msgspec.Struct, frozen=True):
    """One event. `id` is the last id seen, also when this event brought none of its own."""

    data: bytes
    name: str = "message"
    id: str = ""


def encode(data: bytes, *, name: str = "", id: str = "") -> bytes:
    """An event; `data` may have several lines."""
    head = (f"event: {name}\n" if name else "") + (f"id: {id}\n" if id else "")
    lines = b"".join(b"data: " + line + b"\n" for line in data.split(b"\n"))
    return head.encode() + lines + b"\n"


class Decoder:
    """Takes a stream in chunks of any size. An event of more than `max_bytes` raises DecodeError."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rest: list[bytes] = []  # pieces of a line that has not ended yet
        self._size = 0  # of the event so far
        self._after_cr = False
        self._began = False
        self._data: list[bytes] = []
        self._name = ""
        self._id = ""

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that end in this chunk."""
        events: list[ServerEvent] = []
        if self._after_cr and chunk.startswith(b"\n"):  # CRLF, cut between its halves
            chunk = chunk[1:]
        if chunk:
            self._after_cr = chunk.endswith(b"\r")
        *ended, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in ended:
            self._count(len(line))
            event = self._line(b"".join([*self._rest, line]))
            self._rest.clear()
            if event is not None:
                events.append(event)
        if rest:
            self._count(len(rest))
            self._rest.append(rest)
        return events

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > self._max_bytes:
            raise DecodeError(f"an event of more than {self._max_bytes} bytes", reason=Reason.OVERSIZE)

    def _line(self, line: bytes) -> ServerEvent | None:
        if not self._began:
            self._began, line = True, line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match field:
            case b"data":
                self._data.append(value)
            case b"event":
                self._name = value.decode("utf-8", "replace")
            case b"id" if b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
            case b"":
                self._size = 0 if not self._data else self._size  # a comment
            case _:
                pass
        return None

    def _dispatch(self) -> ServerEvent | None:
        data, name = self._data, self._name or "message"
        self._data, self._name, self._size = [], "", 0
        return ServerEvent(b"\n".join(data), name, self._id) if data else None
