"""Deltas and canonical JSON against what JavaScript peers use: fast-json-patch, diff-match-patch, Ably's VCDIFF decoder."""

from __future__ import annotations

import base64
import copy
import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest

from syncline.core.errors import DeltaError
from syncline.protocols.sdsp.checksums import jcs
from syncline.protocols.sdsp.deltas import Budget, Deltas, vcdiff
from tests.interop.conftest import Node

pytestmark = pytest.mark.interop
DOCUMENTS = 500
LEAST = 400
DELTAS = Deltas()
LETTERS = ["a", "b", "/", "~", "é", "ß", "\u2028", "﬩", "😀", "🛰", "𝄞", " ", "\n", "%", "+", "\t", '"', "\\", "0", "1"]


def text(rng: random.Random, longest: int = 6) -> str:
    return "".join(rng.choice(LETTERS) for _ in range(rng.randrange(longest + 1)))


def number(rng: random.Random) -> float:
    found: float = rng.choice(
        [
            rng.randrange(-5, 6),
            rng.randrange(-(2**53), 2**53),
            rng.uniform(-1, 1),
            float(rng.randrange(-3, 4)),
            rng.uniform(0, 1) * 10.0 ** rng.randrange(-30, 30),
        ]
    )
    return found


def value(rng: random.Random, depth: int = 3) -> Any:
    kind = rng.randrange(8 if depth else 5)
    if kind >= 6:
        return [value(rng, depth - 1) for _ in range(rng.randrange(6))]
    if kind >= 5:
        return {text(rng, 3): value(rng, depth - 1) for _ in range(rng.randrange(6))}
    return [None, True, False, number(rng), text(rng)][kind]


def edited(rng: random.Random, old: Any) -> Any:
    """The same value with a few changes in the middle of it."""
    new = copy.deepcopy(old)
    for _ in range(rng.randrange(1, 4)):
        node = new
        while isinstance(node, (dict, list)) and node and rng.random() < 0.7:
            inner = node[rng.choice(list(node))] if isinstance(node, dict) else rng.choice(node)
            if not isinstance(inner, (dict, list)):
                break
            node = inner
        if isinstance(node, dict):
            if node and rng.random() < 0.3:
                del node[rng.choice(list(node))]
            else:
                node[rng.choice([*node, text(rng, 3)])] = value(rng, 1)
        elif isinstance(node, list):
            if node and rng.random() < 0.3:
                node.pop(rng.randrange(len(node)))
            else:
                node.insert(rng.randrange(len(node) + 1), value(rng, 1))
    return new


def pairs(seed: int) -> list[tuple[Any, Any]]:
    rng = random.Random(seed)
    olds = [[value(rng), value(rng), value(rng)] for _ in range(DOCUMENTS)]
    return [(old, edited(rng, old)) for old in olds]


def texts(seed: int) -> list[tuple[str, str]]:
    rng = random.Random(seed)
    found = []
    for _ in range(DOCUMENTS):
        old = text(rng, 80)
        at, cut = rng.randrange(len(old) + 1), rng.randrange(10)
        found.append((old, old[:at] + text(rng, 10) + old[at + cut :]))
    return found


def test_the_public_test_suite_of_json_patch_passes(npm: Path) -> None:
    active = 0
    for name in ("tests.json", "spec_tests.json"):
        for case in json.loads((npm / "json-patch-test-suite" / name).read_text()):
            if "patch" not in case or case.get("disabled"):
                continue
            active += 1
            for in_place in (True, False):
                document = copy.deepcopy(case["doc"])
                if "error" in case:
                    with pytest.raises(DeltaError):
                        DELTAS["jp"].apply(document, case["patch"], Budget(), in_place=in_place)
                    assert jcs(document) == jcs(case["doc"]), case
                else:
                    made = DELTAS["jp"].apply(document, case["patch"], Budget(), in_place=in_place)
                    assert jcs(made) == jcs(case.get("expected", case["doc"])), case
    assert active == 91  # as released; what the suite gained since is in tests/protocols/sdsp/test_jp.py


def test_patches_made_here_are_applied_by_fast_json_patch(node: Node) -> None:
    documents = pairs(1)
    cases = [{"old": old, "delta": DELTAS["jp"].make(old, new)} for old, new in documents]
    answers = node("sdsp/peer.mjs", {"task": "jpApply", "cases": cases})
    assert sum(1 for case in cases if case["delta"]) >= LEAST
    for (_, new), answer in zip(documents, answers, strict=True):
        assert jcs(answer) == jcs(new)


def test_patches_made_by_fast_json_patch_are_applied_here(node: Node) -> None:
    documents = pairs(2)
    cases = [{"old": old, "next": new} for old, new in documents]
    answers = node("sdsp/peer.mjs", {"task": "jpMake", "cases": cases})
    assert sum(1 for answer in answers if answer) >= LEAST
    for (old, new), delta in zip(documents, answers, strict=True):
        assert jcs(DELTAS["jp"].apply(old, delta, Budget())) == jcs(new)
        assert jcs(DELTAS["jp"].apply(copy.deepcopy(old), delta, Budget(), in_place=True)) == jcs(new)


def test_text_deltas_made_here_are_applied_by_diff_match_patch(node: Node) -> None:
    documents = texts(3)
    cases = [{"old": old, "delta": DELTAS["md"].make(old, new)} for old, new in documents]
    answers = node("sdsp/peer.mjs", {"task": "mdApply", "cases": cases})
    assert answers == [new for _, new in documents]


def test_text_deltas_made_by_diff_match_patch_are_applied_here(node: Node) -> None:
    documents = texts(4)
    answers = node("sdsp/peer.mjs", {"task": "mdMake", "cases": [{"old": old, "next": new} for old, new in documents]})
    made = [(pair, delta) for pair, delta in zip(documents, answers, strict=True) if delta is not None]
    assert len(made) >= LEAST
    assert sum(1 for (old, new), _ in made if max(old + new, default="") > "\uffff") >= LEAST // 2
    for (old, new), delta in made:
        assert DELTAS["md"].apply(old, delta, Budget()) == new


def test_binary_deltas_made_here_are_read_by_ablys_decoder(node: Node) -> None:
    rng = random.Random(5)
    documents = [(old.encode(), new.encode()) for old, new in texts(6)[:200]]
    for _ in range(100):
        old = rng.randbytes(rng.randrange(4_000))
        places = sorted(rng.randrange(len(old) + 1) for _ in range(4))
        cut, moved = old[places[0] : places[1]], old[places[2] : places[3]]
        new = moved + old[: places[0]] + rng.randbytes(20) + b"\0" * rng.randrange(300) + old[places[1] :] + cut * 3
        documents.append((old, new))
    cases = [{"old": _base64(old), "delta": _base64(vcdiff.encode(old, new))} for old, new in documents]
    answers = node("sdsp/peer.mjs", {"task": "vcdiffApply", "cases": cases})
    assert [base64.b64decode(answer) for answer in answers] == [new for _, new in documents]
    assert sum(len(case["delta"]) for case in cases) < sum(len(_base64(new)) for _, new in documents) / 2


def test_canonical_json_is_what_ecmascript_writes(node: Node) -> None:
    rng = random.Random(7)
    documents: list[Any] = [value(rng) for _ in range(DOCUMENTS)]
    doubles = (struct.unpack("<d", rng.randbytes(8))[0] for _ in range(3_000))
    documents.append([double for double in doubles if double == double and abs(double) != float("inf")])
    documents.append([10.0**exponent for exponent in range(-324, 309)])
    documents.append([rng.randrange(-(2**70), 2**70) for _ in range(500)])
    answers = node("sdsp/peer.mjs", {"task": "canonical", "cases": [{"text": json.dumps(item)} for item in documents]})
    for document, answer in zip(documents, answers, strict=True):
        assert jcs(document).decode() == answer


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
