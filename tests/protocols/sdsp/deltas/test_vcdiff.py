"""VCDIFF: round trips, the whole default code table, and a reader that trusts nothing."""

from __future__ import annotations

import random
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.core.errors import DeltaError
from syncline.core.verdict import Reason
from syncline.protocols.sdsp.deltas.base import Budget
from syncline.protocols.sdsp.deltas.vcdiff import Vcdiff, decode, encode
from syncline.protocols.sdsp.deltas.vcdiff.codes import ADD, CODES, COPY, NOOP, RUN, varint
from syncline.protocols.sdsp.deltas.vcdiff.matches import common_prefix, common_suffix
from tests.protocols.sdsp.kit import json_values

HEADER = bytes.fromhex("d6c3c40000")


def window(
    instructions: bytes,
    *,
    data: bytes = b"",
    addresses: bytes = b"",
    size: int,
    segment: bytes = b"\0",
    tail: bytes = b"",
) -> bytes:
    """One window, written by hand."""
    lengths = varint(len(data)) + varint(len(instructions)) + varint(len(addresses))
    body = varint(size) + b"\0" + lengths + data + instructions + addresses + tail
    return segment + varint(len(body)) + body


def refused(source: bytes, delta: bytes, budget: Budget | None = None) -> Reason:
    with pytest.raises(DeltaError) as error:
        decode(source, delta, budget or Budget())
    return error.value.reason


def test_integers_are_written_base_128_most_significant_first() -> None:
    assert varint(0) == b"\x00"
    assert varint(127) == b"\x7f"
    assert varint(123456789) == bytes.fromhex("baef9a15")  # RFC 3284, section 2


def test_the_default_code_table_is_that_of_the_rfc() -> None:
    nothing = (NOOP, 0, 0)
    assert CODES[0] == ((RUN, 0, 0), nothing)
    assert CODES[1] == ((ADD, 0, 0), nothing)
    assert CODES[18] == ((ADD, 17, 0), nothing)
    assert CODES[19] == ((COPY, 0, 0), nothing)
    assert CODES[34] == ((COPY, 18, 0), nothing)
    assert CODES[162] == ((COPY, 18, 8), nothing)
    assert CODES[163] == ((ADD, 1, 0), (COPY, 4, 0))
    assert CODES[234] == ((ADD, 4, 0), (COPY, 6, 5))
    assert CODES[235] == ((ADD, 1, 0), (COPY, 4, 6))
    assert CODES[246] == ((ADD, 4, 0), (COPY, 4, 8))
    assert CODES[247] == ((COPY, 4, 0), (ADD, 1, 0))
    assert CODES[255] == ((COPY, 4, 8), (ADD, 1, 0))


def test_a_small_edit_of_a_large_binary_is_a_small_delta() -> None:
    old = random.Random(1).randbytes(200_000)
    new = old[:1_000] + b"edit" + old[1_000:150_000] + old[150_004:]
    delta = encode(old, new)
    assert len(delta) < 60
    assert decode(old, delta, Budget()) == new


def test_moved_repeated_and_constant_parts_cost_little() -> None:
    rng = random.Random(2)
    old = rng.randbytes(3_000)
    new = old[2_000:] + old[:1_000] + b"\0" * 5_000 + old[500:1_500] * 4 + rng.randbytes(10)
    delta = encode(old, new)
    assert len(delta) < 100
    assert decode(old, delta, Budget()) == new
    fresh = rng.randbytes(100)
    assert len(encode(b"", fresh * 50)) < 150  # repeats within the new object alone


def test_a_target_of_several_windows_comes_back() -> None:
    block = random.Random(3).randbytes(1_000)
    new = block * 9_000
    delta = encode(block, new)
    assert len(delta) < 200
    assert decode(block, delta, Budget()) == new


@pytest.mark.parametrize(("old", "new"), [(b"", b""), (b"abc", b""), (b"", b"abc"), (b"abc", b"abc"), (b"a", b"b")])
def test_the_smallest_objects(old: bytes, new: bytes) -> None:
    assert decode(old, encode(old, new), Budget()) == new


def test_a_copy_may_overlap_what_it_makes() -> None:
    delta = HEADER + window(bytes([3, 19]) + varint(9), data=b"ab", addresses=b"\0", size=11)
    assert decode(b"", delta, Budget()) == b"abababababa"


def test_a_copy_may_run_from_the_source_into_the_target() -> None:
    source = bytes([1]) + varint(3) + varint(0)
    delta = HEADER + window(bytes([2, 19]) + varint(5), data=b"x", addresses=varint(1), size=6, segment=source)
    assert decode(b"abc", delta, Budget()) == b"xbcxbc"


def test_a_window_may_build_on_the_target_so_far() -> None:
    first = window(bytes([4]), data=b"abc", size=3)
    second = window(bytes([19]) + varint(2), addresses=varint(0), size=2, segment=bytes([2]) + varint(2) + varint(1))
    assert decode(b"", HEADER + first + second, Budget()) == b"abcbc"


def test_several_instructions_in_one_code_and_cached_addresses() -> None:
    source = bytes([1]) + varint(16) + varint(0)
    instructions = bytes([163, 247 + 6, 20 + 16 * 2])  # ADD 1 COPY 4 self; COPY 4 same ADD 1; COPY 4 near
    delta = HEADER + window(instructions, data=b"xy", addresses=b"\x04\x04\x02", size=14, segment=source)
    assert decode(b"0123456789abcdef", delta, Budget()) == b"x45674567y6789"


@pytest.mark.parametrize(
    "delta",
    [
        b"",
        b"\xd6\xc3\xc4",
        b"\xd6\xc3\xc5\x00\x00",
        b"\xd6\xc3\xc4S\x00",
        b"\xd6\xc3\xc4\x00\x01",  # secondary compressor
        b"\xd6\xc3\xc4\x00\x02",  # custom code table
        b"\xd6\xc3\xc4\x00\x04\x7f",  # application header longer than the delta
        HEADER + b"\x03",  # source and target at once
        HEADER + b"\x08",
        HEADER + b"\x00",
        HEADER + b"\x00" + b"\xff" * 9,
        HEADER + b"\x00\x7f",
        HEADER + window(b"", size=1),
        HEADER + window(bytes([2]), data=b"", size=1),
        HEADER + window(bytes([2]), data=b"ab", size=1),
        HEADER + window(bytes([3]), data=b"ab", size=1),
        HEADER + window(bytes([1]), size=1),
        HEADER + window(bytes([20]), addresses=b"\0", size=4),  # copies from where nothing is
        HEADER + window(bytes([20]), size=4),
        HEADER + window(bytes([36]), addresses=b"\x05", size=4),
        HEADER + window(bytes([2, 20]), data=b"a", addresses=b"\x01", size=5),
        HEADER + window(bytes([2]), data=b"a", addresses=b"\0", size=1),
        HEADER + window(bytes([2]), data=b"a", size=1, tail=b"?"),
    ],
)
def test_a_delta_that_lies_is_malformed(delta: bytes) -> None:
    assert refused(b"", delta) is Reason.MALFORMED


def test_a_delta_for_another_object_does_not_fit() -> None:
    assert refused(b"short", encode(b"x" * 99, b"y" + b"x" * 99)) is Reason.INVALID_PAYLOAD


def test_every_prefix_of_a_delta_is_refused_or_ends_a_window() -> None:
    old = random.Random(4).randbytes(500)
    delta = encode(old, old[:250] + b"new" + old[250:])
    for end in range(len(delta)):
        if end != len(HEADER):
            assert refused(old, delta[:end]) is Reason.MALFORMED
    assert decode(old, delta[: len(HEADER)], Budget()) == b""


def test_a_bomb_is_refused_before_it_goes_off() -> None:
    bomb = HEADER + window(bytes([0]) + varint(2**40), data=b"x", size=2**40)
    tracemalloc.start()
    assert refused(b"", bomb) is Reason.OVERSIZE
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()
    several = HEADER + window(bytes([0]) + varint(600), data=b"x", size=600) * 2
    assert refused(b"", several, Budget(1_000)) is Reason.OVERSIZE


def test_tiny_copies_of_a_large_source_do_not_cost_more_than_they_make() -> None:
    source = bytes(1_000_000)
    segment = bytes([1]) + varint(len(source) - 1) + varint(0)
    delta = HEADER + window(bytes([20]), addresses=b"\0", size=4, segment=segment) * 20_000
    start = time.monotonic()
    assert refused(source, delta) is Reason.TOO_COMPLEX
    assert time.monotonic() - start < 5


def test_texts_are_changed_as_utf8_and_stay_utf8() -> None:
    algorithm = Vcdiff()
    delta = algorithm.make("Größe 😀 " * 20, "Größe 😁 " + "Größe 😀 " * 19)
    assert isinstance(delta, bytes)
    assert algorithm.apply("Größe 😀 " * 20, delta, Budget()) == "Größe 😁 " + "Größe 😀 " * 19
    with pytest.raises(DeltaError) as error:
        algorithm.apply("text", encode(b"", b"\xff"), Budget())
    assert error.value.reason is Reason.INVALID_PAYLOAD
    assert algorithm.make("text", b"bytes") is None
    assert algorithm.make({"a": 1}, {"a": 2}) is None


@given(st.binary(max_size=300), st.binary(max_size=300), st.integers(0, 300))
def test_the_common_ends_of_two_binaries(one: bytes, other: bytes, keep: int) -> None:
    other = one[:keep] + other + one[keep:]
    most = min(len(one), len(other))
    assert common_prefix(one, 0, other, 0) == next((n for n in range(most) if one[n] != other[n]), most)
    assert common_suffix(one, other) == next((n for n in range(most) if one[-n - 1] != other[-n - 1]), most)


pieces = st.lists(st.one_of(st.binary(max_size=60), st.sampled_from([b"abcdefghijklmnopqrst", b"\0" * 40])), max_size=8)


@settings(max_examples=200)
@given(pieces, pieces, st.randoms(use_true_random=False))
def test_any_two_binaries(one: list[bytes], other: list[bytes], rng: random.Random) -> None:
    mixed = [*one, *other]
    rng.shuffle(mixed)
    old, new = b"".join(one), b"".join(mixed)
    assert decode(old, encode(old, new), Budget()) == new


@settings(max_examples=300)
@given(st.binary(max_size=60), st.binary(max_size=60), st.booleans())
def test_an_arbitrary_delta_gives_bytes_or_a_typed_error(source: bytes, delta: bytes, headed: bool) -> None:
    try:
        decode(source, (HEADER if headed else b"") + delta, Budget(10_000, 10_000))
    except DeltaError:
        pass


@settings(max_examples=300)
@given(st.binary(max_size=100), st.binary(max_size=100), st.lists(st.tuples(st.integers(0, 99), st.integers(0, 255))))
def test_a_damaged_delta_gives_bytes_or_a_typed_error(old: bytes, new: bytes, damage: list[tuple[int, int]]) -> None:
    delta = bytearray(encode(old, new))
    for place, value in damage:
        delta[place % len(delta)] = value
    try:
        made = decode(old, bytes(delta), Budget(10_000, 100_000))
    except DeltaError:
        return
    assert len(made) <= 10_000


@given(json_values, st.one_of(json_values, st.binary(max_size=9)))
def test_an_arbitrary_object_and_delta_give_a_typed_error(old: Any, delta: Any) -> None:
    try:
        Vcdiff().apply(old, delta, Budget())
    except DeltaError:
        pass
