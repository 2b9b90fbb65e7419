"""Many signed notifications at once, as Arrow columns: read with numpy gathers over the batch's one buffer.

Only rows in the one shape every implementation writes take the fast way; every other row is read and judged by the very
rules of the node, so the answers are the same. One bad row never spoils the others. Signatures are checked row by row, as
there is no other way, and only if asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from syncline.core.keys import PEER_ID_PREFIX, verify
from syncline.core.limits import SHREX_MESSAGE_BYTES
from syncline.core.verdict import Outcome, Reason
from syncline.formats.pubsub import SIGNING_PREFIX
from syncline.protocols.shrex.rules.notifications import EMPTY_ROOT, judge_message

MESSAGE_SCHEMA: Final = pa.schema(
    [
        pa.field("author", pa.binary(32)),  # Ed25519 key inside the author's PeerID
        pa.field("seqno", pa.uint64()),
        pa.field("height", pa.uint64()),
        pa.field("data_hash", pa.binary(32)),
        pa.field("outcome", pa.string()),  # the content verdict; null where there are no bytes
        pa.field("reason", pa.string()),
    ]
)
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

# A message in its usual shape: from (40 bytes), data (2 + 36 to 45), seqno (10), topic (2 + …), signature (66), key (38).
_FROM: Final = 40
_SEQNO: Final = 10
_SIGNATURE: Final = 66
_KEY: Final = 38
_AROUND: Final = 35  # bytes of a notification without its height
_LEAST: Final = _FROM + 2 + _AROUND + 1 + _SEQNO + 2 + _SIGNATURE
_EMPTY: Final = int.from_bytes(EMPTY_ROOT[:8], "little")


def decode_messages(raws: pa.Array, topics: pa.Array, *, signatures: bool = True) -> pa.RecordBatch:
    """One row for each of `raws` (binary), in their order; what cannot be read is null beside its reason."""
    fast = _Fast(raws, topics)
    if signatures:
        fast.check_signatures()
    columns = fast.values()
    odd = np.flatnonzero(~fast.good)
    if not len(odd):
        accepted, nothing = pa.repeat(Outcome.ACCEPT.value, len(raws)), pa.nulls(len(raws), pa.string())
        return pa.RecordBatch.from_arrays([*map(_column, columns), accepted, nothing], schema=MESSAGE_SCHEMA)
    return _mended(odd, columns, raws, topics, signatures)


def _mended(
    odd: npt.NDArray[np.intp], columns: list[npt.NDArray[Any]], raws: pa.Array, topics: pa.Array, signatures: bool
) -> pa.RecordBatch:
    """The columns with the rows at `odd` read and judged one by one."""
    author, seqno, height, data_hash = columns
    unsigned, unread = np.zeros(len(raws), bool), np.zeros(len(raws), bool)
    outcomes: list[str | None] = [Outcome.ACCEPT.value] * len(raws)
    reasons: list[str | None] = [None] * len(raws)
    for index in odd.tolist():
        raw = raws[index].as_py()
        unsigned[index] = unread[index] = True
        if raw is None:
            outcomes[index] = None
            continue
        signed, notification, verdict = judge_message(raw, topics[index].as_py() or "")
        if not signatures and verdict.reason is Reason.INVALID_SIGNATURE:
            outcomes[index] = None
            continue
        outcomes[index], reasons[index] = verdict.outcome.value, verdict.reason.value if verdict.reason else None
        if signed is not None and len(signed.author) == 38 and len(signed.seqno) <= 8:
            unsigned[index] = False
            author[index] = np.frombuffer(signed.author[6:], np.uint8)
            seqno[index] = int.from_bytes(signed.seqno, "big")
        if notification is not None and len(notification.data_hash) == 32:
            unread[index] = False
            height[index] = notification.height
            data_hash[index] = np.frombuffer(notification.data_hash, np.uint8)
    masks = (unsigned, unsigned, unread, unread)
    masked = [_column(values, mask) for values, mask in zip(columns, masks, strict=True)]
    rest = [pa.array(values, pa.string()) for values in (outcomes, reasons)]
    return pa.RecordBatch.from_arrays([*masked, *rest], schema=MESSAGE_SCHEMA)


class _Fast:
    """The rows in the usual shape. What the others hold is arbitrary until they are mended.

    Rows of one length, data length and topic have every field in the same place: such a group is a matrix, whose columns
    are compared with what must stand there.
    """

    def __init__(self, raws: pa.Array, topics: pa.Array) -> None:
        count = len(raws)
        self._starts, lengths, self._data = _layout(raws)
        self.good: Bools = np.zeros(count, bool)
        self.author = np.zeros((count, 32), np.uint8)
        self.seqno = np.zeros(count, np.uint64)
        self.height = np.zeros(count, np.uint64)
        self.data_hash = np.zeros((count, 32), np.uint8)
        self._signature = np.zeros(count, np.int64)  # where each row's signature begins
        names = topics.dictionary_encode()  # topics repeat
        self._topics = [name.encode() for name in names.dictionary.to_pylist()]
        fits = np.flatnonzero((lengths >= _LEAST) & (lengths <= SHREX_MESSAGE_BYTES) & _present(raws))
        sizes = self._data[self._starts[fits] + _FROM + 1].astype(np.int64)
        numbers = np.asarray(names.indices.fill_null(-1)).astype(np.int64)[fits]
        for rows, (length, size, number) in _groups(fits, lengths[fits], sizes, numbers):
            if number >= 0:
                self._read(rows, length, size, self._topics[number])

    def _read(self, rows: npt.NDArray[np.intp], length: int, size: int, topic: bytes) -> None:
        digits = size - _AROUND  # of the height's varint
        signature = _FROM + 2 + size + _SEQNO + 2 + len(topic)
        keyed = length == signature + _SIGNATURE + _KEY
        if not 1 <= digits <= 10 or len(topic) > 0x7F or not (keyed or length == signature + _SIGNATURE):
            return
        block = _rows(self._data, self._starts[rows], length)
        author, height_at = block[:, 8:40], _FROM + 3
        hash_at = height_at + digits + 2
        seqno_at = hash_at + 32 + 2
        data_hash = block[:, hash_at : hash_at + 32]
        good = _is(block, 0, b"\x0a\x26" + PEER_ID_PREFIX) & _is(block, _FROM, b"\x12")
        good &= _is(block, _FROM + 2, b"\x08") & _is(block, hash_at - 2, b"\x12\x20")
        good &= _is(block, seqno_at - 2, b"\x1a\x08")
        good &= _is(block, seqno_at + 8, b"\x22" + bytes((len(topic),)) + topic + b"\x2a\x40")
        height, sound = _varints(block[:, height_at : height_at + digits])
        begins = _words(block, hash_at, 8)  # a hash that begins like a forbidden one is left to the rules
        good &= sound & (height > 0) & (begins != 0) & (begins != _EMPTY)
        if keyed:
            good &= _is(block, length - _KEY, b"\x32\x24" + PEER_ID_PREFIX[2:])
            for place in range(0, 32, 8):
                good &= _words(block, 8 + place, 8) == _words(block, length - 32 + place, 8)
        self.good[rows], self.height[rows] = good, height
        self.author[rows], self.data_hash[rows] = author, data_hash
        self.seqno[rows] = np.ascontiguousarray(block[:, seqno_at : seqno_at + 8]).view(">u8")[:, 0]
        self._signature[rows] = self._starts[rows] + signature

    def check_signatures(self) -> None:
        """Take out rows whose signature is not the author's; they are judged again, for the reason."""
        data, starts, signatures = self._data.tobytes(), self._starts.tolist(), self._signature.tolist()
        for index in np.flatnonzero(self.good).tolist():
            start, end = starts[index], signatures[index]
            signed = SIGNING_PREFIX + data[start:end]
            if not verify(data[start + 8 : start + 40], data[end + 2 : end + _SIGNATURE], signed):
                self.good[index] = False

    def values(self) -> list[npt.NDArray[Any]]:
        """The columns, in the order of the schema."""
        return [self.author, self.seqno, self.height, self.data_hash]


def _groups(rows: npt.NDArray[np.intp], *keys: Ints) -> Iterator[tuple[npt.NDArray[np.intp], tuple[int, ...]]]:
    """The rows that are alike in every key, with the keys."""
    if not len(rows):
        return
    code = np.zeros(len(rows), np.int64)
    for key in keys:
        code = code * (int(key.max()) + 2) + key + 1
    alike = np.unique(code) if (code != code[0]).any() else code[:1]
    for value in alike.tolist():
        chosen = np.flatnonzero(code == value) if len(alike) > 1 else np.arange(len(rows))
        yield rows[chosen], tuple(int(key[chosen[0]]) for key in keys)


def _rows(data: Bytes, starts: Ints, width: int) -> Bytes:
    """A matrix of the bytes of rows that are all `width` long; no copy where they lie side by side."""
    first = int(starts[0])
    if len(starts) * width == int(starts[-1]) + width - first and (np.diff(starts) == width).all():
        return data[first : first + len(starts) * width].reshape(len(starts), width)
    found: Bytes = np.lib.stride_tricks.sliding_window_view(data, width)[starts]
    return found


def _is(block: Bytes, at: int, wanted: bytes) -> Bools:
    """Whether these bytes stand at this place of each row."""
    same: Bools = np.ones(len(block), bool)
    for width in (8, 4, 2, 1):  # whole words at a time: a comparison byte by byte costs five times as much
        while len(wanted) >= width:
            same &= _words(block, at, width) == int.from_bytes(wanted[:width], "little")
            at, wanted = at + width, wanted[width:]
    return same


def _words(block: Bytes, at: int, width: int) -> npt.NDArray[Any]:
    """The bytes at this place of each row as one little-endian number."""
    return np.ascontiguousarray(block[:, at : at + width]).view(f"<u{width}")[:, 0]


def _varints(digits: Bytes) -> tuple[npt.NDArray[np.uint64], Bools]:
    """Numbers of one length, and whether they are varints of just that length and of 64 bits."""
    count = digits.shape[1]
    value = np.zeros(len(digits), np.uint64)
    sound = digits[:, -1] < (0x80 if count < 10 else 2)
    for place in range(count):
        column = digits[:, place]
        value |= (column & 0x7F).astype(np.uint64) << np.uint64(7 * place)
        if place < count - 1:
            sound &= column >= 0x80
    return value, sound


def _column(values: npt.NDArray[Any], mask: Bools | None = None) -> pa.Array:
    if values.ndim == 1:
        return pa.array(values, mask=mask)
    bits = None if mask is None or not mask.any() else pa.py_buffer(np.packbits(~mask, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(values.shape[1]), len(values), [bits, pa.py_buffer(values)])


def _layout(raws: pa.Array) -> tuple[Ints, Ints, Bytes]:
    """Where each row starts, how long it is, and the bytes of all."""
    kind = np.int64 if pa.types.is_large_binary(raws.type) else np.int32
    _, offsets_buffer, data_buffer = raws.buffers()
    offsets = np.frombuffer(offsets_buffer, kind)[raws.offset : raws.offset + len(raws) + 1].astype(np.int64)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    return offsets[:-1], np.diff(offsets), data


def _present(raws: pa.Array) -> Bools:
    return np.ones(len(raws), bool) if raws.null_count == 0 else np.asarray(raws.is_valid())
