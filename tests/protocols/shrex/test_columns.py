"""Rows read in batches equal rows read alone, whatever they hold."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from syncline.core.keys import NodeKey
from syncline.core.verdict import Reason
from syncline.formats.protobuf import bytes_field
from syncline.formats.pubsub import SIGNING_PREFIX, compose, decode_rpc
from syncline.protocols.shrex.columns import MESSAGE_SCHEMA, decode_messages
from syncline.protocols.shrex.rules.notifications import EMPTY_ROOT, judge_message
from syncline.protocols.shrex.wire.notification import TOPIC, Notification, encode

KEYS = [NodeKey(bytes(31) + bytes((number,))) for number in range(3)]
HEIGHTS = [1, 127, 128, 16_383, 16_384, 2**21, 7_000_000, 2**35, 2**42, 2**49, 2**56, 2**63, 2**64 - 1]


def message(height: int, data_hash: bytes, *, key: NodeKey = KEYS[0], topic: str = TOPIC, seqno: int = 5) -> bytes:
    return compose(key, topic, encode(Notification(height, data_hash)), seqno)


def signed(body: bytes, key: NodeKey = KEYS[0]) -> bytes:
    """Any bytes with a proper signature behind them."""
    return body + b"\x2a\x40" + key.sign(SIGNING_PREFIX + body)


def body(data: bytes, *, topic: bytes = TOPIC.encode(), seqno: bytes = bytes(7) + b"\x05") -> bytes:
    author = bytes.fromhex("002408011220") + KEYS[0].public
    return bytes_field(1, author) + bytes_field(2, data) + bytes_field(3, seqno) + bytes_field(4, topic)


def decoded(raws: list[bytes | None], topics: list[str | None] | None = None) -> list[dict[str, Any]]:
    names = topics if topics is not None else [TOPIC] * len(raws)
    batch = decode_messages(pa.array(raws, pa.binary()), pa.array(names, pa.string()))
    assert batch.schema == MESSAGE_SCHEMA
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows


def alone(raw: bytes, topic: str = TOPIC) -> tuple[str, str | None, int | None, bytes | None]:
    _, notification, verdict = judge_message(raw, topic)
    fits = notification is not None and len(notification.data_hash) == 32
    return (
        verdict.outcome.value,
        verdict.reason.value if verdict.reason else None,
        notification.height if fits and notification else None,
        notification.data_hash if fits and notification else None,
    )


def assert_like_alone(raws: list[bytes], topics: list[str] | None = None) -> None:
    names = topics or [TOPIC] * len(raws)
    for row, raw, topic in zip(decoded(list(raws), list(names)), raws, names, strict=True):
        assert (row["outcome"], row["reason"], row["height"], row["data_hash"]) == alone(raw, topic)


def test_every_height_from_1_to_2_64_minus_1_is_read() -> None:
    random = Random(1)
    hashes = [random.randbytes(32) for _ in HEIGHTS]
    rows = decoded([message(height, data) for height, data in zip(HEIGHTS, hashes, strict=True)])
    assert [row["height"] for row in rows] == HEIGHTS
    assert [row["data_hash"] for row in rows] == hashes
    assert {row["outcome"] for row in rows} == {"accept"}
    assert {row["author"] for row in rows} == {KEYS[0].public}
    assert {row["seqno"] for row in rows} == {5}


def test_messages_of_js_with_their_key_field_and_short_numbers_are_read(
    vectors: Callable[[str], list[dict[str, Any]]],
) -> None:
    raws, topics = [], []
    for vector in vectors("shrex"):
        for meaning in vector["meaning"].get("publish", ()):
            raws.append(decode_rpc(bytes.fromhex(vector["hex"])).messages[0])
            topics.append(meaning["topic"])
    assert_like_alone(raws, topics)
    [row] = decoded([signed(body(encode(Notification(5, b"h" * 32)), seqno=b"\x01\x02"))])
    assert (row["seqno"], row["outcome"]) == (0x0102, "accept")


def odd_ones() -> list[bytes]:
    good = message(7_000_000, b"\x11" * 32)
    payload = encode(Notification(7_000_000, b"\x11" * 32))
    return [
        good[:-1] + bytes((good[-1] ^ 1,)),  # signature
        good[:60] + bytes((good[60] ^ 1,)) + good[61:],  # hash
        good[:-30],
        good + b"\x00",
        good + bytes_field(6, bytes.fromhex("08011220") + KEYS[1].public),
        good + bytes_field(6, bytes.fromhex("08011220") + KEYS[0].public),
        b"",
        b"\x0a",
        message(5, bytes(32)),
        message(5, bytes(8) + b"\x01" * 24),  # begins like zeros, and is fine
        message(5, EMPTY_ROOT),
        message(5, EMPTY_ROOT[:8] + b"\x01" * 24),
        message(5, b"\x11" * 31),
        message(5, b"\x11" * 33),
        message(7_000_000, b"\x11" * 32, topic="/another"),
        signed(body(b"\x08\x81\x00\x12\x20" + b"\x11" * 32)),  # overlong varint
        signed(body(b"\x08\x00\x12\x20" + b"\x11" * 32)),  # height 0, written
        signed(body(b"\x12\x20" + b"\x11" * 32 + b"\x08\x05")),  # the other way round
        signed(body(payload + b"\x1a\x03abc")),  # an unknown field
        signed(body(b"\x08\x01" + payload)),  # height twice
        signed(body(b"\x08" + b"\xff" * 9 + b"\x02\x12\x20" + b"\x11" * 32)),  # beyond 64 bits
        signed(body(b"\x08\x05\x12\x7f" + b"\x11" * 32)),  # a hash that ends after the message
        signed(body(payload, seqno=b"")),
        signed(body(payload, seqno=bytes(9))),
        signed(body(payload, topic=b"")),
        signed(body(payload) + b"\x78\x01"),
        message(5, b"\x11" * 32, key=KEYS[2]),
    ]


def test_every_odd_row_gets_the_verdict_it_would_get_alone() -> None:
    assert_like_alone(odd_ones())
    outcomes = {row["reason"] for row in decoded(list(odd_ones()))}
    assert {Reason.INVALID_SIGNATURE, Reason.INVALID_FIELD, Reason.INVALID_TOPIC, Reason.MALFORMED, None} <= outcomes


@pytest.mark.parametrize("seed", range(5))
def test_bad_rows_never_spoil_good_ones_in_any_order_or_slice(seed: int) -> None:
    random = Random(seed)
    good = [message(random.choice(HEIGHTS), random.randbytes(32), key=random.choice(KEYS)) for _ in range(30)]
    raws: list[bytes | None] = [*good, *odd_ones(), None, None]
    random.shuffle(raws)
    topics: list[str | None] = [random.choice([TOPIC, TOPIC, TOPIC, "/another", None]) for _ in raws]
    whole = pa.array(raws, pa.binary())
    expected = decoded(raws, topics)
    for large in (whole, whole.cast(pa.large_binary())):
        start, stop = random.randrange(10), random.randrange(40, len(raws))
        part = decode_messages(large.slice(start, stop - start), pa.array(topics[start:stop], pa.string()))
        assert part.to_pylist() == expected[start:stop]
    for row, raw, topic in zip(expected, raws, topics, strict=True):
        if raw is None:
            assert set(row.values()) == {None}
        else:
            assert (row["outcome"], row["reason"], row["height"], row["data_hash"]) == alone(raw, topic or "")


def test_two_thousand_changed_messages_are_each_judged_as_alone() -> None:
    random = Random(7)
    bases = [message(random.choice(HEIGHTS), random.randbytes(32)) for _ in range(20)]
    raws = []
    for _ in range(2_000):
        raw = bytearray(random.choice(bases))
        for _ in range(random.randrange(1, 4)):
            raw[random.randrange(len(raw))] = random.randrange(256)
        raws.append(bytes(raw))
    assert_like_alone(raws)


def test_an_empty_batch_is_an_empty_batch() -> None:
    assert decode_messages(pa.array([], pa.binary()), pa.array([], pa.string())).num_rows == 0
    assert decoded([None]) == [dict.fromkeys(MESSAGE_SCHEMA.names)]


def test_without_signatures_only_those_are_not_judged() -> None:
    good = message(5, b"\x11" * 32)
    forged = good[:-1] + bytes((good[-1] ^ 1,))
    raws, topics = pa.array([good, forged, b"x"], pa.binary()), pa.array([TOPIC] * 3)
    found = decode_messages(raws, topics, signatures=False).to_pylist()
    assert [row["outcome"] for row in found] == ["accept", "accept", "reject"]
    assert found[1]["height"] == 5
