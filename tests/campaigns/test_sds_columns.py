"""Corrupted payloads: columns and row reader agree on every one, and a row does not depend on its neighbours."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from syncline.formats.flatbuffers import Fault
from syncline.protocols.sds.catalogue import standard
from syncline.testing.flatbuffers import mutated, random_value
from tests.formats.flatbuffers.flat import alone_as_in_batch, check
from tests.protocols.sds.payloads import payloads_of

pytestmark = pytest.mark.campaign
LONG = bool(os.environ.get("SYNCLINE_LONG"))
BATCH = 2_000


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize(("name", "count"), [("OMM", 20_000), ("CDM", 20_000 if LONG else 2_000), ("REC", 400)])
def test_corrupted_payloads_are_never_accepted_with_another_meaning(
    name: str, count: int, vectors: Callable[[str], list[dict[str, Any]]]
) -> None:
    seed = int(os.environ.get("SYNCLINE_SEED", time.time_ns() % 2**32))
    random, known = Random(seed), standard(name)
    honest = [payload.data for payload in payloads_of(vectors("sds")) if payload.schema == name]
    honest += [known.writer.encode(random_value(random, known.schema, density=0.3)) for _ in range(20)]
    faults: dict[str, int] = {}
    for start in range(0, count, BATCH):
        buffers = [mutated(random, random.choice(honest)) for _ in range(min(BATCH, count - start))]
        found = check(known.schema, buffers)
        alone_as_in_batch(known.schema, buffers, found)
        for fault, times in zip(*np.unique(found.faults, return_counts=True), strict=True):
            faults[Fault(fault).name] = faults.get(Fault(fault).name, 0) + int(times)
    print(f"\n{name}: {count} corrupted payloads, seed {seed}: {faults}")
    assert sum(faults.values()) == count
    assert len(faults) >= 6, "the planned corruptions did not happen"
