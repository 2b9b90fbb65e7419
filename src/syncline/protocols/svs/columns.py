"""Many outer Data at once, as Arrow columns: walked with numpy gathers over the batch's one buffer, no loop over rows.

Only packets of the common layout take the fast way; every other row goes through the very parser of the node, so what a row
says, or why it is refused, is the same. One bad row never spoils the others. Signatures are checked by the digest alone;
keyed ones need keys, which are not here.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from syncline.core.errors import DecodeError
from syncline.core.limits import NDN_NAME_COMPONENTS, NDN_PACKET_BYTES, SVS_SEGMENTS, SVS_SEQ_MAX
from syncline.core.verdict import Reason
from syncline.formats.ndn import types as t
from syncline.formats.ndn.packets import decode_data
from syncline.protocols.svs.wire.naming import OuterName, split_name
from syncline.protocols.svs.wire.publication import decapsulate

OUTER_SCHEMA: Final = pa.schema(
    [
        pa.field("prefix", pa.binary()),  # node and group: the name before the sequence number
        pa.field("seq", pa.uint64()),
        pa.field("segment", pa.uint64()),  # null: unsegmented
        pa.field("final", pa.uint64()),  # number of the last segment
        pa.field("freshness", pa.uint64()),
        pa.field("outer_signature", pa.uint8()),
        pa.field("inner_signature", pa.uint8()),
        pa.field("name", pa.binary()),  # the application name, without version and segment
        pa.field("content", pa.binary()),
        pa.field("reason", pa.string()),  # why the row is not an outer packet; null if it is one, or has no bytes
    ]
)
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
_PAD: Final = 16  # bytes after the buffer, so that a gather near its end stays inside


def decode_outer(raws: pa.Array) -> pa.RecordBatch:
    """One row for each of `raws` (binary), in their order; columns are null where a row is not an outer packet."""
    walk = _Walk(raws)
    found = walk.columns()
    odd = np.flatnonzero(~walk.good)
    if not len(odd):
        return found
    plain = np.flatnonzero(walk.good)
    mended = pa.RecordBatch.from_pylist([row_of(raws[index].as_py()) for index in odd.tolist()], schema=OUTER_SCHEMA)
    both = pa.concat_batches([found.take(pa.array(plain)), mended])
    order = np.empty(len(raws), np.int64)
    order[np.concatenate([plain, odd])] = np.arange(len(raws))
    return both.take(pa.array(order))


def row_of(raw: bytes | None) -> dict[str, Any]:
    """One packet by the node's own parser."""
    if raw is None:
        return {}
    try:
        if len(raw) > NDN_PACKET_BYTES:
            raise DecodeError("a packet too large", reason=Reason.OVERSIZE)
        data = decode_data(raw)
        named = split_name(data.name)
        if not isinstance(named, OuterName) or not named.node or not 1 <= named.seq <= SVS_SEQ_MAX:
            raise DecodeError("not an outer name", reason=Reason.INVALID_FIELD)
        if data.content_type != t.ENCAPSULATED or data.freshness == 0:
            raise DecodeError("ContentType or FreshnessPeriod", reason=Reason.INVALID_FIELD)
        outer = decapsulate(data, named)
    except DecodeError as error:
        return {"reason": error.reason.value}
    return {
        "prefix": named.node,
        "seq": named.seq,
        "segment": named.segment,
        "final": outer.final,
        "freshness": data.freshness,
        "outer_signature": min(data.signature.kind, 255),
        "inner_signature": min(outer.inner.signature.kind, 255),
        "name": outer.name,
        "content": outer.content,
    }


def digests_hold(raws: pa.Array) -> pa.Array:
    """For each row, whether every DigestSha256 in it is right; null where neither signature is one."""
    held: list[bool | None] = []
    for raw in raws.to_pylist():
        try:
            data = decode_data(raw or b"")
            packets = [data, decode_data(data.content)]
        except DecodeError:
            held.append(None)
            continue
        digests = [each for each in packets if each.signature.kind == t.DIGEST_SHA256]
        right = all(hashlib.sha256(each.signed).digest() == each.signature.value for each in digests)
        held.append(right if len(digests) == 2 or not right else None)
    return pa.array(held, pa.bool_())


class _Walk:
    """Offsets into the batch's buffer, one of each for every row; `good` are the rows that have the common layout."""

    def __init__(self, raws: pa.Array) -> None:
        self.count = len(raws)
        offsets = np.frombuffer(raws.buffers()[1], np.int32)[raws.offset : raws.offset + self.count + 1]
        data = raws.buffers()[2]
        content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        self.start, self.end = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
        self.bytes = np.concatenate([content, np.zeros(_PAD, np.uint8)])
        self._u16 = _view(self.bytes, ">u2")
        self._u32 = _view(self.bytes, ">u4")
        self._u64 = _view(self.bytes, ">u8")
        self.source = pa.py_buffer(self.bytes)
        self.good: Bools = np.asarray(raws.is_valid()) & (self.end - self.start <= NDN_PACKET_BYTES)
        self._read()

    def _read(self) -> None:
        content, stop, name_start, name_end, metas = self._data(self.start, self.end)
        ends = self._components(name_start, name_end)
        self._outer_name(name_start, ends)
        self.freshness, final = self._meta(*metas, outer=True)
        self.outer_kind = self._kind
        inner, inner_stop, inner_name, inner_end, inner_metas = self._data(content, stop)
        inner_ends = self._components(inner_name, inner_end)
        _, inner_final = self._meta(*inner_metas, outer=False)
        self.inner_kind = self._kind
        self.good &= final == inner_final
        self.good &= np.where(self.segmented, (final >= self.segment) & (final < SVS_SEGMENTS), final == -1)
        self.final = np.where(self.segmented, final, 0)
        self._inner_name(inner_name, inner_end, inner_ends)
        self.content, self.content_end = inner, inner_stop

    # elements

    def _clamp(self, at: Ints) -> Ints:
        """Rows that went astray point at their own start, so that no gather leaves the buffer."""
        return np.where(self.good & (at <= self.end), at, self.start)

    def _header(self, at: Ints, kind: int, limit: Ints) -> tuple[Ints, Ints]:
        """Where the value of an element of this type starts and stops; rows without one are no longer good."""
        at = self._clamp(at)
        first = self.bytes[at + 1].astype(np.int64)
        wide = first == 253
        length = np.where(wide, self._u16[at + 2], first)
        start = at + np.where(wide, 4, 2)
        stop = start + length
        self.good &= (self.bytes[at] == kind) & (first < 254) & (~wide | (length >= 253)) & (stop <= limit)
        return start, stop

    def _data(self, at: Ints, end: Ints) -> tuple[Ints, Ints, Ints, Ints, tuple[Ints, Ints]]:
        """A Data packet that fills `at` to `end`: its content, its name and its MetaInfo; notes the signature's kind."""
        value, stop = self._header(at, t.DATA, end)
        self.good &= stop == end
        name_start, name_end = self._header(value, t.NAME, end)
        place = self._clamp(name_end)
        has_meta = self.bytes[place] == t.META_INFO
        meta_start = place + 2
        meta_end = np.where(has_meta, meta_start + self.bytes[place + 1], place)
        self.good &= ~has_meta | ((self.bytes[place + 1] < 253) & (meta_end <= end))
        content, content_end = self._header(np.where(has_meta, meta_end, place), t.CONTENT, end)
        info, info_end = self._header(content_end, t.SIGNATURE_INFO, end)
        _, last = self._header(info_end, t.SIGNATURE_VALUE, end)
        self.good &= last == end
        info = self._clamp(info)
        # A SignatureInfo of nothing but its type; with a KeyLocator the slow way checks the name in it.
        self.good &= (info_end - info == 3) & (self.bytes[info] == t.SIGNATURE_TYPE) & (self.bytes[info + 1] == 1)
        self._kind = self.bytes[self._clamp(info + 2)]
        return content, content_end, name_start, name_end, (np.where(has_meta, meta_start, 0), meta_end)

    def _meta(self, at: Ints, end: Ints, *, outer: bool) -> tuple[Ints, Ints]:
        """FreshnessPeriod and the segment number in FinalBlockId (-1: none) of a MetaInfo in the usual order."""
        if outer:
            place = self._clamp(at)
            self.good &= (end - at >= 3) & (at > 0) & (self._u16[place] == 0x1801) & (self.bytes[place + 2] == 6)
            at = at + 3
        here = at > 0
        place = self._clamp(at)
        has_freshness = here & (at < end) & (self.bytes[place] == t.FRESHNESS)
        length = np.where(has_freshness, self.bytes[place + 1], 0).astype(np.int64)
        freshness = self._number(place + 2, length, has_freshness)
        at = np.where(has_freshness, at + 2 + length, at)
        place = self._clamp(at)
        has_final = here & (at < end) & (self.bytes[place] == t.FINAL_BLOCK)
        width = self.bytes[self._clamp(place + 3)].astype(np.int64)
        sound = (self.bytes[place + 1] == width + 2) & (self.bytes[place + 2] == t.SEGMENT)
        self.good &= ~has_final | sound
        final = np.where(has_final, self._number(place + 4, width, has_final), -1)
        at = np.where(has_final, at + 4 + width, at)
        self.good &= ~here | (at == end)
        if outer:
            self.good &= has_freshness & (freshness > 0)
        return freshness, final

    def _number(self, at: Ints, width: Ints, where: Bools) -> Ints:
        """The NonNegativeIntegers at `at`; other widths, and numbers beyond 2^62, are left to the slow way."""
        at = self._clamp(at)
        eight = self._u64[at]
        self.good &= ~where | (width == 1) | (width == 2) | (width == 4) | ((width == 8) & (eight < 2**62))
        value = np.where(width == 1, self.bytes[at], np.where(width == 2, self._u16[at], self._u32[at])).astype(
            np.int64
        )
        return np.where(width == 8, eight.astype(np.int64), value)

    # names

    def _components(self, at: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
        """Where the last, the last but one and the last but two components start; the whole name is checked."""
        last = before = first = np.full(self.count, -1, np.int64)
        at = self._clamp(at)
        end = np.where(self.good, end, at)
        for _ in range(NDN_NAME_COMPONENTS):
            more = at < end
            if not more.any():
                break
            place = np.where(more, at, self.start)
            kind, length = self.bytes[place], self.bytes[place + 1]
            fits = (kind > 0) & (kind < 253) & (length < 253) & (place + 2 + length <= end)
            self.good &= ~more | fits
            step = more & fits
            first, before = np.where(step, before, first), np.where(step, last, before)
            last = np.where(step, at, last)
            at = np.where(step, at + 2 + length, np.where(more, end, at))
        self.good &= at >= end
        return last, before, first

    def _outer_name(self, start: Ints, ends: tuple[Ints, Ints, Ints]) -> None:
        last, before, first = (self._clamp(each) for each in ends)
        self.segmented = (self._u16[before] == 0x3601) & (self.bytes[before + 2] == 0) & (self.bytes[last] == t.SEGMENT)
        self.segmented &= ends[2] >= 0
        seq_at = np.where(self.segmented, first, last)
        # A version that is not 0, a segment alone, or MAPPING two components before: names of other forms.
        self.good &= (self.bytes[seq_at] == t.GENERIC) & (seq_at > start)
        mapping = ~self.segmented & (ends[2] >= 0) & (self.bytes[first + 1] == 7) & (self.bytes[first + 2] == 77)
        self.good &= ~mapping
        self.seq = self._number(seq_at + 2, self.bytes[seq_at + 1].astype(np.int64), np.ones(self.count, bool))
        self.good &= (self.seq >= 1) & (self.seq <= SVS_SEQ_MAX)
        width = self.bytes[last + 1].astype(np.int64)
        segment = self._number(last + 2, width, self.segmented)
        shortest = (width == 1) | ((width == 2) & (segment >= 256)) | ((width == 4) & (segment >= 65_536))
        self.good &= ~self.segmented | shortest
        self.segment = np.where(self.segmented, segment, 0)
        self.segment_width = width
        self.prefix, self.prefix_end = start, seq_at

    def _inner_name(self, start: Ints, end: Ints, ends: tuple[Ints, Ints, Ints]) -> None:
        last, before = self._clamp(ends[0]), self._clamp(ends[1])
        width = self.bytes[last + 1].astype(np.int64)
        same = (
            (self._u16[before] == 0x3601)
            & (self.bytes[before + 2] == 0)
            & (self.bytes[last] == t.SEGMENT)
            & (width == self.segment_width)
            & (self._number(last + 2, width, self.segmented) == self.segment)
            & (ends[1] >= 0)
        )
        self.good &= ~self.segmented | same
        self.name, self.name_end = start, np.where(self.segmented, before, end)

    # columns

    def columns(self) -> pa.RecordBatch:
        numbers = [self.seq, self.segment, self.final, self.freshness]
        seq, segment, final, freshness = (values.astype(np.uint64) for values in numbers)
        return pa.RecordBatch.from_arrays(
            [
                self._slices(self.prefix, self.prefix_end),
                pa.array(seq),
                pa.array(segment, mask=~self.segmented),
                pa.array(final),
                pa.array(freshness),
                pa.array(self.outer_kind),
                pa.array(self.inner_kind),
                self._slices(self.name, self.name_end),
                self._slices(self.content, self.content_end),
                pa.nulls(self.count, pa.string()),
            ],
            schema=OUTER_SCHEMA,
        )

    def _slices(self, start: Ints, end: Ints) -> pa.Array:
        """The bytes between two offsets of each row, by one `take` over the original buffer."""
        offsets = np.empty(2 * self.count + 1, np.int32)
        offsets[0:-1:2] = np.where(self.good, start, self.start)
        offsets[1::2] = np.where(self.good, end, self.start)
        offsets[-1] = len(self.bytes)
        pairs = pa.Array.from_buffers(pa.binary(), 2 * self.count, [None, pa.py_buffer(offsets), self.source])
        return pairs.take(pa.array(np.arange(0, 2 * self.count, 2)))


def _view(content: npt.NDArray[np.uint8], kind: str) -> npt.NDArray[Any]:
    """Every overlapping number of a kind in the buffer: one at each byte."""
    dtype = np.dtype(kind)
    count = len(content) - dtype.itemsize + 1
    return np.ndarray((count,), dtype, content.data, 0, (1,))
