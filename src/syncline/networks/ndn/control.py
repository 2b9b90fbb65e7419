"""The forwarder's control messages: ControlParameters and ControlResponse, and the elements of its status datasets.

Bytes ⇄ values only; what a command does is in `management.py`. Numbers are those of NFD's management protocol.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from syncline.core.errors import DecodeError
from syncline.formats.ndn import types as t
from syncline.formats.ndn.names import Name, boundaries_within
from syncline.formats.tlv import elements, encode, integer_element, read_integer, whole

PARAMETERS: Final = 0x68
RESPONSE: Final = 0x65
STATUS_CODE: Final = 0x66
STATUS_TEXT: Final = 0x67
FACE_ID: Final = 0x69
COST: Final = 0x6A
STRATEGY: Final = 0x6B
FLAGS: Final = 0x6C
EXPIRATION: Final = 0x6D
ORIGIN: Final = 0x6F
URI: Final = 0x72
LOCAL_URI: Final = 0x81
CAPACITY: Final = 0x83
COUNT: Final = 0x84
_FIELDS: Final = (  # in the order they are written
    (t.NAME, "name"),
    (FACE_ID, "face"),
    (ORIGIN, "origin"),
    (COST, "cost"),
    (CAPACITY, "capacity"),
    (COUNT, "count"),
    (FLAGS, "flags"),
    (STRATEGY, "strategy"),
    (EXPIRATION, "expiration"),
)
_FIELD_OF: Final = dict(_FIELDS)


class ControlParameters(msgspec.Struct, frozen=True, kw_only=True):
    """What a command is about; every part may be absent."""

    name: Name | None = None
    face: int | None = None
    origin: int | None = None
    cost: int | None = None
    capacity: int | None = None
    count: int | None = None
    flags: int | None = None
    strategy: Name | None = None
    expiration: int | None = None  # milliseconds


def decode_parameters(wire: bytes) -> ControlParameters:
    start, stop = whole(wire, PARAMETERS)
    found: dict[str, int | Name] = {}
    for kind, first, last in elements(wire, start, stop):
        if kind == t.NAME:
            found["name"] = _name(wire, first, last)
        elif kind == STRATEGY:
            inner, at = whole(wire[first:last], t.NAME)
            found["strategy"] = _name(wire, first + inner, first + at)
        elif kind in _FIELD_OF:
            found[_FIELD_OF[kind]] = read_integer(wire, first, last)
    return msgspec.convert(found, ControlParameters)


def encode_parameters(parameters: ControlParameters) -> bytes:
    parts: list[tuple[int, int | bytes]] = []
    for kind, field in _FIELDS:
        value: int | Name | None = getattr(parameters, field)
        if value is not None:
            parts.append((kind, encode(t.NAME, value) if field == "strategy" else value))  # type: ignore[arg-type]
    return encode(PARAMETERS, fields(parts))


class ControlResponse(msgspec.Struct, frozen=True):
    """The answer to a command."""

    code: int
    text: str
    parameters: ControlParameters | None = None


def encode_response(response: ControlResponse) -> bytes:
    body = b"" if response.parameters is None else encode_parameters(response.parameters)
    return encode(
        RESPONSE,
        integer_element(STATUS_CODE, response.code) + encode(STATUS_TEXT, response.text.encode()) + body,
    )


def decode_response(wire: bytes) -> ControlResponse:
    start, stop = whole(wire, RESPONSE)
    code: int | None = None
    text = ""
    parameters: ControlParameters | None = None
    for kind, first, last in elements(wire, start, stop):
        if kind == STATUS_CODE:
            code = read_integer(wire, first, last)
        elif kind == STATUS_TEXT:
            text = wire[first:last].decode(errors="replace")
        elif kind == PARAMETERS:
            parameters = decode_parameters(encode(PARAMETERS, wire[first:last]))
    if code is None:
        raise DecodeError("a response without a status code")
    return ControlResponse(code, text, parameters)


def fields(values: Iterable[tuple[int, int | bytes]]) -> bytes:
    """Numbers and bytes, one element each."""
    return b"".join(
        encode(kind, value) if isinstance(value, bytes) else integer_element(kind, value) for kind, value in values
    )


def _name(wire: bytes, start: int, stop: int) -> Name:
    boundaries_within(wire, start, stop)
    return wire[start:stop]
