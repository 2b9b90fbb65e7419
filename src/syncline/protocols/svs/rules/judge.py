"""The verdict on one packet of a group, and the record it makes. Pure: bytes, group and keys in, verdict out.

An outer Data is judged whole: its own signature first, and only then the packet inside it.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from syncline.core.errors import DecodeError
from syncline.core.limits import NDN_PACKET_BYTES, SVS_SEQ_MAX, TEXT_MAX
from syncline.core.record import Arrival, Incoming
from syncline.core.verdict import ACCEPT, Reason, Verdict
from syncline.formats.ndn import types as t
from syncline.formats.ndn.names import Name, text
from syncline.formats.ndn.packets import Data, decode_data, decode_interest
from syncline.formats.tlv import encode
from syncline.protocols.svs.rules.trust import Trust
from syncline.protocols.svs.wire.mapping import MappingData, decode_mapping, encode_mapping, mapping_after
from syncline.protocols.svs.wire.naming import MappingName, OuterName, read_name, sync_name
from syncline.protocols.svs.wire.publication import Outer, decapsulate
from syncline.protocols.svs.wire.vector import decode_vector

PROTOCOL: Final = "svs"
OUTER: Final = "outer"
MAPPING: Final = "mapping"
_ID_TAIL: Final = 32  # octets that follow the name in an id, at most
UNSEGMENTED_ID, SEGMENT_ID, MAPPING_ID = b"\x00", b"\x01", b"\x02"


class Judged(msgspec.Struct, frozen=True):
    """A packet with its verdict, and as much of it as could be read."""

    verdict: Verdict
    named: OuterName | MappingName | None = None
    packet: Outer | MappingData | None = None
    about: str = ""  # the part that is wrong: outer, inner, mapping, name …


class SyncJudged(msgspec.Struct, frozen=True):
    """A sync Interest with its verdict."""

    verdict: Verdict
    vector: dict[Name, int] = {}
    mapping: MappingData | None = None


def examine(wire: bytes, group: Name, trust: Trust) -> Judged:
    """Judge a Data that was fetched, or is about to be published, in a group."""
    named: OuterName | MappingName | None = None
    try:
        if len(wire) > NDN_PACKET_BYTES:
            raise DecodeError(f"a packet of {len(wire)} bytes", reason=Reason.OVERSIZE)
        data = decode_data(wire)
        named = read_name(data.name, group)
        _check_numbers(named)
        _check_length(named.node)
        if isinstance(named, MappingName):
            return Judged(ACCEPT, named, _mapping(data, named, trust))
        return Judged(ACCEPT, named, _outer(data, named, trust))
    except DecodeError as error:
        return Judged(error.verdict, named, about=error.about)


def judge_sync(wire: bytes, group: Name, trust: Trust) -> SyncJudged:
    """Judge a sync Interest; its vector and mapping may be used only if it is accepted."""
    try:
        interest = decode_interest(wire)
        if interest.digest_at < 0 or interest.name[: interest.digest_at] != sync_name(group):
            raise DecodeError("not a sync Interest of this group", reason=Reason.INVALID_TOPIC)
        if not interest.digest_holds:
            raise DecodeError("the parameters have another digest", reason=Reason.WRONG_HASH)
        if not trust.sync(interest, b""):
            raise _forged("sync")
        parameters = interest.parameters or b""
        vector, end = decode_vector(parameters)
        # SVS-PS: mapping data may follow the vector, and counts only because the Interest's signature was checked.
        return SyncJudged(ACCEPT, vector, mapping_after(parameters, end))
    except DecodeError as error:
        return SyncJudged(error.verdict)


def _outer(data: Data, named: OuterName, trust: Trust) -> Outer:
    if data.content_type != t.ENCAPSULATED:
        raise DecodeError("an outer Data has ContentType 6", reason=Reason.INVALID_FIELD, about="content_type")
    if data.freshness == 0:
        raise DecodeError("an outer Data has a FreshnessPeriod", reason=Reason.INVALID_FIELD, about="freshness")
    # SVS-PS: the outer Data is validated before decapsulation.
    if not trust.outer(data, named.node):
        raise _forged("outer")
    outer = decapsulate(data, named)
    if not trust.inner(outer.inner, named.node):
        raise _forged("inner")
    _check_length(outer.name)
    return outer


def _mapping(data: Data, named: MappingName, trust: Trust) -> MappingData:
    if not trust.mapping(data, named.node):
        raise _forged("mapping")
    mapping = decode_mapping(data.content)
    if mapping.node != named.node:
        raise DecodeError("a mapping of another node", reason=Reason.INVALID_FIELD, about="mapping")
    if any(not named.low <= entry.seq <= named.high for entry in mapping.entries):
        raise DecodeError("an entry outside the range asked for", reason=Reason.INVALID_FIELD, about="mapping")
    return mapping


def _check_numbers(named: OuterName | MappingName) -> None:
    low, high = (named.low, named.high) if isinstance(named, MappingName) else (named.seq, named.seq)
    if low < 1 or high > SVS_SEQ_MAX:
        raise DecodeError("sequence numbers start at 1", reason=Reason.INVALID_FIELD, about="name")


def _check_length(name: Name) -> None:
    """A record has room for names of so many characters; an octet takes at most three."""
    if 3 * len(name) > TEXT_MAX and len(text(name)) > TEXT_MAX:
        raise DecodeError("a name is too long", reason=Reason.OVERSIZE, about="name")


def _forged(what: str) -> DecodeError:
    return DecodeError("the signature does not verify", reason=Reason.INVALID_SIGNATURE, about=what)


def judge_arrival(incoming: Incoming, group: Name, judged: Judged) -> Arrival:
    """The record of a packet."""
    named, packet = judged.named, judged.packet
    node = text(named.node) if named is not None else ""
    outer = packet if isinstance(packet, Outer) else None
    arrival = Arrival(
        protocol=incoming.protocol,
        topic=incoming.topic,
        kind=MAPPING if isinstance(named, MappingName) else OUTER,
        id=record_id(group, named, packet, incoming.raw),
        direction=incoming.direction,
        key=text(outer.name) if outer is not None else "",
        publisher=node if len(node) <= TEXT_MAX else "",
        peer=incoming.peer,
        seq=None if named is None else named.low if isinstance(named, MappingName) else named.seq,
        published_at=_published_at(packet),
        received_at=incoming.received_at,
        raw=incoming.raw,
        verdict=judged.verdict.outcome,
    )
    return arrival.judged(judged.verdict)


def record_id(
    group: Name, named: OuterName | MappingName | None, packet: Outer | MappingData | None, raw: bytes
) -> bytes:
    """The identity of a packet: Name element of node and group (or its SHA-256 if it is very long), kind, sequence
    number, segment.

    A mapping's last parts are the range asked for and a digest of the answer, because a node may answer more later.
    """
    if named is None:
        return hashlib.sha256(raw).digest()
    name = encode(t.NAME, named.node + group)
    if len(name) > TEXT_MAX - _ID_TAIL:  # longer than a record's id may be
        name = hashlib.sha256(name).digest()
    if isinstance(named, MappingName):
        answer = hashlib.sha256(
            encode_mapping(packet.node, packet.entries) if isinstance(packet, MappingData) else raw
        ).digest()[:8]
        return name + MAPPING_ID + _u64(named.low) + _u64(named.high) + answer
    if named.segment is None:
        return name + UNSEGMENTED_ID + _u64(named.seq)
    return name + SEGMENT_ID + _u64(named.seq) + _u64(named.segment)


def _u64(value: int) -> bytes:
    return value.to_bytes(8, "big")


def _published_at(packet: Outer | MappingData | None) -> int | None:
    """A mapping of one publication may say when that was published."""
    if isinstance(packet, MappingData) and len(packet.entries) == 1:
        time = packet.entries[0].timestamp
        return time if time is not None and time < 2**62 else None
    return None
