"""SDSP frames that break one requirement each, and deltas that do not fit or unpack to too much."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from syncline.core import limits
from syncline.core.errors import DecodeError
from syncline.core.record import Arrival, Incoming
from syncline.core.verdict import Reason
from syncline.protocols.sdsp.content import content_of
from syncline.protocols.sdsp.deltas import Deltas, vcdiff
from syncline.protocols.sdsp.deltas.base import Budget
from syncline.protocols.sdsp.rules import Known, judge
from syncline.protocols.sdsp.wire import ObjectKind, decode, encode, object_from_bytes
from syncline.testing.badinputs.case import Bad

R = Reason
NOW = 1_772_323_200_000_000
FULL = {"uid": "object", "serial": 4, "data": {"a": [1, 2, 3], "t": "text"}}
DELTA = {"uid": "object", "serial": 5, "ver": 1, "alg": "jp", "delta": [{"op": "add", "path": "/b", "value": 1}]}
FREEZE = {"uid": "object", "serial": 6, "ver": 2, "frozen": True}
GOOD = (FULL, DELTA, FREEZE)


def arrival(raw: bytes, known: Known | None = None) -> Arrival:
    incoming = Incoming(protocol="sdsp", topic="objects", raw=raw, peer="peer-sdsp", received_at=NOW)
    return judge(incoming, lambda frame: known or Known())


def _bad(name: str, raw: bytes | str | dict[str, Any], reason: Reason, known: Known | None = None) -> Bad:
    data = raw if isinstance(raw, bytes) else raw.encode() if isinstance(raw, str) else json.dumps(raw).encode()
    alone = data if known is None else None
    return Bad(protocol="sdsp", name=name, reason=reason, judged=lambda: arrival(data, known), raw=alone)


def cases() -> Iterator[Bad]:
    yield from _texts()
    yield from _fields()
    yield from _combinations()
    yield from _contexts()
    yield from _deltas()
    yield from _objects()


def _texts() -> Iterator[Bad]:
    good = json.dumps(FULL)
    for name, raw, reason in (
        ("nothing", b"", R.MALFORMED),
        ("a space", b" ", R.MALFORMED),
        ("cut in the middle", good[: len(good) // 2], R.MALFORMED),
        ("something after the end", good + "x", R.MALFORMED),
        ("two frames at once", good + good, R.MALFORMED),
        ("a list", "[]", R.MALFORMED),
        ("a number", "7", R.MALFORMED),
        ("a text", '"frame"', R.MALFORMED),
        ("null", "null", R.MALFORMED),
        ("true", "true", R.MALFORMED),
        ("not UTF-8", b'{"uid": "\xff", "serial": 0, "data": 1}', R.MALFORMED),
        ("a lone surrogate", b'{"uid": "\\ud800", "serial": 0, "data": 1}', R.MALFORMED),
        ("UTF-16", good.encode("utf-16"), R.MALFORMED),
        ("single quotes", good.replace('"', "'"), R.MALFORMED),
        ("not-a-number", '{"uid": "object", "serial": 0, "data": NaN}', R.MALFORMED),
        ("infinity", '{"uid": "object", "serial": 0, "data": Infinity}', R.MALFORMED),
        ("a comment", '{"uid": "object", /* */ "serial": 0, "data": 1}', R.MALFORMED),
        ("a comma at the end", '{"uid": "object", "serial": 0, "data": 1,}', R.MALFORMED),
        ("a control character in text", '{"uid": "object", "serial": 0, "data": "\x01"}', R.MALFORMED),
        ("gzip", b"\x1f\x8b\x08\0" + bytes(20), R.MALFORMED),
        ("protobuf", b"\x0a\x06object\x10\x04", R.MALFORMED),
        ("too deep: lists", json.dumps({**FULL, "data": 0})[:-2] + "[" * 200 + "]" * 200 + "}", R.TOO_COMPLEX),
        ("too deep: objects", '{"uid":"o","serial":0,"data":' + '{"a":' * 200 + "1" + "}" * 201, R.TOO_COMPLEX),
        ("too deep: meta", '{"uid":"o","serial":0,"data":1,"meta":' + "[" * 200 + "]" * 200 + "}", R.TOO_COMPLEX),
        ("too deep: an extra", '{"uid":"o","serial":0,"data":1,"x":' + "[" * 200 + "]" * 200 + "}", R.TOO_COMPLEX),
        ("deep enough to overflow a stack", '{"uid":"o","serial":0,"data":' + "[" * 100_000, R.TOO_COMPLEX),
        ("oversize", b'{"uid":"o","serial":0,"data":"' + b"x" * limits.SDSP_FRAME_MAX + b'"}', R.OVERSIZE),
    ):
        yield _bad(name, raw, reason)


def _fields() -> Iterator[Bad]:
    wrong: dict[str, tuple[Any, ...]] = {
        "uid": ("", 7, None, [], "a\nb", "a\0b", "x" * 2_000),
        "serial": (-1, 1.5, "4", None, True, 2**63, 2**70, []),
        "ver": (-1, 0.5, "1", True, 2**63),
        "alg": (7, [], "zz", "X-", "x-lower", "JP", "X-" + "a" * limits.SDSP_ALG_MAX),
        "dataUri": (7, [], "u" * (limits.SDSP_URI_MAX + 1)),
        "historyUri": (7, {}, "u" * (limits.SDSP_URI_MAX + 1)),
        "frozen": (1, "true", []),
        "checksum": (7, "abc", [], {"alg": "sha256"}),
        "X-kind": (7, "picture"),
        "X-encoding": (7, "hex"),
    }
    for field, values in wrong.items():
        base = FREEZE if field == "frozen" else DELTA if field in ("ver", "alg") else FULL
        base = {key: value for key, value in base.items() if not (field == "dataUri" and key == "data")}
        for value in values:
            yield _bad(f"{field} = {json.dumps(value)[:40]}", {**base, field: value}, R.INVALID_FIELD)
    for missing in ("uid", "serial"):
        yield _bad(f"without {missing}", {k: v for k, v in FULL.items() if k != missing}, R.INVALID_FIELD)


def _combinations() -> Iterator[Bad]:
    for name, frame in (
        ("delta and data", {**DELTA, "data": 1}),
        ("delta and data, as a full frame has it", {"uid": "o", "serial": 1, "alg": "jp", "delta": [], "data": 1}),
        ("delta and dataUri", {**DELTA, "dataUri": "https://example.org/x"}),
        ("neither delta nor data nor frozen", {"uid": "object", "serial": 4}),
        ("delta without alg", {k: v for k, v in DELTA.items() if k != "alg"}),
        ("delta with ver 0", {**DELTA, "ver": 0}),
        ("delta without ver", {k: v for k, v in DELTA.items() if k != "ver"}),
        ("ver beyond serial", {**DELTA, "ver": 6}),
        ("freeze with ver 0", {**FREEZE, "ver": 0}),
        ("freeze with data", {"uid": "object", "serial": 4, "data": 1, "frozen": True}),
        ("full frame with ver", {**FULL, "ver": 1}),
        ("full frame by uri with ver", {"uid": "o", "serial": 1, "dataUri": "https://example.org/x", "ver": 1}),
        ("base64 of nothing", {"uid": "object", "serial": 6, "ver": 2, "frozen": True, "X-encoding": "base64"}),
        ("base64 that is not", {**FULL, "data": "!!", "X-kind": "binary", "X-encoding": "base64"}),
        ("base64 of a list", {**FULL, "data": [], "X-kind": "binary", "X-encoding": "base64"}),
        ("base64 without padding", {**FULL, "data": "YWI", "X-kind": "binary", "X-encoding": "base64"}),
        ("text that is an object", {**FULL, "data": {}, "X-kind": "text"}),
        ("binary that is text", {**FULL, "data": "x", "X-kind": "binary"}),
        ("text in base64", {**FULL, "data": "YWI=", "X-kind": "text", "X-encoding": "base64"}),
        ("json in base64", {**FULL, "data": "YWI=", "X-kind": "json", "X-encoding": "base64"}),
        ("frozen false and nothing else", {"uid": "object", "serial": 4, "frozen": False}),
    ):
        yield _bad(name, frame, R.INVALID_FIELD)


def _contexts() -> Iterator[Bad]:
    kept = content_of(decode(json.dumps({**FULL, "data": "another"}).encode()))
    jump = {**FULL, "serial": 5 + limits.SDSP_SERIAL_JUMP + 1}
    yield _bad("an object of somebody else's", FULL, R.PUBLISHER_MISMATCH, Known(publisher="eve", owner="alice"))
    yield _bad("an object of somebody's, by nobody", FULL, R.PUBLISHER_MISMATCH, Known(owner="alice"))
    yield _bad("the same serial with other content", FULL, R.FORK, Known(same_id=kept, newest=4))
    yield _bad("after the freeze", {**FULL, "serial": 7}, R.FROZEN, Known(frozen_at=6, newest=6))
    yield _bad("a delta after the freeze", {**DELTA, "serial": 7, "ver": 3}, R.FROZEN, Known(frozen_at=6, newest=6))
    yield _bad("a serial a million ahead", jump, R.SERIAL_JUMP, Known(newest=5))
    yield _bad("the last serial there is", {**FULL, "serial": 2**63 - 1}, R.SERIAL_JUMP, Known(newest=5))


def _bytes(delta: Any) -> bytes:
    return delta if isinstance(delta, bytes) else json.dumps(delta).encode()


def _delta(name: str, alg: str, old: Any, delta: Any, reason: Reason) -> Bad:
    def judged() -> Arrival:
        frame = arrival(encode(decode(json.dumps(DELTA).encode())))
        try:
            Deltas.installed()[alg].apply(old, delta, Budget())
        except DecodeError as error:
            return frame.judged(error.verdict)
        return frame

    return Bad(protocol="sdsp", name=f"{alg}: {name}", reason=reason, judged=judged, raw=_bytes(delta))


def _deltas() -> Iterator[Bad]:
    old = {"a": [1, 2, 3], "t": "text", "o": {"p": 1}}
    for name, patch, reason in (
        ("not a list", {"op": "add"}, R.MALFORMED),
        ("an operation that is no object", [7], R.MALFORMED),
        ("no op", [{"path": "/a"}], R.MALFORMED),
        ("an unknown op", [{"op": "steal", "path": "/a"}], R.MALFORMED),
        ("no path", [{"op": "remove"}], R.MALFORMED),
        ("a path that is no text", [{"op": "remove", "path": 7}], R.MALFORMED),
        ("a path without a slash", [{"op": "remove", "path": "a"}], R.MALFORMED),
        ("a path that ends nowhere", [{"op": "remove", "path": "/nowhere"}], R.INVALID_PAYLOAD),
        ("a path through a number", [{"op": "add", "path": "/o/p/q", "value": 1}], R.INVALID_PAYLOAD),
        ("add without value", [{"op": "add", "path": "/b"}], R.MALFORMED),
        ("replace of what is not there", [{"op": "replace", "path": "/b", "value": 1}], R.INVALID_PAYLOAD),
        ("an index beyond the end", [{"op": "add", "path": "/a/9", "value": 1}], R.INVALID_PAYLOAD),
        ("an index with a leading zero", [{"op": "remove", "path": "/a/01"}], R.INVALID_PAYLOAD),
        ("a negative index", [{"op": "remove", "path": "/a/-1"}], R.INVALID_PAYLOAD),
        ("removal of the place behind the end", [{"op": "remove", "path": "/a/-"}], R.INVALID_PAYLOAD),
        ("a bad escape", [{"op": "add", "path": "/~2", "value": 1}], R.MALFORMED),
        ("move without from", [{"op": "move", "path": "/b"}], R.MALFORMED),
        ("move into its own child", [{"op": "move", "from": "/o", "path": "/o/p"}], R.MALFORMED),
        ("move from nowhere", [{"op": "move", "from": "/x", "path": "/b"}], R.INVALID_PAYLOAD),
        ("copy from nowhere", [{"op": "copy", "from": "/x", "path": "/b"}], R.INVALID_PAYLOAD),
        ("a test that fails", [{"op": "test", "path": "/t", "value": "other"}], R.INVALID_PAYLOAD),
        ("a test of another type", [{"op": "test", "path": "/a/0", "value": True}], R.INVALID_PAYLOAD),
        ("removal of the whole", [{"op": "remove", "path": ""}], R.MALFORMED),
    ):
        yield _delta(name, "jp", old, patch, reason)
    bomb = [{"op": "copy", "from": "", "path": "/o/p"}] * 64
    yield _delta("a copy bomb", "jp", old, bomb, R.TOO_COMPLEX)
    yield _delta(
        "too many operations",
        "jp",
        old,
        [{"op": "test", "path": "/t", "value": "text"}] * (limits.SDSP_PATCH_OPS + 1),
        R.TOO_COMPLEX,
    )
    for name, delta, reason in (
        ("of an object", {}, R.MALFORMED),
        ("an unknown sign", "x3", R.MALFORMED),
        ("keeps more than there is", "=99", R.INVALID_PAYLOAD),
        ("keeps less than there is", "=1", R.INVALID_PAYLOAD),
        ("drops more than there is", "-99", R.INVALID_PAYLOAD),
        ("a number that is none", "=x", R.MALFORMED),
        ("a negative number", "=-1", R.MALFORMED),
        ("a bad escape", "=4\t+%zz", R.MALFORMED),
        ("half an escape", "=4\t+%", R.MALFORMED),
    ):
        yield _delta(name, "md", "text", delta, reason)
    good = vcdiff.encode(b"old" * 20, b"new" * 20)
    for name, vcd, reason in (
        ("nothing", b"", R.MALFORMED),
        ("another magic", b"VCX" + good[3:], R.MALFORMED),
        ("cut short", good[: len(good) // 2], R.MALFORMED),
        ("cut by one", good[:-1], R.MALFORMED),
        ("a byte more", good + b"\0", R.MALFORMED),
        ("a secondary compressor", good[:4] + b"\x01" + good[5:], R.MALFORMED),
        ("a giant window", good[:5] + b"\x01\xff\xff\xff\xff\x7f" + good[6:], R.INVALID_PAYLOAD),
    ):
        yield _delta(name, "X-vcdiff", b"old" * 20, vcd, reason)
    yield _delta("text instead of bytes", "X-vcdiff", b"old", "text", R.MALFORMED)


def _objects() -> Iterator[Bad]:
    def stored(name: str, data: bytes, kind: ObjectKind, reason: Reason) -> Bad:
        def judged() -> Arrival:
            frame = arrival(json.dumps(FULL).encode())
            try:
                object_from_bytes(data, kind)
            except DecodeError as error:
                return frame.judged(error.verdict)
            return frame

        return Bad(protocol="sdsp", name=f"stored object: {name}", reason=reason, judged=judged, raw=data)

    yield stored("json that is not", b"{", ObjectKind.JSON, R.INVALID_PAYLOAD)
    yield stored("text that is not UTF-8", b"\xff", ObjectKind.TEXT, R.INVALID_PAYLOAD)
    yield stored("too deep", b"[" * 300 + b"]" * 300, ObjectKind.JSON, R.TOO_COMPLEX)
    yield stored("too large", bytes(limits.SDSP_OBJECT_MAX + 1), ObjectKind.BINARY, R.OVERSIZE)
