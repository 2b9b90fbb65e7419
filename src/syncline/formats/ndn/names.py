"""Names as bytes: the value of a Name element, that is, its components one after another.

Because TLV numbers are always in shortest form, the canonical order of names is the order of these bytes, equality is
byte equality, and a prefix of a name is a prefix of its bytes. Text forms (`/chat/hello`, `/a/54=%02`) are for people
and settings. What components mean to a protocol is that protocol's business.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from syncline.core.errors import DecodeError, UsageError
from syncline.core.limits import NDN_NAME_COMPONENTS
from syncline.core.verdict import Reason
from syncline.formats.ndn import types as t
from syncline.formats.tlv import encode, encode_integer, read_header, read_integer

COMPONENT_TYPE_MAX: Final = 0xFFFF
Name = bytes  # the components, without the Name's own type and length

_DIGESTS: Final = {"sha256digest": t.IMPLICIT_DIGEST, "params-sha256": t.PARAMETERS_DIGEST}
_NUMBERED: Final = {"seg": t.SEGMENT, "off": t.BYTE_OFFSET, "v": t.VERSION, "t": t.TIMESTAMP, "seq": t.SEQUENCE}
_PLAIN: Final = frozenset(b"-._~ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
_TYPED: Final = re.compile(r"(sha256digest|params-sha256|seg|off|v|t|seq|[1-9][0-9]{0,4})=(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"%([0-9A-Fa-f]{2})")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


def component(kind: int, value: bytes) -> bytes:
    """One component."""
    return encode(kind, value)


def generic(value: bytes) -> bytes:
    return encode(t.GENERIC, value)


def number(kind: int, value: int) -> bytes:
    """A component that holds a number: `number(SEGMENT, 0)`."""
    return encode(kind, encode_integer(value))


def components(name: Name) -> Iterator[tuple[int, bytes]]:
    """(type, value) of each component."""
    at, end = 0, len(name)
    while at < end:
        kind, start, stop = read_header(name, at, end)
        yield kind, name[start:stop]
        at = stop


def boundaries(name: Name) -> list[int]:
    """Where each component ends. Refuses bytes that are not a name."""
    return boundaries_within(name, 0, len(name))


def boundaries_within(wire: bytes, at: int, end: int) -> list[int]:
    """Where each component ends, for a name that lies inside a packet."""
    ends: list[int] = []
    while at < end:
        if end - at > 1 and 0 < wire[at] < 253 and wire[at + 1] < 253:  # the common case, without a call
            at += 2 + wire[at + 1]
            if at > end:
                raise DecodeError("a name component ends after its name")
        else:
            kind, _, at = read_header(wire, at, end)
            if kind > COMPONENT_TYPE_MAX:
                raise DecodeError(f"no name component has type {kind}")
        ends.append(at)
    if len(ends) > NDN_NAME_COMPONENTS:
        raise DecodeError(f"a name of {len(ends)} components", reason=Reason.TOO_COMPLEX)
    return ends


def number_of(kind: int, name: Name, start: int, stop: int) -> int | None:
    """The number in the component between two boundaries; None if it is another kind or no number."""
    found, at, end = read_header(name, start, stop)
    if found != kind or end - at not in (1, 2, 4, 8):
        return None
    return read_integer(name, at, end)


def parse(text: str) -> Name:
    """The name that `text` writes: `/chat/hello`, `/a/v=2`, `/a/54=%02`, `/` for the empty one."""
    path = text.removeprefix("ndn:")
    if not path.startswith("/"):
        raise UsageError("a name starts with a slash", hint="for example /chat/hello", about=text[:80])
    path = path[1:-1] if len(path) > 1 and path.endswith("/") else path[1:]
    if not path:
        return b""
    parts = [_parse_component(part, text) for part in path.split("/")]
    if len(parts) > NDN_NAME_COMPONENTS:
        raise UsageError(f"a name may have {NDN_NAME_COMPONENTS} components", about=text[:80])
    return b"".join(parts)


def text(name: Name) -> str:
    """The name as people read it; `parse` gives the same bytes back."""
    return "/" + "/".join(_component_text(kind, value) for kind, value in components(name))


def _parse_component(part: str, whole: str) -> bytes:
    match = _TYPED.fullmatch(part)
    label, value = (match[1], match[2]) if match else ("", part)
    try:
        if label in _DIGESTS:
            digest = bytes.fromhex(value)
            if len(digest) != 32:
                raise ValueError
            return component(_DIGESTS[label], digest)
        if label in _NUMBERED:
            found = int(value) if value.isascii() and value.isdigit() else -1
            if not 0 <= found < 2**64:
                raise ValueError
            return number(_NUMBERED[label], found)
        kind = int(label) if label else t.GENERIC
        if kind > COMPONENT_TYPE_MAX:
            raise ValueError
        return component(kind, _unescape(value))
    except ValueError:
        raise UsageError(f"{part!r} is not a name component", about=whole[:80]) from None


def _unescape(value: str) -> bytes:
    if _BAD_ESCAPE.search(value):
        raise ValueError
    if value and not value.strip("."):  # a component of n periods is written with n + 3
        if len(value) < 3:
            raise ValueError
        value = value[3:]
    elif not value:
        raise ValueError
    pieces = _ESCAPE.split(value)
    return b"".join(bytes.fromhex(piece) if odd % 2 else piece.encode() for odd, piece in enumerate(pieces))


def _component_text(kind: int, value: bytes) -> str:
    if kind in (t.IMPLICIT_DIGEST, t.PARAMETERS_DIGEST) and len(value) == 32:
        return ("sha256digest=" if kind == t.IMPLICIT_DIGEST else "params-sha256=") + value.hex()
    for label, numbered in _NUMBERED.items():
        if kind == numbered and len(value) in (1, 2, 4, 8) and encode_integer(int.from_bytes(value, "big")) == value:
            return f"{label}={int.from_bytes(value, 'big')}"
    escaped = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in value)
    if not escaped.strip("."):
        escaped = "..." + escaped
    return escaped if kind == t.GENERIC else f"{kind}={escaped}"
