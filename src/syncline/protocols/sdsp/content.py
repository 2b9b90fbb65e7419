"""What a frame says, as digests: to tell a repeat of a frame, however it was re-spelled on its way, from a fork."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

import msgspec
from msgspec import UNSET

from syncline.protocols.sdsp.wire import Frame, Kind


class Content(msgspec.Struct, frozen=True):
    """What a frame says, as digests, to tell a repeat from a fork. `data` is empty while the object is elsewhere."""

    head: bytes
    data: bytes = b""

    def same(self, other: Content) -> bool:
        return self.head == other.head and (self.data == other.data or not self.data or not other.data)


def content_of(frame: Frame) -> Content:
    """Over uid, serial, ver, alg, delta, frozen and the object; not over historyUri, meta or where the object is.

    Numbers count by value, as doubles: a republisher that turns 1.0 into 1 makes no fork.
    """
    kind = frame.kind
    delta = frame.delta if kind is Kind.DELTA else None
    head = [frame.uid, frame.serial, frame.ver, kind, frame.alg, frame.frozen, type(delta) is bytes, frame.holds]
    return Content(
        _digest(_canonical(head) + _canonical(delta)), b"" if frame.data is UNSET else _digest_of(frame.data)
    )


def same_content(one: Frame, other: Frame) -> bool:
    """Whether two frames with the same uid and serial say the same; if not, it is a fork."""
    return one == other or content_of(one).same(content_of(other))


_ENCODER: Final = msgspec.json.Encoder(order="sorted")


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def _digest_of(value: Any) -> bytes:
    return _digest(_canonical(value))


def _canonical(value: Any) -> bytes:
    """Bytes that are equal for values that are equal, numbers taken as the doubles that a republisher may make of them."""
    if isinstance(value, bytes):
        return value
    encoded = _ENCODER.encode(value)
    return _ENCODER.encode(_by_value(value)) if _SPELLED.search(encoded) else encoded


# whole numbers that can be spelled in several ways: 1.0, 1e3, and beyond the exact range of a double
_SPELLED: Final = re.compile(rb"\.0(?![0-9])|[0-9]e\+?[0-9]|(?<![0-9.])[0-9]{16}", re.ASCII)


def _by_value(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {key: _by_value(item) for key, item in value.items()}
    if kind is list:
        return [_by_value(item) for item in value]
    if kind is float and value.is_integer():
        return int(value)
    if kind is int and abs(value) > 2**53:
        try:
            return int(float(value))
        except OverflowError:
            return value
    return value
