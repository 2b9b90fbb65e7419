"""What several tests of SDS share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.protocols.sds.payloads import Payload, payloads_of


@pytest.fixture(scope="session")
def payloads(vectors: Callable[[str], list[dict[str, Any]]]) -> list[Payload]:
    return payloads_of(vectors("sds"))
