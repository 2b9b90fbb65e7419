"""Interest and Data of the NDN packet format 0.3: bytes ⇄ frozen structs, in one pass over the bytes.

Decoding checks structure (order, critical elements, lengths), never signatures; `signing.py` does that with the bytes a
packet says are `signed`. Packets keep their own bytes in `wire`, so forwarding and keeping need no second encoding.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from syncline.core.errors import DecodeError, UsageError
from syncline.core.limits import NDN_FORWARDING_HINTS
from syncline.core.verdict import Reason
from syncline.formats.ndn import types as t
from syncline.formats.ndn.names import Name, boundaries_within
from syncline.formats.ndn.signing import Signer
from syncline.formats.tlv import elements, encode, integer_element, is_critical, read_header, read_integer

LIFETIME_DEFAULT: Final = 4_000  # milliseconds


class Signature(msgspec.Struct, frozen=True, gc=False):
    """What a packet says about its signature, and the signature."""

    kind: int
    value: bytes = b""
    key_name: Name | None = None  # KeyLocator
    key_digest: bytes | None = None
    nonce: bytes | None = None
    time: int | None = None
    sequence: int | None = None


class Interest(msgspec.Struct, frozen=True, gc=False):
    """A request. `signed` and `digested` are what its signature and its ParametersSha256Digest cover."""

    wire: bytes
    name: Name
    can_be_prefix: bool
    must_be_fresh: bool
    nonce: bytes | None
    lifetime: int
    hop_limit: int | None
    hop_limit_at: int  # where the octet lies in `wire`
    hints: tuple[Name, ...]
    parameters: bytes | None
    parameters_at: int
    signature: Signature | None
    signed_stop: int
    digest_at: int  # where the ParametersSha256Digest component starts in `name`; -1 if there is none

    @property
    def signed(self) -> bytes:
        """The name without its digest, then everything from ApplicationParameters to before the signature's value."""
        bare = self.name[: self.digest_at] + self.name[self.digest_at + 34 :] if self.digest_at >= 0 else self.name
        return bare + self.wire[self.parameters_at : self.signed_stop]

    @property
    def digest_holds(self) -> bool:
        """Whether the name carries the digest of the parameters, or there are none."""
        if self.parameters is None:
            return self.digest_at < 0
        if self.digest_at < 0:
            return False
        found = hashlib.sha256(self.wire[self.parameters_at :]).digest()
        return found == self.name[self.digest_at + 2 : self.digest_at + 34]


class Data(msgspec.Struct, frozen=True, gc=False):
    """An answer."""

    wire: bytes
    name: Name
    content_type: int
    freshness: int  # milliseconds; 0 when absent
    final_block: bytes | None  # the component, not just its number
    content: bytes
    signature: Signature
    signed_start: int
    signed_stop: int

    @property
    def signed(self) -> bytes:
        return self.wire[self.signed_start : self.signed_stop]

    @property
    def implicit_digest(self) -> bytes:
        return hashlib.sha256(self.wire).digest()


def decode_data(wire: bytes) -> Data:
    """The Data that `wire` is."""
    kind, start, end = read_header(wire, 0, len(wire))
    if kind != t.DATA or end != len(wire):
        raise DecodeError("not a Data packet")
    name, at = _read_name(wire, start, end)
    content_type = freshness = 0
    final_block: bytes | None = None
    content = b""
    info_start = signed_stop = 0
    value: bytes | None = None
    step = 0
    while at < end:
        kind, first, stop = read_header(wire, at, end)
        if kind == t.META_INFO and step < 1:
            step = 1
            content_type, freshness, final_block = _read_meta_info(wire, first, stop)
        elif kind == t.CONTENT and step < 2:
            step = 2
            content = wire[first:stop]
        elif kind == t.SIGNATURE_INFO and step < 3:
            step, info_start, signed_stop = 3, first, stop
        elif kind == t.SIGNATURE_VALUE and step == 3:
            step, value = 4, wire[first:stop]
            if signed_stop != at:
                raise DecodeError("something stands between SignatureInfo and SignatureValue")
        else:
            _skip(kind, "Data")
        at = stop
    if value is None:
        raise DecodeError("a Data without a signature", reason=Reason.INVALID_SIGNATURE)
    signature = _read_signature(wire, info_start, signed_stop, value)
    return Data(wire, name, content_type, freshness, final_block, content, signature, start, signed_stop)


def encode_data(
    name: Name,
    content: bytes,
    signer: Signer,
    *,
    content_type: int | None = None,
    freshness: int | None = None,
    final_block: bytes | None = None,
) -> bytes:
    """A signed Data. What is None is left out."""
    meta = b"" if content_type is None else integer_element(t.CONTENT_TYPE, content_type)
    if freshness is not None:
        meta += integer_element(t.FRESHNESS, freshness)
    if final_block is not None:
        meta += encode(t.FINAL_BLOCK, final_block)
    if meta:
        meta = encode(t.META_INFO, meta)
    signed = b"".join(
        (encode(t.NAME, name), meta, encode(t.CONTENT, content), encode(t.SIGNATURE_INFO, signer.information))
    )
    return encode(t.DATA, signed + encode(t.SIGNATURE_VALUE, signer.sign(signed)))


def decode_interest(wire: bytes) -> Interest:
    """The Interest that `wire` is."""
    kind, start, end = read_header(wire, 0, len(wire))
    if kind != t.INTEREST or end != len(wire):
        raise DecodeError("not an Interest packet")
    kind, name_start, name_stop = read_header(wire, start, end)
    if kind != t.NAME:
        raise DecodeError("a packet starts with its name", about="name")
    ends = boundaries_within(wire, name_start, name_stop)
    if not ends:
        raise DecodeError("an Interest's name may not be empty", about="name")
    name = wire[name_start:name_stop]
    can_be_prefix = must_be_fresh = False
    nonce: bytes | None = None
    lifetime, hop_limit, hop_limit_at = LIFETIME_DEFAULT, None, -1
    hints: tuple[Name, ...] = ()
    parameters: bytes | None = None
    parameters_at = signed_stop = -1
    info: tuple[int, int] | None = None
    value: bytes | None = None
    at, step = name_stop, 0
    while at < end:
        kind, first, stop = read_header(wire, at, end)
        place = _INTEREST_ORDER.get(kind)
        if place is None:
            _skip(kind, "Interest")
        elif place <= step:
            raise DecodeError("an element of an Interest is repeated or out of order", about=f"type {kind}")
        elif kind == t.NONCE:
            if stop - first != 4:
                raise DecodeError("a Nonce has 4 octets", about="nonce")
            nonce = wire[first:stop]
        elif kind == t.LIFETIME:
            lifetime = read_integer(wire, first, stop)
        elif kind == t.CAN_BE_PREFIX:
            can_be_prefix = _empty(first, stop, "CanBePrefix")
        elif kind == t.MUST_BE_FRESH:
            must_be_fresh = _empty(first, stop, "MustBeFresh")
        elif kind == t.HOP_LIMIT:
            if stop - first != 1:
                raise DecodeError("a HopLimit has 1 octet", about="hop_limit")
            hop_limit, hop_limit_at = wire[first], first
        elif kind == t.PARAMETERS:
            parameters, parameters_at = wire[first:stop], at
        elif kind == t.INTEREST_SIGNATURE_INFO:
            info, signed_stop = (first, stop), stop
        elif kind == t.INTEREST_SIGNATURE_VALUE:
            value = wire[first:stop]
            if signed_stop != at:
                raise DecodeError("something stands between SignatureInfo and SignatureValue")
        else:
            hints = _read_hints(wire, first, stop)
        step = place or step
        at = stop
    digest_at = _digest_place(wire, name_start, ends)
    signature: Signature | None = None
    if parameters is None:
        if info is not None or value is not None:
            raise DecodeError("a signed Interest has ApplicationParameters", about="parameters")
    elif digest_at < 0:
        raise DecodeError("an Interest with parameters names their digest", about="name")
    if info is not None:
        if value is None:
            raise DecodeError("SignatureInfo without SignatureValue", reason=Reason.INVALID_SIGNATURE)
        signature = _read_signature(wire, info[0], info[1], value)
    return Interest(
        wire, name, can_be_prefix, must_be_fresh, nonce, lifetime, hop_limit, hop_limit_at, hints, parameters,
        parameters_at, signature, signed_stop, digest_at,
    )  # fmt: skip


def encode_interest(
    name: Name,
    *,
    nonce: bytes,
    can_be_prefix: bool = False,
    must_be_fresh: bool = False,
    lifetime: int | None = None,
    hop_limit: int | None = None,
    hints: tuple[Name, ...] = (),
    parameters: bytes | None = None,
    signer: Signer | None = None,
    signature_extra: bytes = b"",
) -> bytes:
    """An Interest; with parameters its digest goes to the end of the name, with a signer it is signed.

    `signature_extra` are further elements of the SignatureInfo (SignatureNonce, SignatureTime).
    """
    if len(nonce) != 4:
        raise UsageError("a nonce has 4 bytes")
    tail = b""
    if signer is not None or parameters is not None:
        tail = encode(t.PARAMETERS, parameters or b"")
        if signer is not None:
            tail += encode(t.INTEREST_SIGNATURE_INFO, signer.information + signature_extra)
            tail += encode(t.INTEREST_SIGNATURE_VALUE, signer.sign(name + tail))
        name += bytes((t.PARAMETERS_DIGEST, 32)) + hashlib.sha256(tail).digest()
    middle = (b"\x21\x00" if can_be_prefix else b"") + (b"\x12\x00" if must_be_fresh else b"")
    if hints:
        middle += encode(t.FORWARDING_HINT, b"".join(encode(t.NAME, hint) for hint in hints))
    middle += b"\x0a\x04" + nonce
    if lifetime is not None:
        middle += integer_element(t.LIFETIME, lifetime)
    if hop_limit is not None:
        middle += bytes((t.HOP_LIMIT, 1, hop_limit))
    body = encode(t.NAME, name) + middle + tail
    return encode(t.INTEREST, body)


_INTEREST_ORDER: Final = {
    kind: place
    for place, kind in enumerate(
        (
            t.CAN_BE_PREFIX, t.MUST_BE_FRESH, t.FORWARDING_HINT, t.NONCE, t.LIFETIME, t.HOP_LIMIT, t.PARAMETERS,
            t.INTEREST_SIGNATURE_INFO, t.INTEREST_SIGNATURE_VALUE,
        ),
        1,
    )
}  # fmt: skip


def with_nonce(interest: Interest, nonce: bytes) -> Interest:
    """The same Interest with the Nonce it lacks, in its place. Neither signature nor digest covers it."""
    wire = interest.wire
    _, start, end = read_header(wire, 0, len(wire))
    _, _, at = read_header(wire, start, end)
    while at < end:
        kind, _, stop = read_header(wire, at, end)
        if _INTEREST_ORDER.get(kind, 0) > _INTEREST_ORDER[t.NONCE]:
            break
        at = stop
    return decode_interest(encode(t.INTEREST, wire[start:at] + encode(t.NONCE, nonce) + wire[at:end]))


def _read_name(wire: bytes, at: int, end: int) -> tuple[Name, int]:
    kind, start, stop = read_header(wire, at, end)
    if kind != t.NAME:
        raise DecodeError("a packet starts with its name", about="name")
    boundaries_within(wire, start, stop)
    return wire[start:stop], stop


def _digest_place(wire: bytes, start: int, ends: list[int]) -> int:
    """Where the one ParametersSha256Digest component starts, counted from the start of the name; -1 for none."""
    found, at = -1, start
    for stop in ends:
        if wire[at] == t.PARAMETERS_DIGEST:
            if found >= 0 or stop - at != 34:
                raise DecodeError("more than one digest of parameters, or not 32 octets long", about="name")
            found = at - start
        at = stop
    return found


def _read_meta_info(wire: bytes, at: int, end: int) -> tuple[int, int, bytes | None]:
    content_type = freshness = 0
    final_block: bytes | None = None
    while at < end:
        kind, start, stop = read_header(wire, at, end)
        if kind == t.CONTENT_TYPE:
            content_type = read_integer(wire, start, stop)
        elif kind == t.FRESHNESS:
            freshness = read_integer(wire, start, stop)
        elif kind == t.FINAL_BLOCK:
            _, _, final_stop = read_header(wire, start, stop)
            if final_stop != stop:
                raise DecodeError("a FinalBlockId is one component", about="final_block")
            final_block = wire[start:stop]
        else:
            _skip(kind, "MetaInfo")
        at = stop
    return content_type, freshness, final_block


def _read_signature(wire: bytes, at: int, end: int, value: bytes) -> Signature:
    if end - at == 3 and wire[at] == t.SIGNATURE_TYPE and wire[at + 1] == 1:  # nothing but a type: most packets
        return Signature(wire[at + 2], value)
    kind: int | None = None
    key_name: Name | None = None
    key_digest: bytes | None = None
    nonce: bytes | None = None
    time: int | None = None
    sequence: int | None = None
    for found, start, stop in elements(wire, at, end):
        if found == t.SIGNATURE_TYPE:
            kind = read_integer(wire, start, stop)
        elif found == t.KEY_LOCATOR:
            if stop > start:
                inner, first, last = read_header(wire, start, stop)
                if inner == t.NAME:
                    boundaries_within(wire, first, last)
                    key_name = wire[first:last]
                elif inner == t.KEY_DIGEST:
                    key_digest = wire[first:last]
        elif found == t.SIGNATURE_NONCE:
            nonce = wire[start:stop]
        elif found == t.SIGNATURE_TIME:
            time = read_integer(wire, start, stop)
        elif found == t.SIGNATURE_SEQUENCE:
            sequence = read_integer(wire, start, stop)
        # Signature types may define further elements, critical to them alone.
    if kind is None:
        raise DecodeError("a SignatureInfo without a SignatureType", reason=Reason.INVALID_SIGNATURE)
    return Signature(kind, value, key_name, key_digest, nonce, time, sequence)


def _read_hints(wire: bytes, at: int, end: int) -> tuple[Name, ...]:
    hints = []
    for kind, start, stop in elements(wire, at, end):
        if kind == t.NAME:
            boundaries_within(wire, start, stop)
            hints.append(wire[start:stop])
    if len(hints) > NDN_FORWARDING_HINTS:
        raise DecodeError(f"{len(hints)} forwarding hints", reason=Reason.TOO_COMPLEX)
    return tuple(hints)


def _empty(start: int, stop: int, what: str) -> bool:
    if stop > start:
        raise DecodeError(f"{what} holds nothing", about=what)
    return True


def _skip(kind: int, packet: str) -> None:
    """Pass over an unknown element, unless it is one that must be understood."""
    if is_critical(kind):
        raise DecodeError(f"an unknown or misplaced critical element in {packet}", about=f"type {kind}")
