"""NDNLPv2, the layer below Interest and Data: PIT tokens, Nacks and fragments. Decoding and encoding only.

Putting fragments together again needs memory with bounds and belongs to the forwarder.
"""

from __future__ import annotations

import msgspec

from syncline.core.errors import DecodeError
from syncline.formats.ndn import types as t
from syncline.formats.tlv import encode, encode_integer, integer_element, read_header, read_integer

PIT_TOKEN_MAX = 32
_FRAGMENT_OVERHEAD = 4 + 10 + 4 + 4 + 4  # LpPacket, Sequence, FragIndex, FragCount and Fragment with their lengths


class LinkPacket(msgspec.Struct, frozen=True, gc=False):
    """One LpPacket. A fragment that is a whole packet has `fragments` 1; an idle packet has no fragment."""

    fragment: bytes = b""
    pit_token: bytes | None = None
    nack: int | None = None  # the reason; 0 when a Nack gives none
    sequence: int | None = None
    index: int = 0
    fragments: int = 1
    incoming: int = 0  # the face by which the forwarder got it, if it says so


def decode_link(wire: bytes) -> LinkPacket:
    """The LpPacket that `wire` is."""
    kind, at, end = read_header(wire, 0, len(wire))
    if kind != t.LP_PACKET or end != len(wire):
        raise DecodeError("not an LpPacket")
    fragment, pit_token, nack, sequence, index, fragments, incoming = b"", None, None, None, 0, 1, 0
    while at < end:
        kind, start, stop = read_header(wire, at, end)
        if kind == t.LP_FRAGMENT:
            fragment = wire[start:stop]
        elif kind == t.LP_PIT_TOKEN:
            if not 1 <= stop - start <= PIT_TOKEN_MAX:
                raise DecodeError(f"a PIT token has 1 to {PIT_TOKEN_MAX} octets", about="pit_token")
            pit_token = wire[start:stop]
        elif kind == t.LP_SEQUENCE:
            if stop - start != 8:
                raise DecodeError("a link sequence number has 8 octets", about="sequence")
            sequence = int.from_bytes(wire[start:stop], "big")
        elif kind == t.LP_FRAGMENT_INDEX:
            index = read_integer(wire, start, stop)
        elif kind == t.LP_FRAGMENT_COUNT:
            fragments = read_integer(wire, start, stop)
        elif kind == t.LP_NACK:
            nack = _nack_reason(wire, start, stop)
        elif kind == t.LP_INCOMING_FACE:
            incoming = read_integer(wire, start, stop)
        elif not _may_be_ignored(kind):
            raise DecodeError("an unknown element in LpPacket", about=f"type {kind}")
        at = stop
    if index >= fragments or (fragments > 1 and sequence is None):
        raise DecodeError("a fragment outside its packet", about="index")
    return LinkPacket(fragment, pit_token, nack, sequence, index, fragments, incoming)


def with_token(token: bytes, packet: bytes) -> bytes:
    """A packet that carries a PIT token."""
    return encode(t.LP_PACKET, encode(t.LP_PIT_TOKEN, token) + encode(t.LP_FRAGMENT, packet))


def with_incoming(face: int, packet: bytes) -> bytes:
    """A packet that says by which face the forwarder got it; for applications inside the forwarder's process."""
    return encode(t.LP_PACKET, integer_element(t.LP_INCOMING_FACE, face) + encode(t.LP_FRAGMENT, packet))


def encode_nack(interest: bytes, reason: int, token: bytes | None = None) -> bytes:
    """A Nack of an Interest."""
    headers = encode(t.LP_PIT_TOKEN, token) if token is not None else b""
    headers += encode(t.LP_NACK, encode(t.LP_NACK_REASON, encode_integer(reason)))
    return encode(t.LP_PACKET, headers + encode(t.LP_FRAGMENT, interest))


def fragment(wire: bytes, largest: int, sequence: int) -> list[bytes]:
    """A packet as LpPackets of at most `largest` bytes; itself if it fits. `sequence` is the first one's number."""
    if len(wire) <= largest:
        return [wire]
    headers, body = b"", wire
    if wire[0] == t.LP_PACKET:
        headers, body = _split_headers(wire)
    room = largest - _FRAGMENT_OVERHEAD - len(headers)
    pieces = [body[at : at + room] for at in range(0, len(body), room)]
    return [
        encode(
            t.LP_PACKET,
            encode(t.LP_SEQUENCE, (sequence + index & 0xFFFF_FFFF_FFFF_FFFF).to_bytes(8, "big"))
            + (encode(t.LP_FRAGMENT_INDEX, encode_integer(index)) if index else b"")
            + encode(t.LP_FRAGMENT_COUNT, encode_integer(len(pieces)))
            + (headers if index == 0 else b"")
            + encode(t.LP_FRAGMENT, piece),
        )
        for index, piece in enumerate(pieces)
    ]


def _split_headers(wire: bytes) -> tuple[bytes, bytes]:
    """The header fields of an LpPacket, and the packet it carries."""
    _, at, end = read_header(wire, 0, len(wire))
    start = at
    while at < end:
        kind, first, stop = read_header(wire, at, end)
        if kind == t.LP_FRAGMENT:
            return wire[start:at], wire[first:stop]
        at = stop
    return wire[start:end], b""


def _nack_reason(wire: bytes, at: int, end: int) -> int:
    while at < end:
        kind, start, stop = read_header(wire, at, end)
        if kind == t.LP_NACK_REASON:
            return read_integer(wire, start, stop)
        at = stop
    return 0


def _may_be_ignored(kind: int) -> bool:
    """NDNLPv2: headers from 800 to 959 whose number is a multiple of four may be ignored."""
    return 800 <= kind <= 959 and kind % 4 == 0
