"""Scenario `sdsp`: what deltas save on the wire, and what making one costs.

The same 1,000 edits are sent as frames and as whole objects; the same change of a 5 MB object is turned into a JSON
Patch by our differ and by `jsonpatch`. Every result is checked against the object it must give.
"""

from __future__ import annotations

import copy
import math
import random
import time
from collections.abc import Callable
from typing import Any

import jsonpatch
import msgspec

from syncline.bench.report import growth
from syncline.protocols.sdsp.deltas import Budget, Deltas
from syncline.protocols.sdsp.deltas.differ import difference
from syncline.protocols.sdsp.rebuild import State, fold
from syncline.protocols.sdsp.session import PublisherSession
from syncline.protocols.sdsp.wire import Frame, decode

EDITS = 1_000
RECORDS_100_KB = 440
RECORDS_5_MB = 22_000
SEED = 20_26


def run(scale: float = 1.0) -> dict[str, Any]:
    """Measure all cases; `scale` shortens or lengthens the work."""
    deltas = Deltas()
    cases = [
        wire_bytes(deltas, edits=max(int(EDITS * scale), 10)),
        making(records=max(int(RECORDS_5_MB * scale), 100)),
        applying(deltas, records=max(int(RECORDS_5_MB * scale), 100)),
    ]
    sizes = [max(int(RECORDS_5_MB * scale) // part, 50) for part in (16, 4, 1)]
    return {
        "scenario": "sdsp",
        "met": all(_met(case) for case in cases),
        "cases": cases,
        "growth": growth("make a jp delta", "records", sizes, making_times(sizes)),
    }


def wire_bytes(deltas: Deltas, *, edits: int) -> dict[str, Any]:
    """Bytes on the wire of edits to a 100 KB document, as frames and as the whole document each time."""
    rng = random.Random(SEED)
    document = _document(rng, RECORDS_100_KB)
    publisher = PublisherSession("bench", deltas)
    sent, whole = 0, 0
    state: State | None = None
    for number in range(edits + 1):
        draft = publisher.create(document) if number == 0 else publisher.update(_edited(rng, document))
        assert draft is not None
        publisher.commit(draft)
        sent += len(draft.raw)
        whole += len(msgspec.json.encode(document))
        state = _followed(state, decode(draft.raw), deltas)
    assert state is not None
    assert _same(state.value, document), "the subscriber must end with the publisher's object"
    return _case(
        "bytes on the wire, 100 KB document", sent, whole, "republishing", "B", sent / whole, 0.02, at_most=True
    )


def making(*, records: int) -> dict[str, Any]:
    """Seconds to make a patch of 20 changes to a 5 MB object."""
    rng = random.Random(SEED)
    old = _document(rng, records)
    new = copy.deepcopy(old)
    for _ in range(20):
        _edited(rng, new)
    ours, patch = _best(lambda: difference(old, new), 5)
    peer, other = _best(lambda: jsonpatch.make_patch(old, new).patch, 2)
    assert _same(jsonpatch.apply_patch(old, patch), new), "jsonpatch must agree with our patch"
    assert _same(jsonpatch.apply_patch(old, other), new)
    return _case("make a jp delta, 5 MB object", ours, peer, "jsonpatch.make_patch", "s", peer / ours, 5.0)


def applying(deltas: Deltas, *, records: int) -> dict[str, Any]:
    """Seconds to apply that patch in place; the peer also in place, which is its fastest way."""
    rng = random.Random(SEED)
    old = _document(rng, records)
    new = copy.deepcopy(old)
    for _ in range(20):
        _edited(rng, new)
    patch = difference(old, new)
    back = difference(new, old)
    mine, theirs = copy.deepcopy(old), copy.deepcopy(old)
    jp = deltas["jp"]

    def ours_there_and_back() -> None:
        jp.apply(mine, patch, Budget(), in_place=True)
        jp.apply(mine, back, Budget(), in_place=True)

    def theirs_there_and_back() -> None:
        jsonpatch.apply_patch(theirs, patch, in_place=True)
        jsonpatch.apply_patch(theirs, back, in_place=True)

    ours, _ = _best(ours_there_and_back, 20)
    peer, _ = _best(theirs_there_and_back, 20)
    assert _same(mine, old), "there and back again"
    assert jp.apply(mine, patch, Budget(), in_place=True) is mine, "the object itself is changed, not a copy"
    assert _same(mine, new)
    return _case(
        "apply a jp delta in place, 5 MB object", ours / 2, peer / 2, "jsonpatch in place", "s", peer / ours, 1.0
    )


def making_times(sizes: list[int]) -> list[float]:
    """Seconds to make a patch of objects of these sizes."""
    seconds = []
    for records in sizes:
        rng = random.Random(SEED)
        old = _document(rng, records)
        new = copy.deepcopy(old)
        for _ in range(20):
            _edited(rng, new)
        seconds.append(_best(lambda a=old, b=new: difference(a, b), 5)[0])  # type: ignore[misc]
    return seconds


def _document(rng: random.Random, records: int) -> dict[str, Any]:
    """Orbital elements of many objects, half of them by name and half in a list."""
    made = [
        {
            "id": number,
            "name": f"OBJECT {number}",
            "epoch": f"2026-01-{1 + number % 28:02d}T00:00:00Z",
            "mean_motion": rng.uniform(10, 16),
            "eccentricity": rng.random() / 1_000,
            "flags": [bool(number % 2), number % 7, None],
            "position": {"x": rng.uniform(-7e3, 7e3), "y": rng.uniform(-7e3, 7e3), "z": rng.uniform(-7e3, 7e3)},
        }
        for number in range(records)
    ]
    half = records // 2
    return {"by_name": {record["name"]: record for record in made[:half]}, "others": made[half:]}


def _edited(rng: random.Random, document: dict[str, Any]) -> dict[str, Any]:
    """Change one thing, in place: usually a value, now and then a record more or less."""
    others = document["others"]
    kind = rng.randrange(10)
    if kind == 0:
        others.insert(rng.randrange(len(others)), {"id": rng.randrange(10**9), "name": "NEW"})
    elif kind == 1:
        del others[rng.randrange(len(others))]
    elif kind < 6:
        rng.choice(others)["mean_motion"] = rng.uniform(10, 16)
    else:
        name = rng.choice(list(document["by_name"]))
        document["by_name"][name]["position"] = {"x": rng.random(), "y": rng.random(), "z": rng.random()}
    return document


def _followed(state: State | None, frame: Frame, deltas: Deltas) -> State:
    folded = fold(state, frame, deltas, in_place=True)
    assert isinstance(folded, State), folded
    return folded


def _same(one: Any, other: Any) -> bool:
    return msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")


def _best(work: Callable[[], Any], times: int) -> tuple[float, Any]:
    """The shortest of several runs: noise only ever adds."""
    best, result = math.inf, None
    for _ in range(times):
        start = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - start)
    return best, result


def _case(
    name: str, ours: float, peer: float, peer_name: str, unit: str, ratio: float, bar: float, *, at_most: bool = False
) -> dict[str, Any]:
    return {
        "name": name,
        "ours": ours,
        "peer": peer,
        "peer_name": peer_name,
        "unit": unit,
        "ratio": ratio,
        "bar": bar,
        "at_most": at_most,
    }


def _met(case: dict[str, Any]) -> bool:
    met: bool = case["ratio"] <= case["bar"] if case["at_most"] else case["ratio"] >= case["bar"]
    return met
