"""Which parts of a new binary are already in the old one, or earlier in the new one. Only searching."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

BLOCK: Final = 16  # the shortest match looked for
_CANDIDATES: Final = 4  # places remembered for one block
_INDEXED: Final = 2**18  # blocks remembered: of a larger source only every nth


class Match(NamedTuple):
    """`length` bytes of the target from `at` on are those at `address`, counted through source, then target.

    `run`: they are one byte over and over, and the address means nothing.
    """

    at: int
    length: int
    address: int
    run: bool = False


def matches(source: bytes, target: bytes) -> Iterator[Match]:
    """Matches in ascending order that do not overlap. Common beginning and end are found without searching."""
    start = common_prefix(source, 0, target, 0)
    end = common_suffix(source[start:], target[start:])
    if start < 4:
        start = 0
    if end < 4:
        end = 0
    if start:
        yield Match(0, start, 0)
    if len(target) - end > start:
        yield from _search(source, target, start, len(target) - end)
    if end:
        yield Match(len(target) - end, end, len(source) - end)


def common_prefix(one: bytes, one_at: int, other: bytes, other_at: int) -> int:
    """How many bytes are equal from two places on. Halving slices is faster than any loop over bytes."""
    most = min(len(one) - one_at, len(other) - other_at)
    found, step = 0, 64
    while found < most:
        step = min(step, most - found)
        if one[one_at + found : one_at + found + step] == other[other_at + found : other_at + found + step]:
            found += step
            step *= 2
        elif step == 1:
            break
        else:
            most = found + step - 1  # the difference is among these
            step = max(step // 4, 1)
    return found


def common_suffix(one: bytes, other: bytes) -> int:
    """How many bytes are equal at the end."""
    most = min(len(one), len(other))
    found, step = 0, 64
    while found < most:
        step = min(step, most - found)
        one_end, other_end = len(one) - found, len(other) - found
        if one[one_end - step : one_end] == other[other_end - step : other_end]:
            found += step
            step *= 2
        elif step == 1:
            break
        else:
            step = max(step // 4, 1)
    return found


def _search(source: bytes, target: bytes, start: int, end: int) -> Iterator[Match]:
    """Find blocks of the source, taken at regular distances, in the target, and grow what is found."""
    places: dict[bytes, list[int]] = {}
    stride = max(BLOCK, (len(source) + len(target)) // _INDEXED)
    for place in range(0, len(source) - BLOCK + 1, stride):
        _note(places, source[place : place + BLOCK], place)
    at = literal = indexed = start
    while at + BLOCK <= end:
        block = target[at : at + BLOCK]
        if block.count(block[0]) == BLOCK:
            length = _run_length(target, at, end)
            yield Match(at, length, 0, run=True)
            at = literal = at + length
            continue
        known = places.get(block)
        if known is None:
            at += 1
        else:
            match = _longest(source, target, at, end, literal, known)
            yield match
            at = literal = match.at + match.length
        while indexed + BLOCK <= at:  # what has been passed can be copied from
            _note(places, target[indexed : indexed + BLOCK], len(source) + indexed)
            indexed += stride


def _note(places: dict[bytes, list[int]], block: bytes, place: int) -> None:
    known = places.setdefault(block, [])
    if len(known) < _CANDIDATES:
        known.append(place)


def _longest(source: bytes, target: bytes, at: int, end: int, literal: int, known: list[int]) -> Match:
    best = Match(at, 0, 0)
    for address in known:
        origin, place = (source, address) if address < len(source) else (target, address - len(source))
        length = min(common_prefix(origin, place, target, at), end - at)
        back = 0
        while back < at - literal and back < place and origin[place - back - 1] == target[at - back - 1]:
            back += 1
        if length + back > best.length:
            best = Match(at - back, length + back, address - back)
    return best


def _run_length(target: bytes, at: int, end: int) -> int:
    one = target[at : at + 1]
    length = BLOCK
    while at + length < end and target[at + length : at + length + 1] == one:
        step = min(256, end - at - length)
        length += step if target.count(one, at + length, at + length + step) == step else 1
    return length
