"""Publications on the wire: a payload is cut into segments if it must be, each becomes an inner Data under its
application name, and each inner Data travels inside an outer Data under the node's sequence number.

Signers are arguments; checking signatures is in `rules`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from syncline.core.errors import DecodeError, UsageError
from syncline.core.limits import NDN_PACKET_BYTES, SVS_PUBLICATION_BYTES, SVS_SEGMENT_BYTES, SVS_SEGMENTS
from syncline.core.verdict import Reason
from syncline.formats.ndn import types as t
from syncline.formats.ndn.names import Name, boundaries, number, number_of
from syncline.formats.ndn.packets import Data, decode_data, encode_data
from syncline.formats.ndn.signing import Signer
from syncline.protocols.svs.wire.naming import VERSION_0, OuterName, outer_name

FRESHNESS_MS: Final = 60_000
_LENGTH_GROWTH: Final = 16  # octets by which length fields may grow between an empty and a full packet
_SIGNATURE_GROWTH: Final = 8  # ECDSA signatures differ in length


class Outer(msgspec.Struct, frozen=True, gc=False):
    """One decapsulated packet of a publication."""

    node: Name
    seq: int
    segment: int | None  # None: the publication is this one packet
    final: int  # number of the last segment
    name: Name  # the application name, without version and segment
    content: bytes
    inner: Data


def encapsulate(
    node: Name,
    group: Name,
    seq: int,
    name: Name,
    payload: bytes,
    *,
    inner: Signer,
    outer: Signer,
    largest: int = SVS_SEGMENT_BYTES,
    freshness: int = FRESHNESS_MS,
) -> list[bytes]:
    """The outer packets of one publication, in order of their segments."""
    if len(payload) > SVS_PUBLICATION_BYTES:
        raise UsageError(f"a publication may have {SVS_PUBLICATION_BYTES} bytes, not {len(payload)}")
    # SVS-PS: outer Data have a non-zero FreshnessPeriod.
    freshness = max(freshness, 1)
    if len(payload) <= largest:
        # SVS-PS: what fits is not segmented, and then has neither version, segment nor FinalBlockId.
        packet = _packet(outer_name(node, group, seq), name, payload, inner, outer, freshness, None)
        if len(packet) <= NDN_PACKET_BYTES:
            return [packet]
    room = _room(node, group, seq, name, inner, outer, freshness, largest)
    pieces = [payload[at : at + room] for at in range(0, len(payload), room)]
    if len(pieces) > SVS_SEGMENTS:
        raise UsageError(f"a publication may have {SVS_SEGMENTS} segments, not {len(pieces)}")
    # SVS-PS: every segment names the last one in FinalBlockId.
    final = number(t.SEGMENT, len(pieces) - 1)
    return [
        _packet(
            outer_name(node, group, seq, index),
            name + VERSION_0 + number(t.SEGMENT, index),
            piece,
            inner,
            outer,
            freshness,
            final,
        )
        for index, piece in enumerate(pieces)
    ]


def decapsulate(data: Data, named: OuterName) -> Outer:
    """The inner packet of an outer Data whose signature was checked before."""
    final = _final_segment(data, named.segment)
    try:
        inner = decode_data(data.content)
    except DecodeError as error:
        raise DecodeError(f"the content is not a Data: {error}", about="inner") from None
    if _final_segment(inner, named.segment) != final:
        raise DecodeError("inner and outer differ in FinalBlockId", reason=Reason.INVALID_FIELD, about="inner")
    if named.segment is None:
        return Outer(named.node, named.seq, None, 0, inner.name, inner.content, inner)
    ends = boundaries(inner.name)
    tail = VERSION_0 + number(t.SEGMENT, named.segment)
    if len(ends) < 2 or inner.name[ends[-3] if len(ends) > 2 else 0 :] != tail:
        raise DecodeError("inner and outer are other segments", reason=Reason.INVALID_FIELD, about="inner")
    name = inner.name[: -len(tail)]
    return Outer(named.node, named.seq, named.segment, final, name, inner.content, inner)


def _final_segment(data: Data, segment: int | None) -> int:
    """The number in FinalBlockId: SVS-PS demands one in every segment, and none without segments."""
    if segment is None:
        if data.final_block is not None:
            raise DecodeError("FinalBlockId without segments", reason=Reason.INVALID_FIELD, about="final_block")
        return 0
    block = data.final_block
    final = None if block is None else number_of(t.SEGMENT, block, 0, len(block))
    if final is None or final < segment:
        raise DecodeError("a segment names the last one", reason=Reason.INVALID_FIELD, about="final_block")
    if final >= SVS_SEGMENTS:
        raise DecodeError(f"{final + 1} segments", reason=Reason.TOO_COMPLEX, about="final_block")
    return final


def _packet(
    outer_named: Name, named: Name, content: bytes, inner: Signer, outer: Signer, freshness: int, final: bytes | None
) -> bytes:
    encapsulated = encode_data(named, content, inner, freshness=freshness, final_block=final)
    return encode_data(
        outer_named,
        encapsulated,
        outer,
        content_type=t.ENCAPSULATED,  # SVS-PS: the ContentType of the outer Data is 6
        freshness=freshness,
        final_block=final,
    )


def _room(
    node: Name, group: Name, seq: int, name: Name, inner: Signer, outer: Signer, freshness: int, largest: int
) -> int:
    """How many octets of payload one segment takes, given how much the names and signatures need."""
    last = SVS_SEGMENTS - 1
    tail = VERSION_0 + number(t.SEGMENT, last)
    empty = _packet(
        outer_name(node, group, seq, last), name + tail, b"", inner, outer, freshness, number(t.SEGMENT, last)
    )
    room = min(largest, NDN_PACKET_BYTES - len(empty) - _LENGTH_GROWTH - 2 * _SIGNATURE_GROWTH)
    if room < 1:
        raise UsageError("the names are too long for a packet")
    return room
