"""Many network messages at once, as Arrow columns: judged and decoded with numpy gathers over the batch's one buffer.

Only good rows take the fast way; every other row is judged by the very rules of the node, so the verdicts are the same.
One bad row never spoils the others.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from syncline.core import limits
from syncline.core.verdict import Outcome
from syncline.protocols.relay.rules.messages import judge_message
from syncline.protocols.relay.wire.messages import PREFIX, V1, V2, NetworkMessage

MESSAGE_SCHEMA: Final = pa.schema(
    [
        pa.field("version", pa.uint8()),
        pa.field("tag", pa.uint32()),
        pa.field("prompt", pa.bool_()),
        pa.field("timestamp", pa.uint64()),  # milliseconds since 1970
        pa.field("ttl", pa.uint64()),  # seconds
        pa.field("message", pa.string()),
        pa.field("outcome", pa.string()),  # the content verdict; null where there are no bytes
        pa.field("reason", pa.string()),
    ]
)
_END: Final = 2**31 - 1
_TOPIC: Final = r"\A[0-9a-f]{64}\z"
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


def decode_messages(raws: pa.Array, topics: pa.Array, received_at: pa.Array) -> pa.RecordBatch:
    """One row for each of `raws` (binary), in their order; the message's columns are null where it is not one.

    `received_at` is in microseconds. A row that is a message but not acceptable keeps its values beside its reason.
    """
    headers = _Headers(raws)
    good = headers.sound & headers.is_acceptable(topics, np.asarray(received_at.cast(pa.int64())))
    messages = _messages(raws, headers)
    if messages is None:  # somewhere a message is not UTF-8: look at each row
        good[:] = False
        messages = pa.nulls(len(raws), pa.string())
    odd = np.flatnonzero(~good)
    if len(odd):
        return _mended(odd, headers, messages, raws, topics, received_at)
    columns = [pa.array(values) for values in headers.values()]
    accepted, nothing = pa.repeat(Outcome.ACCEPT.value, len(raws)), pa.nulls(len(raws), pa.string())
    return pa.RecordBatch.from_arrays([*columns, messages, accepted, nothing], schema=MESSAGE_SCHEMA)


def _mended(
    odd: npt.NDArray[np.intp],
    headers: _Headers,
    messages: pa.Array,
    raws: pa.Array,
    topics: pa.Array,
    received_at: pa.Array,
) -> pa.RecordBatch:
    """The columns with the rows at `odd` judged one by one."""
    absent = np.zeros(len(raws), bool)
    outcomes: list[str | None] = [Outcome.ACCEPT.value] * len(raws)
    reasons: list[str | None] = [None] * len(raws)
    texts, times = messages.to_pylist(), received_at.cast(pa.int64())
    for index in odd.tolist():
        raw = raws[index].as_py()
        outcomes[index], texts[index], absent[index] = None, None, True
        if raw is None:
            continue
        message, verdict = judge_message(topics[index].as_py() or "", raw, times[index].as_py())
        outcomes[index], reasons[index] = verdict.outcome.value, verdict.reason.value if verdict.reason else None
        if message is not None:
            absent[index], texts[index] = False, message.message.decode()
            headers.put(index, raw[3], message)
    columns = [pa.array(values, mask=absent) for values in headers.values()]
    rest = [pa.array(values, pa.string()) for values in (texts, outcomes, reasons)]
    return pa.RecordBatch.from_arrays([*columns, *rest], schema=MESSAGE_SCHEMA)


class _Headers:
    """The headers of a batch, gathered. Rows that are not `sound` hold whatever."""

    def __init__(self, raws: pa.Array) -> None:
        count = len(raws)
        starts, self.lengths, data = _layout(raws)
        self.sound: Bools = (self.lengths >= V1.size) & _present(raws)
        self.version = np.zeros(count, np.uint8)
        self.tag = np.zeros(count, np.uint32)
        self.prompt = np.zeros(count, np.uint8)
        self.timestamp = np.zeros(count, np.uint64)
        self.ttl = np.zeros(count, np.uint64)
        self.body: Ints = np.zeros(count, np.int64)
        if self.sound.any():
            self._first(starts, data)
            self._second(starts, data)
        self.sound &= self.prompt <= 1

    def _first(self, starts: Ints, data: Bytes) -> None:
        """Read every row as version 1."""
        head = _rows(data, np.where(self.sound, starts, 0), V1.size)
        self.sound &= (head[:, :3] == np.frombuffer(PREFIX, np.uint8)).all(axis=1)
        self.version = np.ascontiguousarray(head[:, 3])
        self.tag = head[:, 4].astype(np.uint32)
        self.prompt = np.ascontiguousarray(head[:, 5])
        self.timestamp, self.ttl, length = (_numbers(head[:, at : at + 8], ">u8") for at in (6, 14, 22))
        self.body = self.lengths - V1.size
        self._is_second: Bools = self.version == 2
        self.sound &= (self.version == 1) & (length == self.body.astype(np.uint64)) | self._is_second

    def _second(self, starts: Ints, data: Bytes) -> None:
        """Read the rows of version 2 once more, with their wider tag."""
        rows = np.flatnonzero(self.sound & self._is_second & (self.lengths >= V2.size))
        self.sound &= ~self._is_second | (self.lengths >= V2.size)
        if len(rows):
            head = _rows(data, starts[rows], V2.size)
            self.tag[rows] = _numbers(head[:, 4:8], ">u4")
            self.prompt[rows] = head[:, 8]
            timestamp, ttl, length = (_numbers(head[:, at : at + 8], ">u8") for at in (9, 17, 25))
            self.timestamp[rows], self.ttl[rows] = timestamp, ttl
            self.body[rows] = self.lengths[rows] - V2.size
            self.sound[rows] &= length == self.body[rows].astype(np.uint64)

    def values(self) -> list[npt.NDArray[Any]]:
        """The columns, in the order of the schema."""
        return [self.version, self.tag, self.prompt.astype(bool), self.timestamp, self.ttl]

    def put(self, index: int, version: int, message: NetworkMessage) -> None:
        self.version[index] = version
        self.tag[index], self.prompt[index] = message.tag, message.prompt
        self.timestamp[index], self.ttl[index] = message.timestamp, message.ttl

    def is_acceptable(self, topics: pa.Array, now: Ints) -> Bools:
        """Whether the rules on topic, size and time hold, for sound rows."""
        names = topics.dictionary_encode()  # topics repeat
        fits = pc.fill_null(pc.match_substring_regex(names.dictionary, _TOPIC), False)
        named: Bools = np.asarray(pc.fill_null(fits.take(names.indices), False))
        latest = ((now + limits.RELAY_CLOCK_SKEW) // 1_000).astype(np.uint64)
        timely = (self.timestamp <= latest) & (self.ttl >= 1) & (self.ttl <= limits.RELAY_TTL_MAX)
        sent = np.where(timely, self.timestamp, 0).astype(np.int64) * 1_000
        ends = sent + np.where(timely, self.ttl, 0).astype(np.int64) * limits.SECOND
        found: Bools = named & timely & (ends > now) & (self.body <= limits.RELAY_MESSAGE_MAX)
        return found


def _messages(raws: pa.Array, headers: _Headers) -> pa.Array | None:
    """What follows the headers, as text; None if some of it is not UTF-8."""
    second = headers.version == 2
    if second.all():
        bodies = _after(raws, V2.size)
    elif not second.any():
        bodies = _after(raws, V1.size)
    else:
        bodies = pc.if_else(pa.array(second), _after(raws, V2.size), _after(raws, V1.size))
    try:
        return bodies.cast(pa.string())
    except pa.ArrowInvalid:
        return None


def _after(raws: pa.Array, start: int) -> pa.Array:
    """All but the first bytes of each row. Without an end, Arrow's kernel fails on its own estimate (GOTCHAS.md)."""
    return pc.binary_slice(raws, start, _END)


def _layout(raws: pa.Array) -> tuple[Ints, Ints, Bytes]:
    """Where each row starts, how long it is, and the bytes of all."""
    kind = np.int64 if pa.types.is_large_binary(raws.type) else np.int32
    _, offsets_buffer, data_buffer = raws.buffers()
    offsets = np.frombuffer(offsets_buffer, kind)[raws.offset : raws.offset + len(raws) + 1].astype(np.int64)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    if len(data) < V2.size:
        data = np.concatenate([data, np.zeros(V2.size, np.uint8)])
    return offsets[:-1], np.diff(offsets), data


def _present(raws: pa.Array) -> Bools:
    return np.ones(len(raws), bool) if raws.null_count == 0 else np.asarray(raws.is_valid())


def _rows(data: Bytes, starts: npt.NDArray[np.int64], width: int) -> Bytes:
    """`width` bytes from each start, one row each. Starts are known to be in range."""
    windows = np.lib.stride_tricks.sliding_window_view(data, width)
    found: Bytes = windows[starts]
    return found


def _numbers(columns: Bytes, kind: str) -> npt.NDArray[Any]:
    """Big-endian numbers, one a row, in the machine's own order."""
    return np.ascontiguousarray(columns).view(kind)[:, 0].astype(kind[1:])
