"""Frames: every message there and back, agreeing with generated code, and the bytes that are signed."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.core.errors import DecodeError
from syncline.core.limits import SDS_MESSAGE_BYTES
from syncline.core.verdict import Reason
from syncline.formats.flatbuffers import Reader
from syncline.protocols.sds import wire
from syncline.protocols.sds.wire import Filter, Held, Hello, Publish, Query, Refusal, Subscribe, decode, encode
from syncline.testing.flatbuffers import mutated, random_value
from tests.formats.flatbuffers.objects import generate, in_full, packed, unpacked

texts = st.text(st.characters(codec="utf-8"), max_size=20)
u32 = st.integers(0, 2**32 - 1)
filters: st.SearchStrategy[Filter] = st.recursive(
    st.builds(Filter, field=texts, operator=texts, value=texts),
    lambda inner: st.builds(
        Filter, field=texts, and_filters=st.lists(inner, max_size=2).map(tuple), or_filters=st.just(())
    ),
    max_leaves=4,
)
helds = st.builds(Held, schema=texts, data=st.binary(max_size=40), signature=st.binary(max_size=64), ttl=u32)
messages = st.one_of(
    st.builds(Publish, message_id=texts, timestamp=texts, ttl=u32, schema=texts, payload=st.binary(max_size=90)),
    st.builds(Subscribe, subscription_id=texts, schemas=st.lists(texts, max_size=3).map(tuple), filter=filters),
    st.builds(wire.Unsubscribe, subscription_id=texts),
    st.builds(Query, query_id=texts, schema=texts, filter=filters, order_by=texts, limit=u32, offset=u32),
    st.builds(wire.QueryResponse, query_id=texts, total_count=u32, records=st.lists(helds, max_size=3).map(tuple)),
    st.builds(
        wire.Sync, sync_id=texts, since=texts, bloom_filter=st.binary(max_size=9), bloom_hash_count=st.integers(0, 255)
    ),
    st.builds(wire.SyncResponse, sync_id=texts, records=st.lists(helds, max_size=3).map(tuple), has_more=st.booleans()),
    st.builds(wire.Ack, request_id=texts, stored=st.lists(texts, max_size=3).map(tuple)),
    st.builds(Refusal, code=st.integers(0, 65535), message=texts, request_id=texts, retry_after=u32),
    st.builds(Hello, protocol_version=texts, supported_schemas=st.lists(texts, max_size=3).map(tuple)),
    helds,
)


@settings(max_examples=500, deadline=None)
@given(messages)
def test_every_message_comes_back_as_it_was(message: wire.Message) -> None:
    assert decode(encode(message)) == message


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return generate(Path(wire.__file__).parent / "messages.fbs", tmp_path_factory.mktemp("messages"))


@pytest.mark.parametrize("identifier", wire.KINDS)
def test_generated_code_and_ours_agree_on_every_message(identifier: bytes, generated: ModuleType) -> None:
    reader, writer = wire.codec(identifier)
    schema, random = reader.schema, Random(identifier)
    for density in (0.0, 0.5, 1.0):
        value = random_value(random, schema, density=density)
        full = in_full(schema, schema.root, value)
        assert unpacked(generated, schema, writer.encode(value)) == full
        assert in_full(schema, schema.root, reader.decode(packed(generated, schema, value))) == full


def test_tables_and_fields_are_those_of_the_specification_in_their_order() -> None:
    tables = {
        name: [f"{f.name}: {f.type_text}" for f in _table(name)] for name in ("SDSPublish", "SDSQuery", "SDSError")
    }
    assert tables == {
        "SDSPublish": [
            "message_id: string", "timestamp: string", "ttl: uint", "schema: string", "payload: [ubyte]",
            "publisher_id: string", "signature: [ubyte]",
        ],
        "SDSQuery": [
            "query_id: string", "schema: string", "filter: SDSFilter", "order_by: string", "order: string",
            "limit: uint", "offset: uint", "include_signatures: bool",
        ],
        "SDSError": ["code: ushort", "message: string", "request_id: string", "retry_after: uint"],
    }  # fmt: skip


def _table(name: str) -> Any:
    identifier = next(identifier for identifier, (_, table) in wire.KINDS.items() if table == name)
    return wire.codec(identifier)[0].schema.root.fields


def test_the_protocol_has_the_name_of_the_specification() -> None:
    assert wire.PROTOCOL_ID == "/spacedatanetwork/sds-exchange/1.0.0"


def test_a_frame_is_a_little_endian_length_and_a_buffer_with_its_identifier() -> None:
    frame = encode(wire.Unsubscribe(subscription_id="s"))
    assert struct.unpack_from("<I", frame)[0] == len(frame) - 4
    assert frame[8:12] == b"SUNS"


def test_the_signed_bytes_are_the_prefix_and_six_parts_with_their_lengths() -> None:
    message = Publish(
        message_id="m", timestamp="t", ttl=60, schema="OMM", payload=b"\0\1", publisher_id="p", signature=b"x"
    )
    expected = b"sds-exchange/1.0.0\0" + b"".join(
        struct.pack("<I", len(part)) + part for part in (b"m", b"t", b"60", b"OMM", b"p", b"\0\1")
    )
    assert wire.signed_bytes(message) == expected
    assert wire.record_id(message) == hashlib.sha256(expected).digest()


def test_moving_a_byte_from_one_signed_part_to_the_next_changes_the_id() -> None:
    assert wire.record_id(Publish(message_id="ab", timestamp="c")) != wire.record_id(
        Publish(message_id="a", timestamp="bc")
    )


def test_a_frame_of_the_largest_size_is_read_and_one_byte_more_is_oversize() -> None:
    overhead = len(encode(Publish(payload=bytes(1_000)))) - 1_000 - 4
    largest = encode(Publish(payload=bytes(SDS_MESSAGE_BYTES - overhead)))
    assert len(largest) == SDS_MESSAGE_BYTES + 4
    assert isinstance(decode(largest), Publish)
    with pytest.raises(DecodeError, match="1000000 are allowed") as caught:
        decode(largest + b"\0")
    assert caught.value.reason is Reason.OVERSIZE


@pytest.mark.parametrize(
    "frame", [b"", b"\0" * 11, b"\x10\0\0\0\x0c\0\0\0$OMM\4\0\4\0\4\0\0\0", b"GET / HTTP/1.1\r\n\r\n"]
)
def test_what_is_no_message_is_malformed(frame: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(frame)
    assert caught.value.reason is Reason.MALFORMED


def test_filters_nested_deeper_than_any_frame_may_be_are_too_complex() -> None:
    nested: dict[str, Any] = {"field": "x"}
    for _ in range(30):
        nested = {"and_filters": [nested]}
    reader, writer = wire.codec(b"SQRY")
    assert reader.decode(writer.encode({"filter": nested})) == {"filter": nested}
    strict = Reader(reader.schema, depth=31)
    with pytest.raises(DecodeError) as caught:
        strict.decode(writer.encode({"filter": nested}))
    assert caught.value.reason is Reason.TOO_COMPLEX


@settings(max_examples=200, deadline=None)
@given(messages, st.integers(0, 2**32))
def test_changed_bytes_give_a_message_or_a_decode_error(message: wire.Message, seed: int) -> None:
    random, frame = Random(seed), encode(message)
    for _ in range(10):
        try:
            changed = decode(mutated(random, frame))
        except DecodeError:
            continue
        assert decode(encode(changed)) == changed
