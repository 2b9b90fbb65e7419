"""The bloom filter: the bits of version 1, no false negative ever, few false positives, other ones each round."""

from __future__ import annotations

import hashlib

import pytest

from syncline.core import limits
from syncline.core.errors import DecodeError
from syncline.protocols.sds.bloom import IDS_MAX, Bloom


def ids(count: int, kind: str = "id") -> list[bytes]:
    return [hashlib.sha256(f"{kind}{number}".encode()).digest() for number in range(count)]


def bit_by_bit(record: bytes, bits: bytes, hashes: int) -> bool:
    """The definition, one bit after the other."""
    first, step = int.from_bytes(record[:8], "little"), int.from_bytes(record[8:16], "little") | 1
    places = [(first + number * step) % 2**64 % (8 * len(bits)) for number in range(hashes)]
    return all(bits[place >> 3] >> (place & 7) & 1 for place in places)


def test_bits_lie_where_the_definition_puts_them() -> None:
    held, others = ids(500), ids(2_000, "other")
    bloom = Bloom.of(held)
    assert [bit_by_bit(each, bloom.bits, bloom.hashes) for each in held] == [True] * 500
    assert bloom.holding(others) == [bit_by_bit(each, bloom.bits, bloom.hashes) for each in others]
    set_bits = {place for place in range(8 * len(bloom.bits)) if bloom.bits[place >> 3] >> (place & 7) & 1}
    assert len(set_bits) <= 500 * bloom.hashes


@pytest.mark.parametrize("count", [1, 10, 1_000, 30_000])
@pytest.mark.parametrize("round_", [0, 1, 7, 8])
def test_what_is_held_is_always_found_and_little_else(count: int, round_: int) -> None:
    bloom = Bloom.of(ids(count), round_)
    assert all(bloom.holding(ids(count)))
    assert sum(bloom.holding(ids(10_000, "other"))) < 200


def test_another_round_has_other_false_positives() -> None:
    others = ids(100_000, "other")
    blooms = [Bloom.of(ids(3_000), round_) for round_ in range(3)]
    wrong = [{each for each, held in zip(others, bloom.holding(others), strict=True) if held} for bloom in blooms]
    assert all(len(each) > 50 for each in wrong)
    assert len(wrong[0] & wrong[1] & wrong[2]) < 5


def test_the_largest_filter_fits_the_cap_and_still_works() -> None:
    for round_ in range(8):
        assert len(Bloom.of(ids(IDS_MAX // 100), round_).bits) < limits.SDS_BLOOM_BYTES // 60
    bloom = Bloom.of(ids(IDS_MAX))
    assert len(bloom.bits) <= limits.SDS_BLOOM_BYTES
    assert sum(bloom.holding(ids(10_000, "other"))) < 150


def test_no_ids_make_no_filter() -> None:
    assert (Bloom.of([]).bits, Bloom.of([]).hashes) == (b"", 0)
    assert Bloom.read(b"", 0) is None
    assert Bloom.of([]).holding(ids(2)) == [False, False]


def test_a_filter_that_went_over_the_wire_is_the_same() -> None:
    bloom = Bloom.of(ids(100))
    again = Bloom.read(bloom.bits, bloom.hashes)
    assert again is not None
    assert again.holding(ids(100)) == [True] * 100


@pytest.mark.parametrize(
    ("bits", "hashes", "complaint"),
    [
        (b"\xff" * 64, 3, "of ones"),
        (b"\xff", 1, "of ones"),
        (bytes(8), 0, "1 to 32 hashes"),
        (bytes(8), 33, "1 to 32 hashes"),
        (bytes(limits.SDS_BLOOM_BYTES + 1), 3, "524288 are allowed"),
    ],
)
def test_a_filter_that_cannot_be_meant_is_refused(bits: bytes, hashes: int, complaint: str) -> None:
    with pytest.raises(DecodeError, match=complaint):
        Bloom.read(bits, hashes)
