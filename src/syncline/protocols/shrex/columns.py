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

    Rows of one data length and topic have every field in the same place: such a group is a matrix, whose columns are
    compared with what must stand there.
    """

    def __init__(self, raws: pa.Array, topics: pa.Array) -> None:
        self._count = len(raws)
        self._starts, self._lengths, self._data = _layout(raws)
        self._filled = False
        names = topics.dictionary_encode()  # topics repeat
        sought = [name.encode() for name in names.dictionary.to_pylist()]
        fits = np.flatnonzero((self._lengths >= _LEAST) & (self._lengths <= SHREX_MESSAGE_BYTES) & _present(raws))
        sizes = self._data[self._starts[fits] + _FROM + 1].astype(np.int64)
        numbers = np.asarray(names.indices.fill_null(-1)).astype(np.int64)[fits]
        for rows, (size, number) in _groups(fits, sizes, numbers):
            if number >= 0:
                self._read(rows, size, sought[number])
        if not self._filled:
            self._empty()

    def _empty(self) -> None:
        self.good: Bools = np.zeros(self._count, bool)
        self.author: Bytes = np.zeros((self._count, 32), np.uint8)
        self.seqno: npt.NDArray[np.uint64] = np.zeros(self._count, np.uint64)
        self.height: npt.NDArray[np.uint64] = np.zeros(self._count, np.uint64)
        self.data_hash: Bytes = np.zeros((self._count, 32), np.uint8)
        self._signature: Ints = np.zeros(self._count, np.int64)  # where each row's signature begins

    def _read(self, rows: npt.NDArray[np.intp], size: int, topic: bytes) -> None:
        digits = size - _AROUND  # of the height's varint
        signature = _FROM + 2 + size + _SEQNO + 2 + len(topic)
        end = signature + _SIGNATURE
        if not 1 <= digits <= 10 or len(topic) > 0x7F:
            return
        extra = self._lengths[rows] - end
        right = (extra == 0) | (extra == _KEY)
        if not right.all():
            rows, extra = rows[right], extra[right]
        if not len(rows):
            return
        row = _Row(self._data, self._starts[rows])
        hash_at = _FROM + 3 + digits + 2
        seqno_at = hash_at + 32 + 2
        good = row.has(0, b"\x0a\x26" + PEER_ID_PREFIX) & row.has(_FROM, bytes((0x12, size, 0x08)))
        good &= row.has(hash_at - 2, b"\x12\x20") & row.has(seqno_at - 2, b"\x1a\x08")
        good &= row.has(seqno_at + 8, b"\x22" + bytes((len(topic),)) + topic + b"\x2a\x40")
        height, sound = row.varint(_FROM + 3, digits)
        author, data_hash = row.bytes32(8), row.bytes32(hash_at)
        begins = data_hash.view("<u8")[:, 0]  # a hash that begins like a forbidden one is left to the rules
        good &= sound & (height > 0) & (begins != 0) & (begins != _EMPTY)
        keyed = np.flatnonzero(extra)
        if len(keyed):  # what follows the signature must be the author's key again
            good[keyed] &= _Row(self._data, row.starts[keyed] + end).is_key(author[keyed])
        seqno = row.words(seqno_at).byteswap()
        self._put(rows, good, author, seqno, height, data_hash, row.starts + signature)

    def _put(self, rows: npt.NDArray[np.intp], *columns: npt.NDArray[Any]) -> None:
        if len(rows) < self._count and not self._filled:
            self._empty()
        self._filled = True
        if len(rows) == self._count:  # the usual case: nothing to copy
            self.good, self.author, self.seqno, self.height, self.data_hash, self._signature = columns
            return
        places: tuple[npt.NDArray[Any], ...] = (
            self.good,
            self.author,
            self.seqno,
            self.height,
            self.data_hash,
            self._signature,
        )
        for place, column in zip(places, columns, strict=True):
            place[rows] = column

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


class _Row:
    """Rows with every field in the same place, none of them within eight bytes of a row's end. Each look gathers just the
    words it needs: matrices of whole rows would cost more memory than time.
    """

    def __init__(self, data: Bytes, starts: Ints) -> None:
        self._data, self.starts = data, starts

    def words(self, at: int) -> npt.NDArray[np.uint64]:
        """The eight bytes at this place of each row as one little-endian number."""
        view = np.ndarray((len(self._data) - 7,), "<u8", self._data, strides=(1,))
        found: npt.NDArray[np.uint64] = view[self.starts + at]
        return found

    def bytes32(self, at: int) -> Bytes:
        view = np.ndarray((len(self._data) - 31,), "V32", self._data, strides=(1,))
        return view[self.starts + at].view(np.uint8).reshape(-1, 32)

    def has(self, at: int, wanted: bytes) -> Bools:
        """Whether these bytes stand at this place of each row."""
        same: Bools | None = None
        for place in range(0, len(wanted), 8):
            part = wanted[place : place + 8]
            mask = np.uint64((1 << 8 * len(part)) - 1)
            alike = (self.words(at + place) & mask) == np.uint64(int.from_bytes(part, "little"))
            same = alike if same is None else same & alike
        assert same is not None
        return same

    def varint(self, at: int, digits: int) -> tuple[npt.NDArray[np.uint64], Bools]:
        """The number at this place, and whether it is a varint of just so many digits and of 64 bits."""
        value = np.zeros(len(self.starts), np.uint64)
        sound: Bools = np.ones(len(self.starts), bool)
        words = self.words(at)
        for place in range(digits):
            if place == 8:
                words = self.words(at + 8)
            digit = (words >> np.uint64(8 * (place % 8))) & np.uint64(0xFF)
            value |= (digit & np.uint64(0x7F)) << np.uint64(7 * place)
            sound &= digit >= 0x80 if place < digits - 1 else digit < (0x80 if digits < 10 else 2)
        return value, sound

    def is_key(self, author: Bytes) -> Bools:
        """Whether each row is the field with the author's key, as some implementations write it."""
        same = self.bytes32(6).view("<u8") == author.view("<u8")
        found: Bools = same[:, 0] & same[:, 1] & same[:, 2] & same[:, 3]
        return found & self.has(0, b"\x32\x24" + PEER_ID_PREFIX[2:])


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
