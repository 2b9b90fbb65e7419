"""Columns of all 29 standards."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from syncline.core.keys import NodeKey
from syncline.formats.flatbuffers import Fault
from syncline.formats.flatbuffers.columns import ColumnDecoder
from syncline.protocols.sds import columns, rules, wire
from syncline.protocols.sds.catalogue import NAMES, standard
from syncline.protocols.sds.rules import signed_publish
from syncline.protocols.sds.wire import encode
from syncline.testing.flatbuffers import mutated, random_value
from tests.formats.flatbuffers.flat import alone_as_in_batch, check
from tests.protocols.sds.payloads import Payload


@pytest.mark.parametrize("name", NAMES)
def test_every_standard_decodes_to_columns_as_the_row_reader_reads_it(name: str) -> None:
    known, random = standard(name), Random(name)
    count = 12 if name == "REC" else 60
    buffers = [known.writer.encode(random_value(random, known.schema, density=random.random())) for _ in range(count)]
    assert not check(known.schema, buffers).faults.any()


def test_the_vectors_decode_to_columns(payloads: list[Payload]) -> None:
    for name in {payload.schema for payload in payloads}:
        found = check(standard(name).schema, [each.data for each in payloads if each.schema == name])
        assert not found.faults.any()


@pytest.mark.parametrize("name", ["OMM", "CDM", "OEM", "TDM", "EPM"])
def test_changed_bytes_are_refused_where_the_row_reader_refuses_them(name: str, payloads: list[Payload]) -> None:
    schema, random = standard(name).schema, Random(name)
    seeds = [payload.data for payload in payloads if payload.schema == name]
    buffers = [mutated(random, random.choice(seeds)) for _ in range(500)]
    found = check(schema, buffers)
    assert 0 < np.count_nonzero(found.faults) < 500
    alone_as_in_batch(schema, buffers[:60], found)


@pytest.mark.parametrize(("name", "count"), [("OMM", 60), ("CDM", 287), ("REC", 3), ("OEM", 5)])
def test_nested_tables_are_flattened_and_vectors_are_lists(name: str, count: int) -> None:
    assert len(ColumnDecoder(standard(name).schema).schema) == count


def test_a_conjunction_is_one_flat_row(payloads: list[Payload]) -> None:
    data = next(each.data for each in payloads if each.name == "cdm_deep_nesting_with_contact")
    row = ColumnDecoder(standard("CDM").schema).decode(pa.array([data])).batch.to_pylist()[0]
    assert row["OBJECT1__OBJECT__NORAD_CAT_ID"] == 25544
    assert row["OBJECT1__POC__ADDRESS__COUNTRY"] == "LU"
    assert row["OBJECT1__POC__ALTERNATE_NAMES"] == ["ESL", "Exämple"]
    assert [key["KEY_TYPE"] for key in row["OBJECT1__POC__KEYS"]] == ["Encryption", "Signing"]
    assert row["OBJECT2__OBJECT__NORAD_CAT_ID"] is None


KEY = NodeKey(bytes(range(32)))


def publish(schema: str, number: int, payload: dict[str, Any] | bytes) -> wire.Publish:
    data = payload if isinstance(payload, bytes) else standard(schema).writer.encode(payload)
    return signed_publish(KEY, schema=schema, payload=data, message_id=f"m{number}", now=number, ttl=number)


def test_messages_of_both_kinds_become_columns_in_their_order() -> None:
    messages = [publish("OMM", number, {"NORAD_CAT_ID": number}) for number in range(6)]
    raw = [encode(each) if number % 2 else rules.kept(rules.held(each, 0)) for number, each in enumerate(messages)]
    found = columns.message_columns(pa.array(raw))
    assert found.batch.to_pylist() == [msgspec.structs.asdict(each) for each in messages]
    assert not found.faults.any()
    only_held = columns.message_columns(pa.chunked_array([raw[0:1], raw[2:3]]))
    assert only_held.batch.column("message_id").to_pylist() == ["m0", "m2"]


def test_a_message_that_cannot_be_read_is_a_row_of_nulls() -> None:
    raw = pa.array([encode(publish("OMM", 1, {}))[:-1], None, encode(publish("OMM", 2, {}))], pa.binary())
    found = columns.message_columns(raw)
    assert found.batch.column("message_id").to_pylist() == [None, None, "m2"]
    assert columns.reasons(found.faults).to_pylist() == [Fault.LENGTH.text, Fault.LENGTH.text, None]


def test_records_are_parted_by_schema_and_bad_payloads_flagged() -> None:
    raw = [
        encode(publish("OMM", 1, {"NORAD_CAT_ID": 11})),
        encode(publish("CDM", 2, {"MESSAGE_ID": "c"})),
        encode(publish("OMM.fbs", 3, {"NORAD_CAT_ID": 12})),
        encode(publish("XYZ", 4, b"whatever")),
        encode(publish("OMM", 5, b"broken")),
        b"not a frame",
    ]
    cdm, omm = columns.record_columns(pa.array(raw))
    assert (cdm.schema, list(cdm.rows), cdm.columns.batch.column("MESSAGE_ID").to_pylist()) == ("CDM", [1], ["c"])
    assert (omm.schema, list(omm.rows)) == ("OMM", [0, 2, 4])
    assert omm.columns.batch.column("NORAD_CAT_ID").to_pylist() == [11, 12, None]
    assert columns.reasons(omm.columns.faults).to_pylist() == [None, None, Fault.LENGTH.text]


def test_columns_and_rules_agree_on_which_payloads_are_good(payloads: list[Payload]) -> None:
    random = Random(5)
    seeds = [payload.data for payload in payloads if payload.schema == "OMM"]
    for data in (mutated(random, random.choice(seeds)) for _ in range(100)):
        good = not columns.payload_columns("OMM", pa.array([data])).faults.any()
        assert good == rules_accept(data)


def rules_accept(payload: bytes) -> bool:
    raw = encode(publish("OMM", 1, payload))
    return rules.content(raw, "/spacedatanetwork/mainnet/OMM", 2, rules.Context()).verdict.accepted


def test_chosen_columns_alone_are_made() -> None:
    data = standard("OMM").writer.encode({"NORAD_CAT_ID": 5, "EPOCH": "2026-03-01T00:00:00"})
    found = columns.payload_columns("OMM.fbs", pa.array([data]), ["EPOCH", "NORAD_CAT_ID"], partial=True)
    assert found.batch.to_pylist() == [{"EPOCH": "2026-03-01T00:00:00", "NORAD_CAT_ID": 5}]


def bad_and_good() -> list[tuple[bytes | None, str, int]]:
    """Raw bytes, topic and time of arrival: a good one, and one for every way to be bad."""
    omm, now = "/spacedatanetwork/mainnet/OMM", 10**15
    good = signed_publish(KEY, schema="OMM", payload=standard("OMM").writer.encode({}), message_id="m", now=now, ttl=60)
    changed: list[dict[str, Any]] = [
        {"signature": b""}, {"message_id": ""}, {"message_id": "x" * 300}, {"timestamp": "soon"}, {"schema": "XYZ"},
        {"payload": b"?"}, {"payload": b""}, {"publisher_id": "me"}, {"publisher_id": ""}, {"ttl": 61},
        {"timestamp": ""}, {"schema": ""},
    ]  # fmt: skip
    raws: list[bytes | None] = [encode(good), encode(good)[:-1], b"", b"junk" * 10, None, encode(wire.Hello())]
    raws += [encode(msgspec.structs.replace(good, **change)) for change in changed]
    raws += [rules.kept(rules.held(good, now)), rules.kept(rules.held(good, now, with_signature=False))]
    unsigned_payload = signed_publish(KEY, schema="OMM", payload=b"?" * 30, message_id="m", now=now)
    raws += [encode(unsigned_payload), bytes(1_000_005)]
    rows = [(raw, omm, now) for raw in raws]
    rows += [(encode(good), omm, now + 61_000_000), (encode(good), omm, now - 400_000_000), (encode(good), "/x", now)]
    rows += [(rules.kept(rules.held(good, now)), omm, now + 61_000_000)]
    return rows


@pytest.mark.parametrize("memory", [None, 30_000_000])
def test_batches_are_judged_exactly_as_the_rules_judge_one(memory: int | None) -> None:
    context = rules.Context(memory=memory)
    rows = bad_and_good()
    found = columns.judged(
        pa.array([row[0] for row in rows], pa.binary()),
        pa.array([row[1] for row in rows]),
        pa.array([row[2] for row in rows], pa.int64()),
        context,
    )
    expected = [None if raw is None else rules.content(raw, topic, now, context).verdict for raw, topic, now in rows]
    assert found.outcome.to_pylist() == [each and each.outcome.value for each in expected]
    assert found.reason.to_pylist() == [each and each.reason and each.reason.value for each in expected]
    [omm] = found.parts
    assert list(omm.rows) == [index for index, each in enumerate(expected) if each and each.accepted]
    assert len(omm.rows) >= 2


def test_a_batch_of_records_by_several_schemas_is_judged_and_parted() -> None:
    rows = [publish("OMM" if number % 2 else "CDM", number, {}) for number in range(1, 9)]
    topics = [rules.topic_of("mainnet", each.schema) for each in rows]
    raw = pa.array([encode(each) for each in rows])
    found = columns.judged(raw, pa.array(topics), pa.array([10] * 8, pa.int64()), rules.Context())
    assert found.outcome.to_pylist() == ["accept"] * 8
    assert [(part.schema, list(part.rows)) for part in found.parts] == [("CDM", [1, 3, 5, 7]), ("OMM", [0, 2, 4, 6])]
