"""Raw frames of a batch → Arrow columns, the shape of the table `sdsp_frames`. One bad row never spoils the others: it
gets a reason instead of values. JSON payloads become JSON text, binary ones stay binary; which rows go into which table
is decided in the lake.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pyarrow as pa
from msgspec import UNSET

from syncline.core.errors import DecodeError
from syncline.core.verdict import Reason
from syncline.protocols.sdsp.wire import Frame, Kind, decode

FRAME_SCHEMA: Final = pa.schema(
    [
        pa.field("uid", pa.string()),
        pa.field("serial", pa.int64()),
        pa.field("ver", pa.int64()),
        pa.field("kind", pa.string()),  # full, delta or freeze
        pa.field("alg", pa.string()),
        pa.field("delta", pa.string()),  # JSON text
        pa.field("delta_binary", pa.binary()),
        pa.field("data", pa.string()),  # JSON text
        pa.field("data_binary", pa.binary()),
        pa.field("data_uri", pa.string()),
        pa.field("history_uri", pa.string()),
        pa.field("checksum_val", pa.string()),
        pa.field("checksum_type", pa.string()),
        pa.field("meta", pa.string()),  # JSON text
        pa.field("frozen", pa.bool_()),
        pa.field("object_kind", pa.string()),  # of full frames: json, text or binary
        pa.field("extras", pa.string()),  # unknown root attributes, as a JSON object
        pa.field("payload_bytes", pa.int64()),  # of delta or data, as JSON text or binary
        pa.field("frame_bytes", pa.int64()),
        pa.field("error", pa.string()),  # why the row is no frame; then all others but frame_bytes are null
    ]
)
_WIDTH: Final = len(FRAME_SCHEMA)
_ENCODER: Final = msgspec.json.Encoder()


def decode_frames(raws: pa.Array) -> pa.RecordBatch:
    """One row for each of `raws` (binary), in their order. A null, like anything that is no frame, gives an error."""
    rows = [_row(raw) for raw in raws.to_pylist()]
    columns = zip(*rows, strict=True) if rows else [()] * _WIDTH
    arrays = [pa.array(values, field.type) for values, field in zip(columns, FRAME_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=FRAME_SCHEMA)


def _row(raw: bytes | None) -> tuple[Any, ...]:
    if raw is None:
        return _bad(0, Reason.MALFORMED)
    try:
        return _values(decode(raw), len(raw))
    except DecodeError as error:
        return _bad(len(raw), error.reason)


def _bad(size: int, reason: Reason) -> tuple[Any, ...]:
    return (*(None,) * (_WIDTH - 2), size, reason.value)


def _values(frame: Frame, size: int) -> tuple[Any, ...]:
    kind = frame.kind
    delta, delta_binary = _payload(frame.delta)
    data, data_binary = _payload(frame.data)
    checksum = frame.checksum
    payload = next((p for p in (delta, delta_binary, data, data_binary) if p is not None), b"")
    return (
        frame.uid,
        frame.serial,
        frame.ver,
        kind.value,
        frame.alg or None,
        delta,
        delta_binary,
        data,
        data_binary,
        frame.data_uri or None,
        frame.history_uri or None,
        None if checksum is None else checksum.val,
        None if checksum is None else checksum.type,
        None if frame.meta is UNSET else _ENCODER.encode(frame.meta),
        frame.frozen,
        frame.holds.value if kind is Kind.FULL else None,
        _ENCODER.encode(frame.extras) if frame.extras else None,
        len(payload),
        size,
        None,
    )


def _payload(value: Any) -> tuple[bytes | None, bytes | None]:
    """JSON text (as UTF-8) or binary."""
    if value is UNSET:
        return None, None
    return (None, value) if isinstance(value, bytes) else (_ENCODER.encode(value), None)
