"""The zoo: a schema with every feature, and the code flatc makes of it."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from syncline.formats.flatbuffers import Schema, fbs
from syncline.formats.flatbuffers.linking import link
from tests.formats.flatbuffers.objects import generate

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def zoo() -> Schema:
    return link(fbs.with_includes("zoo.fbs", lambda name: (HERE / name).read_text()), "Zoo")


@pytest.fixture(scope="session")
def generated_zoo(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return generate(HERE / "zoo.fbs", tmp_path_factory.mktemp("zoo"))
