"""The `svs` benchmark does the work it claims, on both sides. Ratios are not asserted here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from syncline.bench import svs

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("npm")]


@pytest.mark.parametrize("side", [svs.ours, svs.ndnts])
def test_every_publication_of_a_run_arrives_once(side: Callable[[], svs.Command]) -> None:
    assert svs._measure(side(), 150)["rate"] > 0
