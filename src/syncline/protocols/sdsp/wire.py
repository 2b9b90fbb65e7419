"""SDSP frames: bytes ⇄ `Frame`. Responsible for what a frame may look like on its own; whether it follows from the
frames before it is decided in rules and rebuild, and how bytes travel is the transport's business.

Decisions where JSON leaves room: of duplicate keys the last one counts (as in ECMAScript); NaN, numbers outside the
range of a double, lone surrogates and broken UTF-8 are refused; integers are exact up to 4,300 digits; `1` and `1.0`
stay what they are; `null` is a legal object, delta and meta, so presence is told by key, while null for any other
optional attribute means that it is absent.
"""

from __future__ import annotations

import base64
import binascii
import re
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from syncline.core import limits
from syncline.core.errors import DecodeError
from syncline.core.verdict import Reason

RESERVED_ALGORITHMS: Final = frozenset({"jp", "md"})
CUSTOM_PREFIX: Final = "X-"  # SDSP: any other algorithm's code starts with X-


class Kind(StrEnum):
    """What a frame does to the object."""

    FULL = "full"
    DELTA = "delta"
    FREEZE = "freeze"


class ObjectKind(StrEnum):
    """What the object is. Travels as `X-kind` on full frames; absent means json."""

    JSON = "json"
    TEXT = "text"
    BINARY = "binary"


Uid = Annotated[str, Meta(min_length=1, max_length=limits.TEXT_MAX)]
Serial = Annotated[int, Meta(ge=0, le=limits.SDSP_SERIAL_MAX)]
Uri = Annotated[str, Meta(max_length=limits.SDSP_URI_MAX)]


class Checksum(msgspec.Struct, frozen=True):
    """How the object looks after the frame, as its publisher sees it: `type` is `[canon/]HASH`, see checksums."""

    val: str
    type: str


class Frame(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    rename={
        "data_uri": "dataUri",
        "history_uri": "historyUri",
        "object_kind": "X-kind",
        "encoding": "X-encoding",
        "extras": "\ue000extras",  # no attribute of the wire: a name that nobody would choose
    },
):
    """One SDSP data frame. `decode` and the makers below only give valid ones.

    `delta`, `data` and `meta` are UNSET when absent. A payload (`delta` or `data`; a frame never has both) is `bytes`
    if and only if `encoding` is "base64": JSON cannot carry it otherwise. Empty text means absent for `alg`, `data_uri`
    and `history_uri`. `extras` are unknown root attributes, kept and sent on as they came.
    """

    uid: Uid
    serial: Serial
    ver: Serial = 0
    alg: str = ""
    delta: Any = UNSET
    data: Any = UNSET
    data_uri: Uri = ""
    history_uri: Uri = ""
    checksum: Checksum | None = None
    meta: Any = UNSET
    frozen: bool = False
    object_kind: ObjectKind | UnsetType = UNSET
    encoding: Literal["base64"] | UnsetType = UNSET
    extras: dict[str, Any] = {}

    @property
    def kind(self) -> Kind:
        if self.data is not UNSET or self.data_uri:
            return Kind.FULL
        return Kind.FREEZE if self.delta is UNSET else Kind.DELTA

    @property
    def base(self) -> int:
        """The serial of the full frame this one builds on."""
        return self.serial - self.ver

    @property
    def holds(self) -> ObjectKind:
        """The kind of object a full frame carries or points at."""
        if self.object_kind is not UNSET:
            return self.object_kind
        return ObjectKind.BINARY if self.encoding is not UNSET else ObjectKind.JSON

    @property
    def unresolved(self) -> bool:
        """Whether the object is elsewhere: it has to be loaded from `data_uri` first."""
        return bool(self.data_uri) and self.data is UNSET  # SDSP: where both are given, data wins


def full_frame(
    uid: str,
    serial: int,
    value: Any,
    kind: ObjectKind = ObjectKind.JSON,
    *,
    uri: str = "",
    checksum: Checksum | None = None,
    meta: Any = UNSET,
) -> Frame:
    """A frame that carries the whole object; with `uri`, one that only says where it is (`value` is then unused)."""
    return Frame(
        uid=uid,
        serial=serial,
        data=UNSET if uri else value,
        data_uri=uri,
        object_kind=UNSET if kind is ObjectKind.JSON else kind,
        encoding="base64" if kind is ObjectKind.BINARY and not uri else UNSET,
        checksum=checksum,
        meta=meta,
    )


def delta_frame(
    uid: str,
    serial: int,
    ver: int,
    alg: str,
    delta: Any,
    *,
    checksum: Checksum | None = None,
    meta: Any = UNSET,
    frozen: bool = False,
) -> Frame:
    """A frame that changes the object of `serial - 1`."""
    return Frame(
        uid=uid,
        serial=serial,
        ver=ver,
        alg=alg,
        delta=delta,
        encoding="base64" if isinstance(delta, bytes) else UNSET,
        checksum=checksum,
        meta=meta,
        frozen=frozen,
    )


def freeze_frame(uid: str, serial: int, ver: int, *, meta: Any = UNSET) -> Frame:
    """A frame that ends the object's life of change."""
    return Frame(uid=uid, serial=serial, ver=ver, frozen=True, meta=meta)


def decode(raw: bytes, *, max_bytes: int = limits.SDSP_FRAME_MAX) -> Frame:
    """The frame in `raw`. Raises DecodeError, with the path of the bad value, for whatever is not a valid frame."""
    if len(raw) > max_bytes:
        raise DecodeError(f"a frame of {len(raw)} bytes, {max_bytes} are allowed", reason=Reason.OVERSIZE)
    try:
        frame = _frame_in(raw)
    except msgspec.ValidationError as error:
        raise _invalid(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"not JSON: {error}") from None
    except RecursionError:
        raise _too_deep() from None
    if _may_be_deep(raw):
        _check_depth([frame.delta, frame.data, frame.meta, *frame.extras.values()])
    if frame.encoding is not UNSET:
        frame = _with_bytes(frame)
    _check_combination(frame)
    return frame


def encode(frame: Frame) -> bytes:
    """The frame as JSON, attributes in a fixed order: the inverse of `decode`.

    Raises DecodeError for values JSON cannot hold (text with lone surrogates). Not-a-number must have been refused
    before: it would become null.
    """
    try:
        if not frame.extras:
            return _ENCODER.encode(frame)
        known = msgspec.to_builtins(
            msgspec.structs.replace(frame, extras={}), builtin_types=(bytes,), enc_hook=_unencodable
        )
        return _ENCODER.encode(known | frame.extras)
    except (UnicodeEncodeError, TypeError, RecursionError) as error:
        raise DecodeError(f"cannot be written as JSON: {error}", reason=Reason.INVALID_FIELD) from None


def check(frame: Frame) -> None:
    """Refuse a frame made here that `decode` would refuse, with the path of the culprit. Does not walk its payload."""
    try:
        msgspec.convert(msgspec.structs.asdict(frame), _Checked)
    except msgspec.ValidationError as error:
        raise _invalid(error) from None
    _check_combination(frame)


def resolve(frame: Frame, loaded: bytes) -> Frame:
    """A full frame that pointed at its object, now with the object, whose bytes were loaded from `data_uri`.

    A json object is stored as JSON text, a text as UTF-8, a binary as it is. Raises DecodeError if it is not that.
    """
    value = object_from_bytes(loaded, frame.holds)
    encoding: Literal["base64"] | UnsetType = "base64" if isinstance(value, bytes) else UNSET
    return msgspec.structs.replace(frame, data=value, encoding=encoding)


def object_from_bytes(stored: bytes, kind: ObjectKind) -> Any:
    """An object as object storage keeps it, read back. Raises DecodeError."""
    if len(stored) > limits.SDSP_OBJECT_MAX:
        raise DecodeError(f"an object of {len(stored)} bytes", reason=Reason.OVERSIZE)
    try:
        if kind is ObjectKind.BINARY:
            return stored
        if kind is ObjectKind.TEXT:
            return stored.decode()
        value = msgspec.json.decode(stored)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"the stored object is not {kind}: {error}", reason=Reason.INVALID_PAYLOAD) from None
    except RecursionError:
        raise _too_deep() from None
    if _may_be_deep(stored):
        _check_depth([value])
    return value


def object_to_bytes(value: Any, kind: ObjectKind) -> bytes:
    """An object as object storage keeps it."""
    if kind is ObjectKind.BINARY:
        assert isinstance(value, bytes)
        return value
    return value.encode() if kind is ObjectKind.TEXT else _ENCODER.encode(value)


def add_history_uri(raw: bytes, uri: str) -> bytes:
    """The same frame with `historyUri` set to `uri`; every other attribute keeps its exact bytes."""
    attributes = _RAW_DECODER.decode(raw)
    attributes["historyUri"] = msgspec.Raw(_ENCODER.encode(uri))
    return _ENCODER.encode(attributes)


def depth_of(value: Any, most: int = limits.SDSP_DEPTH_MAX) -> int:
    """How many containers are nested in `value`; counting stops one above `most`."""
    level = [value] if isinstance(value, (dict, list)) else []
    depth = 0
    while level and depth <= most:
        depth += 1
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) is dict or type(inner) is list
        ]
    return depth


_DECODER: Final = msgspec.json.Decoder(Frame)
_ANY_DECODER: Final = msgspec.json.Decoder(dict[str, Any])
_RAW_DECODER: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENCODER: Final = msgspec.json.Encoder()
_EXTRAS: Final = "\ue000extras"
_KNOWN: Final = frozenset(Frame.__struct_encode_fields__) - {_EXTRAS}
_UNUSUAL: Final = re.compile("^Object contains unknown field|got `null`|\ue000")  # refused by the fast way only
_NULLABLE: Final = frozenset({"data", "delta", "meta"})
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_PATH: Final = re.compile(r"(?P<message>.*?)(?: - at `(?P<path>.*)`)?", re.DOTALL)


def _frame_in(raw: bytes) -> Frame:
    """What the bytes say, by the fast way if they hold nothing unusual."""
    try:
        frame = _DECODER.decode(raw)
    except msgspec.ValidationError as error:
        if not _UNUSUAL.search(str(error)):
            raise
    else:
        if not frame.extras:  # else somebody did choose that name
            return frame
    attributes = _ANY_DECODER.decode(raw)
    extras = {name: attributes.pop(name) for name in list(attributes) if name not in _KNOWN}
    # SDSP: an empty ver is 0; writers that spell out what is missing mean the same elsewhere
    attributes = {name: value for name, value in attributes.items() if value is not None or name in _NULLABLE}
    return msgspec.convert(attributes | {_EXTRAS: extras}, Frame)


def _with_bytes(frame: Frame) -> Frame:
    """The payload as the bytes that its base64 text stands for."""
    if frame.data is UNSET and frame.delta is UNSET:
        raise _forbidden("X-encoding without data or delta", "$.X-encoding")
    name = "delta" if frame.data is UNSET else "data"
    text = getattr(frame, name)
    try:
        if not isinstance(text, str):
            raise ValueError("not text")
        payload = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error) as error:
        raise _forbidden(f"X-encoding says base64, but it is not: {error}", f"$.{name}") from None
    return msgspec.structs.replace(frame, **{name: payload})


class _Checked(msgspec.Struct):
    """The attributes whose values are bounded, by the names they have here."""

    uid: Uid
    serial: Serial
    ver: Serial
    data_uri: Uri
    history_uri: Uri


def _check_combination(frame: Frame) -> None:
    """What the protocol says about attributes together, and what is quicker to check here than while decoding."""
    if not frame.uid.isprintable() and _CONTROL.search(frame.uid):
        raise _forbidden("uid has no control characters", "$.uid")
    if frame.ver > frame.serial:
        raise _forbidden("ver is at most serial", "$.ver")
    if frame.data is not UNSET or frame.data_uri:
        if frame.delta is not UNSET:  # SDSP: it is never valid to provide both a delta and data or dataUri
            raise _forbidden("delta together with data or dataUri", "$.delta")
        _check_full(frame)
        return
    if frame.delta is not UNSET:
        if frame.alg not in RESERVED_ALGORITHMS:
            _check_algorithm(frame.alg)
    elif not frame.frozen:
        raise _forbidden("a frame needs delta, data, dataUri or frozen", "$")
    if frame.ver == 0:  # SDSP: the first delta, or freeze, applied to a published object is version 1
        raise _forbidden("ver of a delta or freeze is at least 1", "$.ver")


def _check_algorithm(alg: str) -> None:
    if not alg:  # SDSP: a data frame with a delta must contain the attribute alg
        raise _forbidden("a delta needs alg", "$.alg")
    if not alg.startswith(CUSTOM_PREFIX) or not len(CUSTOM_PREFIX) < len(alg) <= limits.SDSP_ALG_MAX:
        raise _forbidden(f"algorithm {alg[:80]!r} is neither reserved nor X-…", "$.alg")


def _check_full(frame: Frame) -> None:
    if frame.frozen:  # SDSP: the freeze frame ends the object's versions, a full frame starts them
        raise _forbidden("frozen together with data or dataUri", "$.frozen")
    if frame.ver != 0:  # SDSP: ver is reset to zero whenever a new complete object is published
        raise _forbidden("ver of a full frame is 0", "$.ver")
    if frame.data is UNSET:
        return
    expected = {ObjectKind.TEXT: str, ObjectKind.BINARY: bytes}.get(frame.holds)
    if (expected is not None and not isinstance(frame.data, expected)) or (
        expected is None and isinstance(frame.data, bytes)
    ):
        raise _forbidden(f"data is not the {frame.holds} object that X-kind and X-encoding announce", "$.data")


def _may_be_deep(raw: bytes) -> bool:
    """Whether the text could be nested too deep: counting brackets is cheaper than walking, and nearly always enough."""
    return len(raw) > 2 * limits.SDSP_DEPTH_MAX and raw.count(b"[") + raw.count(b"{") > limits.SDSP_DEPTH_MAX


def _check_depth(values: list[Any]) -> None:
    if depth_of(values, limits.SDSP_DEPTH_MAX) > limits.SDSP_DEPTH_MAX:  # the list stands for the frame itself
        raise _too_deep()


def _invalid(error: msgspec.ValidationError) -> DecodeError:
    match = _PATH.fullmatch(str(error))
    assert match is not None
    path = match["path"] or "$"
    reason = Reason.MALFORMED if path == "$" and match["message"].startswith("Expected") else Reason.INVALID_FIELD
    return DecodeError(match["message"], reason=reason, about=path)


def _forbidden(message: str, path: str) -> DecodeError:
    return DecodeError(message, reason=Reason.INVALID_FIELD, about=path)


def _too_deep() -> DecodeError:
    return DecodeError(f"nested more than {limits.SDSP_DEPTH_MAX} deep", reason=Reason.TOO_COMPLEX)


def _unencodable(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} is not a JSON value")
