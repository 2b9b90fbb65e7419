"""Lively sample traffic for the demo and for load: satellites that move, a document under many small edits.

Everything follows from a seed. Who publishes it, and where, is the caller's business.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, Final

WORDS: Final = tuple(
    "pass window drift burn slew dump eclipse beacon sweep handover track residual epoch apogee node".split()  # noqa: SIM905
)


def satellite_updates() -> list[dict[str, Any]]:
    """96 mean-element sets of 24 invented satellites, in the order they were made."""
    text = files("syncline.testing").joinpath("data/omm-demo-updates.ndjson").read_text()
    return [json.loads(line) for line in text.splitlines()]


def edited_document(seed: int, sections: int = 40) -> Iterator[dict[str, Any]]:
    """A flight log of some 20 kB in which something small changes at every step."""
    chance = random.Random(seed)
    log = {f"orbit-{n:03d}": [" ".join(chance.choices(WORDS, k=12)) for _ in range(5)] for n in range(sections)}
    step = 0
    while True:
        yield {"title": "flight log", "revision": step, "log": log}
        step += 1
        orbit = f"orbit-{chance.randrange(sections):03d}"
        lines = list(log[orbit])
        lines[chance.randrange(len(lines))] = " ".join(chance.choices(WORDS, k=12))
        log = {**log, orbit: lines}


def bad_frames(seed: int) -> Iterator[str]:
    """What a misbehaving publisher sends: no JSON, forbidden combinations, versions that cannot be."""
    chance = random.Random(seed)
    while True:
        yield chance.choice(
            (
                '{"uid": "sat/990001", "serial": ',
                '{"uid": "sat/990001", "serial": 1, "delta": [], "data": {}}',
                '{"uid": "", "serial": 0, "data": 1}',
                '{"uid": "sat/990001", "serial": -4, "data": 1}',
                '{"uid": "sat/990002", "serial": 3, "ver": 9, "alg": "jp", "delta": []}',
                '{"uid": "<script>alert(1)</script>", "serial": 0, "ver": 7, "data": 1}',
            )
        )
