"""What a client may ask a node to publish: the fields of a request, and what they mean to a publisher session."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec
from msgspec import UNSET

from syncline.core.errors import ConflictError, NotFoundError, UsageError
from syncline.protocols.sdsp.session import Draft, PublisherSession
from syncline.protocols.sdsp.wire import ObjectKind


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /api/v1/publish/sdsp`. `put` creates the object, or updates it if it is there."""

    do: Literal["put", "create", "update", "delta", "replace", "freeze"] = "put"
    uid: str = ""
    topic: str = ""
    data: Any = UNSET  # of kind binary: base64
    kind: ObjectKind | None = None
    delta: Any = UNSET
    alg: str = ""
    meta: Any = UNSET
    frame: Any = UNSET  # instead of all these, a frame made by the caller; as text, its exact bytes are kept
    expect_serial: int | None = None  # publish only if this is the newest serial (-1: if there is none)


def request_of(fields: Mapping[str, Any]) -> Request:
    try:
        return msgspec.convert(fields, Request)
    except msgspec.ValidationError as error:
        raise UsageError(str(error), hint="see docs/sdsp.md") from None


def step_of(session: PublisherSession, wanted: Request) -> Callable[[], Draft | None]:
    """What a request asks of the publisher session."""
    if wanted.do == "freeze":
        return lambda: session.freeze(meta=wanted.meta)
    if wanted.do == "delta":
        if wanted.delta is UNSET or not wanted.alg:
            raise UsageError("a delta takes `delta` and `alg`")
        delta = _bytes(wanted.delta) if wanted.kind is ObjectKind.BINARY else wanted.delta
        return lambda: session.apply_delta(delta, wanted.alg, meta=wanted.meta)
    if wanted.data is UNSET:
        raise UsageError(f"{wanted.do} takes `data`")
    there = session.state
    if wanted.do == "update" and there is None:
        raise NotFoundError("there is no such object to update", hint="create it", about=session.uid)
    if wanted.do == "create" and there is not None:
        raise ConflictError("this object has been published before", hint="use update", about=session.uid)
    value = _bytes(wanted.data) if wanted.kind is ObjectKind.BINARY else wanted.data
    if there is None:
        return lambda: session.create(value, wanted.kind, meta=wanted.meta)
    if wanted.do == "replace" or (wanted.kind is not None and wanted.kind is not there.kind):
        return lambda: session.replace(value, wanted.kind, meta=wanted.meta)
    return lambda: session.update(value, meta=wanted.meta)


def _bytes(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise UsageError("data and deltas of binary objects are base64") from None
