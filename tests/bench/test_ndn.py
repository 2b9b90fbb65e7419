"""The NDN benchmarks do the work they claim, at a fraction of their size. Ratios are not asserted here."""

from __future__ import annotations

import pytest

from syncline.bench import ndn, svs
from tests.interop.conftest import npm

__all__ = ["npm"]  # a fixture


def test_both_codecs_do_the_same_exchanges() -> None:
    report = ndn.run(0.001)
    assert [case["bar"] for case in report["cases"]] == [5.0, 3.0]
    assert all(case["ours"] > 0 and case["peer"] > 0 for case in report["cases"])


@pytest.mark.interop
@pytest.mark.usefixtures("npm")
@pytest.mark.parametrize("side", [svs.ours, svs.ndnts])
def test_every_publication_of_a_run_arrives_once(side: object) -> None:
    assert svs._measure(side(), 150)["rate"] > 0  # type: ignore[operator]
