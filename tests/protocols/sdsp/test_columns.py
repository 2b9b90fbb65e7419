"""Batches of raw frames as Arrow columns."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from syncline.protocols.sdsp.columns import FRAME_SCHEMA, decode_frames
from syncline.protocols.sdsp.wire import Checksum, ObjectKind, delta_frame, encode, freeze_frame, full_frame
from tests.protocols.sdsp.kit import json_values

NOTHING = dict.fromkeys(FRAME_SCHEMA.names)


def rows(*raws: bytes | None) -> list[dict[str, object]]:
    batch = decode_frames(pa.array(raws, pa.binary()))
    assert batch.schema.equals(FRAME_SCHEMA)
    found: list[dict[str, object]] = batch.to_pylist()
    return found


def test_every_attribute_has_its_column() -> None:
    full = encode(full_frame("u", 3, {"a": [1, "é"]}, meta={"m": None}))
    full_row = NOTHING | {
        "uid": "u",
        "serial": 3,
        "ver": 0,
        "kind": "full",
        "data": '{"a":[1,"é"]}',
        "meta": '{"m":null}',
        "frozen": False,
        "object_kind": "json",
        "payload_bytes": 14,
        "frame_bytes": len(full),
    }
    delta = encode(delta_frame("u", 4, 1, "jp", [], checksum=Checksum("aa", "MD5"), frozen=True))
    delta_row = NOTHING | {
        "uid": "u",
        "serial": 4,
        "ver": 1,
        "kind": "delta",
        "alg": "jp",
        "delta": "[]",
        "checksum_val": "aa",
        "checksum_type": "MD5",
        "frozen": True,
        "payload_bytes": 2,
        "frame_bytes": len(delta),
    }
    freeze = encode(freeze_frame("u", 5, 2))
    freeze_row = NOTHING | {
        "uid": "u",
        "serial": 5,
        "ver": 2,
        "kind": "freeze",
        "frozen": True,
        "payload_bytes": 0,
        "frame_bytes": len(freeze),
    }
    assert rows(full, delta, freeze) == [full_row, delta_row, freeze_row]


def test_binaries_stay_binary() -> None:
    full = encode(full_frame("u", 0, b"\x00\xff", ObjectKind.BINARY))
    delta = encode(delta_frame("u", 1, 1, "X-vcdiff", b"\xd6\xc3"))
    first, second = rows(full, delta)
    assert (first["data"], first["data_binary"], first["object_kind"]) == (None, b"\x00\xff", "binary")
    assert (second["delta"], second["delta_binary"], second["payload_bytes"]) == (None, b"\xd6\xc3", 2)


def test_null_is_a_value_and_an_absent_one_is_not() -> None:
    first, second = rows(encode(full_frame("u", 0, None)), encode(full_frame("u", 1, None, uri="mem://1")))
    assert (first["data"], first["data_uri"]) == ("null", None)
    assert (second["data"], second["data_uri"], second["kind"]) == (None, "mem://1", "full")


def test_unknown_attributes_are_kept_as_json() -> None:
    (row,) = rows(b'{"uid":"u","serial":0,"data":1,"X-a":[1],"historyUri":"x:y"}')
    assert (row["extras"], row["history_uri"]) == ('{"X-a":[1]}', "x:y")


def test_bad_rows_carry_their_reason_and_spoil_nothing() -> None:
    good = encode(full_frame("u", 0, 1))
    found = rows(good, b"{", None, b'{"uid":"u","serial":0}', good)
    assert [row["error"] for row in found] == [None, "malformed", "malformed", "invalid_field", None]
    assert found[0] == found[4]
    assert found[1] == NOTHING | {"frame_bytes": 1, "error": "malformed"}


def test_an_empty_batch_has_the_schema_too() -> None:
    assert rows() == []


def test_the_largest_serial_fits() -> None:
    assert rows(encode(full_frame("u", 2**63 - 1, 1)))[0]["serial"] == 2**63 - 1


@given(
    st.lists(
        st.one_of(st.none(), st.binary(max_size=30), json_values.map(lambda v: encode(full_frame("u", 0, v)))),
        max_size=9,
    )
)
def test_each_row_alone_is_each_row_in_the_batch(raws: list[bytes | None]) -> None:
    assert rows(*raws) == [row for raw in raws for row in rows(raw)]
