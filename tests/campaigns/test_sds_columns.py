"""Corrupted payloads: columns and row reader agree on every one, and a row does not depend on its neighbours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from syncline.formats.flatbuffers import Fault
from syncline.protocols.sds.catalogue import standard
from syncline.testing.flatbuffers import mutated, random_value
from tests.campaigns.conftest import LONG, Figures
from tests.formats.flatbuffers.flat import alone_as_in_batch, check
from tests.protocols.sds.payloads import payloads_of

pytestmark = pytest.mark.campaign
BATCH = 2_000


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(("name", "count"), [("OMM", 20_000), ("CDM", 20_000 if LONG else 1_000), ("REC", 200)])
def test_corrupted_payloads_are_never_accepted_with_another_meaning(
    name: str, count: int, vectors: Callable[[str], list[dict[str, Any]]], seed: int, figures: Figures
) -> None:
    random, known = Random(seed), standard(name)
    honest = [payload.data for payload in payloads_of(vectors("sds")) if payload.schema == name]
    honest += [known.writer.encode(random_value(random, known.schema, density=0.3)) for _ in range(20)]
    faults: Counter[str] = Counter()
    for start in range(0, count, BATCH):
        buffers = [mutated(random, random.choice(honest)) for _ in range(min(BATCH, count - start))]
        found = check(known.schema, buffers)
        alone_as_in_batch(known.schema, buffers, found)
        faults.update(Fault(fault).name for fault in found.faults)
    figures(schema=name, payloads=count, faults=dict(faults))
    assert faults.total() == count
    assert len(faults) >= 6, "the planned corruptions did not happen"
