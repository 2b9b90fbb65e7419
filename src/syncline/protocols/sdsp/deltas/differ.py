"""The difference of two JSON values as a JSON Patch, found fast and exactly: 1, 1.0 and true are three values.

Equal parts are skipped in bulk by comparing their encoded bytes, which costs a fraction of walking them. In arrays,
elements that occur once on both sides anchor the comparison, so an insertion does not look like a change of everything
behind it. Not the smallest patch possible, but a small one in n log n time.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from typing import Any, Final

import msgspec

Patch = list[dict[str, Any]]


def difference(old: Any, new: Any) -> Patch:
    """Operations that turn `old` into exactly `new`; empty if they are the same. Shares values with `new`."""
    patch: Patch = []
    _compare(old, new, "", patch)
    return patch


_encode: Final = msgspec.json.Encoder().encode
_CHUNK: Final = 64  # elements compared at once
_FEW: Final = 4  # operations that are not worth weighing against one replacement


def _compare(old: Any, new: Any, path: str, patch: Patch) -> None:
    kind = type(old)
    if kind is not type(new):
        patch.append({"op": "replace", "path": path, "value": new})
    elif kind is dict:
        start = len(patch)
        _compare_objects(old, new, path, patch)
        _shorten(new, path, patch, start)
    elif kind is list:
        start = len(patch)
        _compare_arrays(old, new, path, patch)
        _shorten(new, path, patch, start)
    elif old != new or (kind is float and old == 0.0 and math.copysign(1, old) != math.copysign(1, new)):
        patch.append({"op": "replace", "path": path, "value": new})


def _compare_objects(old: dict[str, Any], new: dict[str, Any], path: str, patch: Patch) -> None:
    for key in old:
        if key not in new:
            patch.append({"op": "remove", "path": f"{path}/{_escaped(key)}"})
    for key, value in new.items():
        if key not in old:
            patch.append({"op": "add", "path": f"{path}/{_escaped(key)}", "value": value})
            continue
        before = old[key]
        kind = type(value)
        if kind is type(before):
            if kind is str or kind is int or kind is bool or value is None:
                if before == value:
                    continue
            elif kind is not float and _encode(before) == _encode(value):
                continue
        _compare(before, value, f"{path}/{_escaped(key)}", patch)


def _compare_arrays(old: list[Any], new: list[Any], path: str, patch: Patch) -> None:
    if len(old) == len(new):
        changed = _changed_places(old, new)
        if len(changed) * 2 <= len(old) or len(old) < _FEW:
            for index in changed:
                _compare(old[index], new[index], f"{path}/{index}", patch)
            return
    olds, news = [_encode(item) for item in old], [_encode(item) for item in new]
    # from the end to the start, so that the places of what is still to come do not move
    for old_from, old_to, new_from, new_to in reversed(_segments(olds, news)):
        _compare_segment(old, new, (old_from, old_to, new_from, new_to), path, patch)


def _compare_segment(
    old: list[Any], new: list[Any], segment: tuple[int, int, int, int], path: str, patch: Patch
) -> None:
    """Pair what can be paired, then remove or add the rest, which is done first because it lies behind."""
    old_from, old_to, new_from, new_to = segment
    paired = min(old_to - old_from, new_to - new_from)
    for index in range(old_to - 1, old_from + paired - 1, -1):
        patch.append({"op": "remove", "path": f"{path}/{index}"})
    for offset in range(paired, new_to - new_from):
        patch.append({"op": "add", "path": f"{path}/{old_from + offset}", "value": new[new_from + offset]})
    for offset in range(paired):
        _compare(old[old_from + offset], new[new_from + offset], f"{path}/{old_from + offset}", patch)


def _changed_places(old: list[Any], new: list[Any]) -> list[int]:
    """Where two arrays of the same length differ."""
    changed: list[int] = []
    for start in range(0, len(old), _CHUNK):
        olds, news = old[start : start + _CHUNK], new[start : start + _CHUNK]
        if _encode(olds) != _encode(news):
            changed.extend(
                start + offset
                for offset, (before, after) in enumerate(zip(olds, news, strict=True))
                if _encode(before) != _encode(after)
            )
    return changed


def _segments(olds: list[bytes], news: list[bytes]) -> list[tuple[int, int, int, int]]:
    """The ranges (old from, old to, new from, new to) in which two sequences differ, in ascending order."""
    start, ends = 0, (len(olds), len(news))
    while start < min(ends) and olds[start] == news[start]:
        start += 1
    while start < min(ends) and olds[ends[0] - 1] == news[ends[1] - 1]:
        ends = ends[0] - 1, ends[1] - 1
    found: list[tuple[int, int, int, int]] = []
    old_at, new_at = start, start
    for old_anchor, new_anchor in [*_anchors(olds, news, start, ends), ends]:
        # equal neighbours of an anchor belong to it
        while old_at < old_anchor and new_at < new_anchor and olds[old_at] == news[new_at]:
            old_at, new_at = old_at + 1, new_at + 1
        old_end, new_end = old_anchor, new_anchor
        while old_at < old_end and new_at < new_end and olds[old_end - 1] == news[new_end - 1]:
            old_end, new_end = old_end - 1, new_end - 1
        if old_at < old_end or new_at < new_end:
            found.append((old_at, old_end, new_at, new_end))
        old_at, new_at = old_anchor + 1, new_anchor + 1
    return found


def _anchors(olds: list[bytes], news: list[bytes], start: int, ends: tuple[int, int]) -> list[tuple[int, int]]:
    """Pairs of places of elements that occur exactly once on both sides: the longest chain ascending in both."""
    old_counts, new_counts = Counter(olds[start : ends[0]]), Counter(news[start : ends[1]])
    places = {item: place for place, item in enumerate(news[start : ends[1]], start) if new_counts[item] == 1}
    pairs = [
        (place, places[item])
        for place, item in enumerate(olds[start : ends[0]], start)
        if old_counts[item] == 1 and item in places
    ]
    tails: list[int] = []  # the smallest new place that ends a chain of each length
    tail_pairs: list[int] = []
    previous: list[int] = []
    for number, (_, new_place) in enumerate(pairs):
        length = bisect_left(tails, new_place)
        previous.append(tail_pairs[length - 1] if length else -1)
        tails[length : length + 1] = [new_place]
        tail_pairs[length : length + 1] = [number]
    chain: list[tuple[int, int]] = []
    number = tail_pairs[-1] if tail_pairs else -1
    while number >= 0:
        chain.append(pairs[number])
        number = previous[number]
    return chain[::-1]


def _shorten(new: Any, path: str, patch: Patch, start: int) -> None:
    """Replace the operations from `start` on by one, if that is shorter."""
    if len(patch) - start > _FEW and len(_encode(patch[start:])) > len(_encode(new)) + len(path) + 40:
        patch[start:] = [{"op": "replace", "path": path, "value": new}]


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1") if "~" in key or "/" in key else key
