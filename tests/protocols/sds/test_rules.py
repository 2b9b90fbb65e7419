"""The verdict on every kind of bad message, in the order the checks are made, and what a good one becomes."""

from __future__ import annotations

import hashlib
from typing import Any

import base58
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.core.errors import DecodeError
from syncline.core.keys import NodeKey
from syncline.core.limits import HOUR, SECOND
from syncline.core.record import Arrival, Direction, Incoming
from syncline.core.verdict import Outcome, Reason
from syncline.protocols.sds import rules, wire
from syncline.protocols.sds.catalogue import standard
from syncline.protocols.sds.rules import Context, judge, signed_publish
from syncline.protocols.sds.wire import Publish, encode

NOW = 1_772_323_200_000_000
KEY = NodeKey(bytes(range(32)))
OTHER = NodeKey(bytes(32))
CONTEXT = Context(network="testnet", memory=24 * HOUR)
TOPIC = "/spacedatanetwork/testnet/OMM"
PAYLOAD = standard("OMM").writer.encode({"OBJECT_NAME": "ISS (ZARYA)", "NORAD_CAT_ID": 25544})


def publish(**changes: Any) -> Publish:
    given: dict[str, Any] = {"schema": "OMM", "payload": PAYLOAD, "message_id": "m-1", "now": NOW, **changes}
    return signed_publish(given.pop("key", KEY), **given)


def arrived(raw: bytes, *, now: int = NOW, topic: str = TOPIC, context: Context = CONTEXT) -> Arrival:
    return judge(Incoming(protocol="sds", topic=topic, raw=raw, peer="neighbour", received_at=now), context)


def verdict(raw: bytes, **changes: Any) -> tuple[str, str | None]:
    arrival = arrived(raw, **changes)
    return arrival.verdict.value, arrival.reason.value if arrival.reason else None


def altered(message: Publish, **changes: Any) -> bytes:
    """A message changed after it was signed."""
    return encode(msgspec.structs.replace(message, **changes))


def test_a_good_message_becomes_a_record_by_its_author() -> None:
    message = publish(ttl=60)
    arrival = arrived(encode(message))
    assert arrival == Arrival(
        protocol="sds",
        topic=TOPIC,
        kind="publish",
        id=hashlib.sha256(wire.signed_bytes(message)).digest(),
        received_at=NOW,
        verdict=Outcome.ACCEPT,
        direction=Direction.IN,
        key="25544",
        publisher=KEY.peer_id,
        peer="neighbour",
        published_at=NOW,
        expires_at=NOW + 24 * HOUR,
        raw=encode(message),
    )


def test_a_schema_may_be_named_by_its_file() -> None:
    assert verdict(encode(publish(schema="OMM.fbs"))) == ("accept", None)


@pytest.mark.parametrize("field", ["message_id", "timestamp", "ttl", "schema", "payload", "publisher_id"])
def test_a_change_to_anything_signed_is_a_forgery(field: str) -> None:
    changes: dict[str, Any] = {
        "message_id": "m-2",
        "timestamp": "2026-03-01T00:00:00.000001Z",
        "ttl": 1_000,
        "schema": "OMM.fbs",
        "payload": standard("OMM").writer.encode({"NORAD_CAT_ID": 1}),
        "publisher_id": OTHER.peer_id,
    }
    assert verdict(altered(publish(), **{field: changes[field]})) == ("reject", "invalid_signature")


@pytest.mark.parametrize("signature", [b"", bytes(63), bytes(64), bytes(65), OTHER.sign(wire.signed_bytes(publish()))])
def test_a_signature_that_is_not_the_publishers_is_refused(signature: bytes) -> None:
    assert verdict(altered(publish(), signature=signature)) == ("reject", "invalid_signature")


def test_an_unknown_schema_is_refused() -> None:
    assert verdict(encode(publish(schema="XYZ"))) == ("reject", "unknown_schema")


def test_a_schema_this_node_does_not_take_is_unknown() -> None:
    context = msgspec.structs.replace(CONTEXT, schemas=frozenset({"CDM"}))
    assert verdict(encode(publish()), context=context) == ("reject", "unknown_schema")


@pytest.mark.parametrize("topic", ["/spacedatanetwork/testnet/CDM", "/spacedatanetwork/mainnet/OMM", "", "OMM"])
def test_a_message_on_the_wrong_topic_is_refused(topic: str) -> None:
    assert verdict(encode(publish()), topic=topic) == ("reject", "invalid_topic")


def test_clocks_may_differ_by_five_minutes_and_no_more() -> None:
    early = encode(publish(now=NOW + 300 * SECOND))
    assert verdict(early) == ("accept", None)
    assert verdict(early, now=NOW - 1) == ("reject", "future_timestamp")


def test_an_expired_message_is_ignored_without_its_bytes() -> None:
    raw = encode(publish(ttl=60))
    assert verdict(raw, now=NOW + 60 * SECOND - 1) == ("accept", None)
    late = arrived(raw, now=NOW + 60 * SECOND)
    assert (late.verdict, late.reason, late.raw) == (Outcome.IGNORE, Reason.EXPIRED, None)


def test_without_a_ttl_a_message_does_not_expire() -> None:
    assert verdict(encode(publish(ttl=0)), now=NOW + 23 * HOUR) == ("accept", None)


def test_a_replay_from_before_the_memory_of_ids_is_ignored() -> None:
    raw = encode(publish())
    accepted = arrived(raw)
    assert accepted.expires_at is not None
    assert verdict(raw, now=accepted.expires_at - 1) == ("accept", None)  # the journal still knows the id
    assert verdict(raw, now=accepted.expires_at) == ("ignore", "too_old")  # and here it need not


def test_the_lake_judges_without_a_memory() -> None:
    assert verdict(encode(publish()), now=NOW + 10_000 * HOUR, context=Context(network="testnet")) == ("accept", None)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01T00:00:00Z", "2" * 65, "1772323200"])
def test_a_timestamp_that_is_no_time_is_refused(text: str) -> None:
    assert verdict(altered(publish(), timestamp=text)) == ("reject", "invalid_field")


@pytest.mark.parametrize("text", ["", "x" * 257])
def test_a_message_id_must_be_there_and_short(text: str) -> None:
    assert verdict(altered(publish(), message_id=text)) == ("reject", "invalid_field")


@pytest.mark.parametrize(
    "text", ["", "me", "0OIl", "1" * 65, "12D3KooW", "日本", base58.b58encode(b"\0\x24" + bytes(10)).decode()]
)
def test_a_publisher_that_is_no_peer_id_is_refused(text: str) -> None:
    assert verdict(altered(publish(), publisher_id=text)) == ("reject", "invalid_publisher")


@pytest.mark.parametrize(
    "raw",
    [
        b"\x12\x20" + bytes(32),  # the hash of an RSA key
        b"\0\x25\x08\x02\x12\x21" + bytes(33),  # a Secp256k1 key
        b"\0\x04\x08\x00\x12\x00",
    ],
)
def test_a_publisher_with_another_kind_of_key_cannot_have_signed(raw: bytes) -> None:
    text = base58.b58encode(raw).decode()
    assert verdict(altered(publish(), publisher_id=text)) == ("reject", "invalid_signature")


def test_a_payload_of_another_schema_is_refused() -> None:
    cdm = standard("CDM").writer.encode({"MESSAGE_ID": "x"})
    assert verdict(encode(publish(payload=cdm))) == ("reject", "invalid_payload")


def test_a_payload_cut_short_is_refused() -> None:
    assert verdict(encode(publish(payload=PAYLOAD[:-1]))) == ("reject", "invalid_payload")


def test_a_payload_nested_beyond_belief_is_an_invalid_payload() -> None:
    aliased = bytearray(standard("CDM").writer.encode({"OBJECT1": {"OBJECT": {"PAYLOADS": [{}] * 40}}}))
    topic = "/spacedatanetwork/testnet/CDM"
    assert verdict(encode(publish(schema="CDM", payload=bytes(aliased))), topic=topic) == ("accept", None)
    aliased[0:4] = (len(aliased) - 4 + 1).to_bytes(4, "little")
    assert verdict(encode(publish(schema="CDM", payload=bytes(aliased))), topic=topic) == ("reject", "invalid_payload")


@pytest.mark.parametrize("cut", [0, 3, 11, 40, 200])
def test_a_frame_cut_short_is_malformed(cut: int) -> None:
    arrival = arrived(encode(publish())[:cut])
    assert (arrival.verdict, arrival.reason, arrival.kind) == (Outcome.REJECT, Reason.MALFORMED, "unknown")
    assert arrival.id == hashlib.sha256(encode(publish())[:cut]).digest()


def test_a_frame_larger_than_a_megabyte_is_oversize() -> None:
    assert verdict(bytes(1_000_005)) == ("reject", "oversize")


def test_a_frame_too_large_for_the_journal_is_kept_without_its_bytes() -> None:
    assert arrived(bytes(1_048_577)).raw is None


def test_a_message_from_before_1970_makes_a_record_without_such_times() -> None:
    arrival = arrived(altered(publish(), timestamp="1957-10-04T19:28:34Z"))
    assert (arrival.reason, arrival.published_at, arrival.expires_at) == (Reason.TOO_OLD, None, None)


def test_a_message_that_is_no_record_is_malformed() -> None:
    assert verdict(encode(wire.Hello(protocol_version="1.0.0"))) == ("reject", "malformed")


def test_the_first_failing_check_decides() -> None:
    """Everything is wrong with this message; mending it step by step shows the order of the checks."""
    wrong = Publish(
        message_id="m", timestamp="2026-03-02T00:00:00Z", ttl=1, schema="XYZ", payload=b"?", publisher_id="me"
    )
    steps: list[tuple[dict[str, Any], str]] = [
        ({}, "unknown_schema"),
        ({"schema": "OMM"}, "future_timestamp"),
        ({"timestamp": "2026-03-01T00:00:00Z"}, "invalid_publisher"),
        ({"publisher_id": KEY.peer_id}, "invalid_signature"),
    ]
    for changes, reason in steps:
        wrong = msgspec.structs.replace(wrong, **changes)
        assert verdict(encode(wrong)) == ("reject", reason)
    signed = msgspec.structs.replace(wrong, signature=KEY.sign(wire.signed_bytes(wrong)))
    assert verdict(encode(signed)) == ("reject", "invalid_payload")


def test_a_record_from_an_answer_is_judged_as_what_it_was_but_not_by_its_ttl() -> None:
    message = publish(ttl=60)
    raw = rules.kept(rules.held(message, NOW + SECOND))
    arrival = arrived(raw, now=NOW + HOUR)
    assert (arrival.verdict, arrival.kind, arrival.id) == (Outcome.ACCEPT, "record", wire.record_id(message))
    assert rules.published(raw) == message


def test_a_record_without_its_signature_proves_nothing() -> None:
    raw = rules.kept(rules.held(publish(), NOW, with_signature=False))
    assert verdict(raw) == ("reject", "invalid_signature")


def test_a_record_without_the_fields_its_signature_covers_is_refused() -> None:
    bare = msgspec.structs.replace(rules.held(publish(), NOW), message_id="", timestamp="")
    assert verdict(rules.kept(bare)) == ("reject", "invalid_field")


def test_the_same_message_has_the_same_id_however_it_came() -> None:
    message = publish()
    assert arrived(encode(message)).id == arrived(rules.kept(rules.held(message, NOW))).id


@pytest.mark.parametrize(
    ("schema", "payload", "key"),
    [
        ("OMM", {"NORAD_CAT_ID": 5}, "5"),
        ("OMM", {"OBJECT_ID": "x"}, ""),
        ("CSM", {"OBJECT_1": {"NORAD_CAT_ID": 7}}, "7"),
        ("CSM", {}, ""),
        ("CDM", {"MESSAGE_ID": "m" * 256}, "m" * 256),
        ("CDM", {"MESSAGE_ID": "m" * 257}, ""),
        ("TIM", {"TIME_SYSTEM": "UTC"}, ""),
    ],
)
def test_a_record_is_keyed_by_what_it_is_about(schema: str, payload: dict[str, Any], key: str) -> None:
    assert rules.key_of(schema, payload) == key


def test_every_key_field_is_a_field_of_its_schema() -> None:
    for schema, path in rules.KEY_FIELDS.items():
        assert standard(schema).schema.at(path)


@given(st.text(max_size=80) | st.datetimes().map(str))
def test_any_text_is_a_time_within_ten_thousand_years_or_a_decode_error(text: str) -> None:
    try:
        found = rules.parse_time(text, "since")
    except DecodeError:
        return
    assert -(10**17) < found < 10**18


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-01T00:00:00.000Z", NOW),
        ("2026-03-01T00:00:00.123456", NOW + 123_456),
        ("2026-03-01T01:00:00+01:00", NOW),
        ("2026-03-01", NOW),
        ("0001-01-01T00:00:00+23:59", -62_135_683_140_000_000),
    ],
)
def test_times_are_read_in_any_form_of_iso_8601(text: str, expected: int) -> None:
    assert rules.parse_time(text, "since") == expected
