"""Checksums of objects: `{val, type}` with type `[canon/]HASH`, and the canonical JSON of RFC 8785 they rest on.

canon says how the object becomes bytes: `utf-8` (JSON by RFC 8785, a text as it is), `jcs` (RFC 8785, also for a text,
which is then a JSON string), `raw` (a binary or text as it is). Without canon: `raw` for a binary, else `utf-8`.
HASH is MD5, SHA-1, SHA-256, SHA-512 or CRC32; `val` is hexadecimal in either case.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import zlib
from collections.abc import Callable
from typing import Any, Final

import msgspec

from syncline.core.errors import UsageError
from syncline.protocols.sdsp.wire import Checksum, ObjectKind

DEFAULT_TYPE: Final = "utf-8/SHA-256"


def checksum_of(value: Any, kind: ObjectKind, type: str = DEFAULT_TYPE) -> Checksum:
    """The checksum of an object. Raises UsageError for a type that does not exist or cannot be had of this kind."""
    val = _compute(value, kind, type)
    if val is None:
        raise UsageError(f"no checksum {type!r} of a {kind} object", hint=f"{DEFAULT_TYPE} or raw/SHA-256, for example")
    return Checksum(val, type)


def matches(value: Any, kind: ObjectKind, checksum: Checksum) -> bool | None:
    """Whether the object has this checksum; None if its type is one nobody here can compute.

    # SDSP: how checksums are made is outside the specification; subscribers may elect to compare them.
    """
    val = _compute(value, kind, checksum.type)
    return None if val is None else hmac.compare_digest(val.encode(), checksum.val.lower().encode())


def jcs(value: Any) -> bytes:
    """A JSON value in the canonical form of RFC 8785 (UTF-8).

    Numbers are written as ECMAScript writes the nearest double, so integers beyond 2^53 lose digits here as they would
    in JavaScript.
    """
    # msgspec writes the same bytes many times faster, except for what _DIFFERENT finds
    encoded = _SORTED.encode(value)
    if not _DIFFERENT.search(encoded):
        return encoded
    parts: list[str] = []
    _write(value, parts.append)
    return "".join(parts).encode()


def number(value: float) -> str:
    """A number as ECMAScript's Number::toString writes it."""
    if value == 0:
        return "0"
    if not math.isfinite(value):
        raise UsageError("JSON has no infinity and no not-a-number")
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    return sign + _placed(digits, point)


_SORTED: Final = msgspec.json.Encoder(order="sorted")
_STRING: Final = msgspec.json.Encoder()
# Where msgspec and RFC 8785 may differ: whole or very small floats, exponents, integers of 16 digits and more, and
# astral characters (code point order is not UTF-16 order). Matches inside of texts only cost time.
_DIFFERENT: Final = re.compile(rb"\.0(?![0-9])|[0-9]e[-+]?[0-9]|(?<![0-9.])[0-9]{16}|0\.000000|[\xf0-\xf4]", re.ASCII)


def _placed(digits: str, point: int) -> str:
    """`digits` with the decimal point after `point` of them, by the rules of ECMAScript."""
    if len(digits) <= point <= 21:
        return digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    exponent = f"e{'+' if point > 0 else '-'}{abs(point - 1)}"
    return (f"{digits[0]}.{digits[1:]}" if len(digits) > 1 else digits) + exponent


def _write(value: Any, out: Callable[[str], None]) -> None:
    kind = type(value)
    if kind is dict:
        separator = "{"
        for key in sorted(value, key=_utf16):
            out(separator)
            out(_STRING.encode(key).decode())
            out(":")
            _write(value[key], out)
            separator = ","
        out("}" if value else "{}")
    elif kind is list:
        separator = "["
        for item in value:
            out(separator)
            _write(item, out)
            separator = ","
        out("]" if value else "[]")
    elif kind is float or kind is int:
        out(number(_double(value)))
    else:
        out(_STRING.encode(value).decode())


def _double(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        raise UsageError("an integer beyond the range of a double has no canonical form") from None


def _utf16(key: str) -> bytes:
    return key.encode("utf-16-be")


def _compute(value: Any, kind: ObjectKind, type: str) -> str | None:
    canon, _, name = type.rpartition("/")
    algorithm = _HASHES.get(name.upper())
    content = _canonical(value, kind, canon.lower())
    return None if algorithm is None or content is None else algorithm(content)


def _canonical(value: Any, kind: ObjectKind, canon: str) -> bytes | None:
    if kind is ObjectKind.BINARY:
        return value if canon in ("", "raw") else None
    if kind is ObjectKind.TEXT and canon in ("", "utf-8", "raw"):
        text: str = value
        return text.encode()
    try:
        return jcs(value) if canon in ("", "utf-8", "jcs") else None
    except UsageError:
        return None


_HASHES: Final[dict[str, Callable[[bytes], str]]] = {
    "MD5": lambda content: hashlib.md5(content, usedforsecurity=False).hexdigest(),
    "SHA-1": lambda content: hashlib.sha1(content, usedforsecurity=False).hexdigest(),
    "SHA-256": lambda content: hashlib.sha256(content).hexdigest(),
    "SHA-512": lambda content: hashlib.sha512(content).hexdigest(),
    "CRC32": lambda content: f"{zlib.crc32(content):08x}",
}
