"""Network messages: the vectors, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.core.errors import DecodeError
from syncline.core.limits import RELAY_CLOCK_SKEW, RELAY_MESSAGE_MAX
from syncline.core.record import Direction, Incoming
from syncline.core.verdict import Outcome, Reason
from syncline.protocols.relay.rules.messages import RelayJudge, judge_message
from syncline.protocols.relay.wire.messages import NetworkMessage, decode, encode

Vectors = Callable[[str], list[dict[str, Any]]]
TOPIC = "ab" * 32
NOW = 1_794_700_000_000_000  # microseconds

messages = st.builds(
    NetworkMessage,
    tag=st.integers(0, 2**32 - 1),
    prompt=st.booleans(),
    timestamp=st.integers(0, 2**64 - 1),
    ttl=st.integers(0, 2**64 - 1),
    message=st.text(max_size=80).map(lambda text: text.encode("utf-8", "ignore")),
)


def a_message(**changes: Any) -> NetworkMessage:
    fields = {"tag": 1, "prompt": False, "timestamp": NOW // 1_000, "ttl": 300, "message": b"hello"}
    return NetworkMessage(**{**fields, **changes})


def frames(vectors: Vectors) -> list[dict[str, Any]]:
    return [vector for vector in vectors("relay") if "hex" in vector]


def test_every_accepted_vector_reads_as_it_means_and_is_written_back_alike(vectors: Vectors) -> None:
    accepted = [vector for vector in frames(vectors) if vector["expect"] == "accept"]
    assert len(accepted) == 10
    for vector in accepted:
        raw, meaning = bytes.fromhex(vector["hex"]), vector["meaning"]
        message = decode(raw)
        assert message.version == meaning["version"], vector["name"]
        assert (message.tag, message.prompt) == (meaning["tag"], meaning["prompt"]), vector["name"]
        assert (message.timestamp, message.ttl) == (int(meaning["timestamp_text"]), int(meaning["ttl_text"]))
        assert message.message.decode() == meaning["message"], vector["name"]
        assert message.hash.hex() == meaning["hash"], vector["name"]
        assert encode(message) == raw, vector["name"]


def test_every_other_vector_is_refused(vectors: Vectors) -> None:
    refused = [vector for vector in frames(vectors) if vector["expect"] != "accept"]
    assert len(refused) == 10
    for vector in refused:
        with pytest.raises(DecodeError):
            decode(bytes.fromhex(vector["hex"]))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("bad_prefix", Reason.MALFORMED),
        ("bad_version_3", Reason.UNSUPPORTED_VERSION),
        ("bad_truncated_header", Reason.MALFORMED),
        ("bad_length_longer_than_message", Reason.MALFORMED),
        ("bad_length_shorter_than_message", Reason.MALFORMED),
        ("bad_utf8", Reason.MALFORMED),
        ("bad_huge_length", Reason.MALFORMED),
        ("bad_empty", Reason.MALFORMED),
        ("undefined_prompt_byte_2", Reason.INVALID_FIELD),
    ],
)
def test_a_refused_message_says_why(vectors: Vectors, name: str, reason: Reason) -> None:
    [vector] = [each for each in frames(vectors) if each["name"] == name]
    _, verdict = judge_message(TOPIC, bytes.fromhex(vector["hex"]), NOW)
    assert (verdict.outcome, verdict.reason) == (Outcome.REJECT, reason)


@given(messages)
def test_what_is_written_is_read_back(message: NetworkMessage) -> None:
    raw = encode(message)
    assert decode(raw) == message
    assert len(raw) == (30 if message.tag <= 255 else 33) + len(message.message)


@given(messages, st.data())
def test_every_shortened_message_is_refused(message: NetworkMessage, data: st.DataObject) -> None:
    raw = encode(message)
    with pytest.raises(DecodeError):
        decode(raw[: data.draw(st.integers(0, len(raw) - 1))])


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_read_or_refused_and_nothing_else(raw: bytes) -> None:
    for candidate in (raw, b"irn\x01" + raw, b"irn\x02" + raw):
        try:
            assert encode(decode(candidate))[-8:] == candidate[-8:]
        except DecodeError:
            pass


def test_a_small_tag_in_a_version_2_message_is_read() -> None:
    raw = encode(a_message(tag=256))
    assert decode(raw.replace((256).to_bytes(4, "big"), (7).to_bytes(4, "big"))).tag == 7


@pytest.mark.parametrize(
    ("topic", "changes", "outcome", "reason"),
    [
        (TOPIC, {}, Outcome.ACCEPT, None),
        (TOPIC, {"ttl": 86_400}, Outcome.ACCEPT, None),
        (TOPIC, {"ttl": 86_401}, Outcome.REJECT, Reason.INVALID_FIELD),
        (TOPIC, {"ttl": 0}, Outcome.REJECT, Reason.INVALID_FIELD),
        (TOPIC.upper(), {}, Outcome.REJECT, Reason.INVALID_TOPIC),
        (TOPIC[:-2], {}, Outcome.REJECT, Reason.INVALID_TOPIC),
        (TOPIC + "\n", {}, Outcome.REJECT, Reason.INVALID_TOPIC),
        (TOPIC, {"timestamp": (NOW + RELAY_CLOCK_SKEW) // 1_000}, Outcome.ACCEPT, None),
        (TOPIC, {"timestamp": (NOW + RELAY_CLOCK_SKEW) // 1_000 + 1}, Outcome.REJECT, Reason.FUTURE_TIMESTAMP),
        (TOPIC, {"timestamp": 2**64 - 1}, Outcome.REJECT, Reason.FUTURE_TIMESTAMP),
        (TOPIC, {"timestamp": NOW // 1_000 - 300_000}, Outcome.IGNORE, Reason.EXPIRED),
        (TOPIC, {"timestamp": NOW // 1_000 - 299_999}, Outcome.ACCEPT, None),
        (TOPIC, {"message": b"x" * RELAY_MESSAGE_MAX}, Outcome.ACCEPT, None),
        (TOPIC, {"message": b"x" * (RELAY_MESSAGE_MAX + 1)}, Outcome.REJECT, Reason.OVERSIZE),
        (TOPIC, {"message": b"x" * (RELAY_MESSAGE_MAX + 99)}, Outcome.REJECT, Reason.OVERSIZE),
    ],
)
def test_a_message_is_judged_by_topic_size_and_time(
    topic: str, changes: dict[str, Any], outcome: Outcome, reason: Reason | None
) -> None:
    _, verdict = judge_message(topic, encode(a_message(**changes)), NOW)
    assert (verdict.outcome, verdict.reason) == (outcome, reason)


def incoming(raw: bytes, **changes: Any) -> Incoming:
    fields = {"protocol": "relay", "topic": TOPIC, "raw": raw, "peer": "did:key:z6Mk", "received_at": NOW}
    return Incoming(**{**fields, **changes})


def test_a_record_names_topic_and_hash_and_carries_one_expiry() -> None:
    message = a_message(tag=1_108)
    arrival = RelayJudge()(incoming(encode(message)))
    assert arrival.id == bytes.fromhex(TOPIC) + message.hash
    assert (arrival.kind, arrival.publisher, arrival.peer) == ("message", "did:key:z6Mk", "did:key:z6Mk")
    assert (arrival.published_at, arrival.expires_at) == (NOW, NOW + 300_000_000)


def test_what_a_server_hands_over_has_no_known_publisher() -> None:
    arrival = RelayJudge()(incoming(encode(a_message()), peer="12D3KooW"))
    assert (arrival.publisher, arrival.peer) == ("", "12D3KooW")


def test_what_the_node_sends_itself_is_its_own() -> None:
    arrival = RelayJudge()(incoming(encode(a_message()), peer="12D3KooW", direction=Direction.OUT))
    assert arrival.publisher == "12D3KooW"


def test_times_beyond_what_a_record_holds_are_left_out(vectors: Vectors) -> None:
    [vector] = [each for each in frames(vectors) if each["name"] == "frame_max_uint64_timestamp_and_ttl"]
    arrival = RelayJudge()(incoming(bytes.fromhex(vector["hex"])))
    assert (arrival.published_at, arrival.expires_at, arrival.reason) == (None, None, Reason.INVALID_FIELD)
