"""The bloom filter of SYNC, version 1: which record ids a peer already holds, in few bytes.

An id is 32 random bytes, so its own parts serve as hashes. A false positive only delays a record: the next round uses a
filter of another size, which lets it through.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from syncline.core import limits
from syncline.core.errors import DecodeError
from syncline.core.verdict import Reason

FALSE_POSITIVES: Final = 0.001  # as long as the filter may grow
IDS_MAX: Final = 437_000  # that the largest filter holds with one false positive in a hundred
_ROUNDS: Final = 8  # sizes after which they repeat


class Bloom:
    """A filter as it goes over the wire: `bits` and how many of them an id sets."""

    __slots__ = ("_table", "bits", "hashes")

    def __init__(self, bits: bytes, hashes: int) -> None:
        self.bits = bits
        self.hashes = hashes
        self._table: npt.NDArray[np.uint8] = np.frombuffer(bits, np.uint8)

    @classmethod
    def of(cls, ids: Sequence[bytes], round_: int = 0) -> Bloom:
        """A filter of these ids. `round_` varies its size, so that no two rounds have the same false positives."""
        if not ids:
            return cls(b"", 0)
        wanted = math.ceil(-len(ids) * math.log(FALSE_POSITIVES) / math.log(2) ** 2 / 8)
        spare = round_ % _ROUNDS  # an odd number of bytes more each round
        size = min(max(wanted, 8) + spare * 2 + 1, limits.SDS_BLOOM_BYTES - spare)
        hashes = min(max(round(size * 8 / len(ids) * math.log(2)), 1), limits.SDS_BLOOM_HASHES)
        table = np.zeros(size, np.uint8)
        places = _places(ids, hashes, size * 8).ravel()
        np.bitwise_or.at(table, places >> 3, (1 << (places & 7)).astype(np.uint8))
        return cls(table.tobytes(), hashes)

    @classmethod
    def read(cls, bits: bytes, hashes: int) -> Bloom | None:
        """The filter of a message; None where it has none. Raises DecodeError for one that cannot be meant."""
        if not bits:
            return None
        if len(bits) > limits.SDS_BLOOM_BYTES:
            raise DecodeError(
                f"a bloom filter of {len(bits)} bytes, {limits.SDS_BLOOM_BYTES} are allowed",
                reason=Reason.OVERSIZE,
                about="bloom_filter",
            )
        if not 1 <= hashes <= limits.SDS_BLOOM_HASHES:
            raise DecodeError(
                f"1 to {limits.SDS_BLOOM_HASHES} hashes", reason=Reason.INVALID_FIELD, about="bloom_hash_count"
            )
        if bits.count(0xFF) == len(bits):
            raise DecodeError("a bloom filter of ones", reason=Reason.INVALID_FIELD, about="bloom_filter")
        return cls(bits, hashes)

    def holding(self, ids: Sequence[bytes]) -> list[bool]:
        """For each id whether the filter says that it is held."""
        if not ids or not self.bits:
            return [False] * len(ids)
        places = _places(ids, self.hashes, len(self.bits) * 8)
        found: list[bool] = ((self._table[places >> 3] >> (places & 7) & 1) == 1).all(axis=1).tolist()
        return found


def _places(ids: Iterable[bytes], hashes: int, bits: int) -> npt.NDArray[np.int64]:
    """bit i of an id d: ((h1 + i·h2) mod 2^64) mod m, with h1, h2 the little-endian d[0:8], d[8:16] and h2 made odd."""
    halves = np.frombuffer(b"".join(each[:16] for each in ids), "<u8").reshape(-1, 2)
    first, step = halves[:, :1], halves[:, 1:] | np.uint64(1)
    numbers = np.arange(hashes, dtype=np.uint64)
    return ((first + numbers * step) % np.uint64(bits)).astype(np.int64)
