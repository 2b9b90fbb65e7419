"""Columns: whole batches are judged and decoded exactly as single messages are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.protocols.relay.columns import MESSAGE_SCHEMA, decode_messages
from syncline.protocols.relay.rules.messages import judge_message
from syncline.protocols.relay.wire.messages import NetworkMessage, encode
from tests.relays import topic_of

Vectors = Callable[[str], list[dict[str, Any]]]
NEWS = topic_of("news")
NOW = 1_794_700_100_000_000


def by_rows(raws: Sequence[bytes | None], topics: Sequence[str], now: int) -> list[dict[str, Any]]:
    """The same, one by one."""
    rows = []
    for raw, topic in zip(raws, topics, strict=True):
        row: dict[str, Any] = dict.fromkeys(MESSAGE_SCHEMA.names)
        if raw is not None:
            message, verdict = judge_message(topic, raw, now)
            row |= {"outcome": verdict.outcome.value, "reason": verdict.reason.value if verdict.reason else None}
            if message is not None:
                row |= {"version": raw[3], "tag": message.tag, "prompt": message.prompt}
                row |= {"timestamp": message.timestamp, "ttl": message.ttl, "message": message.message.decode()}
        rows.append(row)
    return rows


def by_columns(raws: Sequence[bytes | None], topics: Sequence[str], now: int, kind: Any = None) -> list[dict[str, Any]]:
    times = pa.array([now] * len(raws), pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    found = decode_messages(pa.array(raws, kind or pa.binary()), pa.array(topics, pa.string()), times)
    assert found.schema.equals(MESSAGE_SCHEMA)
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def test_every_vector_gives_the_same_row_in_a_batch_and_alone(vectors: Vectors) -> None:
    raws: list[bytes | None] = [bytes.fromhex(each["hex"]) for each in vectors("relay") if "hex" in each]
    raws.append(None)
    topics = [NEWS] * len(raws)
    together = by_columns(raws, topics, NOW)
    assert together == by_rows(raws, topics, NOW)
    assert [by_columns([raw], [NEWS], NOW)[0] for raw in raws] == together


messages = st.builds(
    NetworkMessage,
    tag=st.sampled_from([0, 1, 255, 256, 1_108, 2**32 - 1]),
    prompt=st.booleans(),
    timestamp=st.one_of(st.integers(NOW // 1_000 - 200_000, NOW // 1_000 + 100_000), st.integers(0, 2**64 - 1)),
    ttl=st.one_of(st.integers(0, 400), st.integers(86_399, 86_402), st.integers(0, 2**64 - 1)),
    message=st.text(max_size=20).map(lambda text: text.encode("utf-8", "ignore")),
)
raw_bytes = st.one_of(
    messages.map(encode),
    st.tuples(messages.map(encode), st.integers(0, 50), st.integers(0, 255)).map(
        lambda found: found[0][: found[1]] + bytes([found[2]]) + found[0][found[1] + 1 :]
    ),
    st.binary(max_size=40),
    st.just(b"irn\x02" + bytes(27)),
    st.none(),
)


@settings(max_examples=300)
@given(st.lists(st.tuples(raw_bytes, st.sampled_from([NEWS, NEWS, NEWS.upper(), "", NEWS + "\n"])), max_size=12))
def test_batches_and_single_messages_agree(rows: list[tuple[bytes | None, str]]) -> None:
    raws, topics = [raw for raw, _ in rows], [topic for _, topic in rows]
    assert by_columns(raws, topics, NOW) == by_rows(raws, topics, NOW)
    assert by_columns(raws, topics, NOW, pa.large_binary()) == by_rows(raws, topics, NOW)


def test_a_slice_of_a_larger_array_is_read_from_where_it_starts() -> None:
    raws = [
        encode(NetworkMessage(tag=n, prompt=False, timestamp=NOW // 1_000, ttl=60, message=b"x" * n)) for n in range(9)
    ]
    whole = pa.array(raws, pa.binary())
    topics, times = pa.array([NEWS] * 9), pa.array([NOW] * 9, pa.int64())
    part = decode_messages(whole[3:7], topics[3:7], times[3:7])
    assert part["tag"].to_pylist() == [3, 4, 5, 6]
    assert part["message"].to_pylist() == ["xxx", "xxxx", "xxxxx", "xxxxxx"]


def test_an_empty_batch_has_the_same_columns() -> None:
    found = decode_messages(pa.array([], pa.binary()), pa.array([], pa.string()), pa.array([], pa.int64()))
    assert (found.num_rows, found.schema) == (0, MESSAGE_SCHEMA)
