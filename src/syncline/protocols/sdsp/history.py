"""Where earlier frames are found: at a frame's historyUri, in the transport's own memory, in the journal of a node.

Each answers with payloads as they were published; putting them in order and judging them is the session's work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import anyio.to_thread
import msgspec

from syncline.core.errors import DecodeError, NotFoundError, SynclineError
from syncline.core.limits import SDSP_HISTORY_FRAMES
from syncline.core.ports import RecordQuery, RecordReader
from syncline.core.verdict import Outcome
from syncline.networks.fetch import Fetcher
from syncline.protocols.sdsp.plugins import History, HistoryGround, Transport, header_of
from syncline.protocols.sdsp.wire import Frame

_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])


class UriHistory:
    """Asks the `historyUri` that came with a frame, under the rules for addresses given by strangers."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher

    async def history(self, frame: Frame) -> Sequence[bytes]:
        if not frame.history_uri:
            return []
        fetched = await self._fetcher.fetch(frame.history_uri)
        try:  # SDSP: the historyUri must return an array of data frames
            return [bytes(raw) for raw in _ARRAY.decode(fetched.content)[:SDSP_HISTORY_FRAMES]]
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DecodeError(f"history is not an array of frames: {error}", about=frame.history_uri) from None

    async def last(self, uid: str) -> bytes | None:
        return None


class TransportHistory:
    """Asks the transport that the frames come by."""

    def __init__(self, transport: Transport, topic: str) -> None:
        self._transport = transport
        self._topic = topic

    async def history(self, frame: Frame) -> Sequence[bytes]:
        return await self._transport.replay(self._topic, uid=frame.uid, first=frame.base, last=frame.serial)

    async def last(self, uid: str) -> bytes | None:
        return await self._transport.newest(self._topic, uid=uid)


class JournalHistory:
    """Reads accepted frames from a node's journal; they are there before anybody hears of them."""

    def __init__(self, records: RecordReader) -> None:
        self._records = records

    async def history(self, frame: Frame) -> Sequence[bytes]:
        return await self.frames(frame.uid, frame.base, frame.serial)

    async def last(self, uid: str) -> bytes | None:
        """The frame with the highest serial; records are in the order of their arrival, which may be another."""
        newest: bytes | None = None
        above = 0
        while found := await self._read(RecordQuery(key=uid, seq_from=above, descending=True, limit=1)):
            [newest] = found
            above = header_of(newest).serial + 1
        return newest

    async def frames(self, uid: str, first: int, last: int | None = None) -> list[bytes]:
        """Payloads with serials from `first` to `last`, by serial."""
        query = RecordQuery(key=uid, seq_from=first, seq_to=last, limit=SDSP_HISTORY_FRAMES)
        return sorted(await self._read(query), key=lambda payload: header_of(payload).serial)

    async def _read(self, query: RecordQuery) -> list[bytes]:
        accepted = msgspec.structs.replace(query, protocol="sdsp", kind="frame", verdict=Outcome.ACCEPT.value)
        found = await anyio.to_thread.run_sync(self._records.read, accepted)
        return [record.raw for record in found if record.raw is not None]


class Histories:
    """Several histories as one: asked in order until the frames back to the full one are together."""

    def __init__(self, histories: Sequence[History]) -> None:
        self._histories = tuple(histories)

    async def history(self, frame: Frame) -> Sequence[bytes]:
        found: list[bytes] = []
        problem: SynclineError = NotFoundError("there is no history to ask", about=frame.uid)
        for history in self._histories:
            try:
                found += await history.history(frame)
            except SynclineError as error:
                problem = error
            if _reaches_back(found, frame):
                return found
        if not found:
            raise problem
        return found

    async def last(self, uid: str) -> bytes | None:
        for history in self._histories:
            if (payload := await history.last(uid)) is not None:
                return payload
        return None


def _reaches_back(payloads: Sequence[bytes], frame: Frame) -> bool:
    serials = set()
    for payload in payloads:
        try:
            header = header_of(payload)
        except DecodeError:
            continue
        if header.uid == frame.uid:
            serials.add(header.serial)
    return all(serial in serials for serial in range(frame.base, frame.serial + 1))


def uri_history(ground: HistoryGround) -> UriHistory:
    return UriHistory(ground.fetcher)


def transport_history(ground: HistoryGround) -> TransportHistory | None:
    if ground.transport is None or not ground.transport.capabilities.history:
        return None
    return TransportHistory(ground.transport, ground.topic)


def journal_history(ground: HistoryGround) -> JournalHistory | None:
    return None if ground.records is None else JournalHistory(ground.records)
