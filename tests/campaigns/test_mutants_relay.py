"""Every row of the relay ledger, broken by hand: the test named beside it must notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.conftest import LONG, Figures
from tests.campaigns.mutants import copy_of_source, survives
from tests.protocols.ledger import Ledger

pytestmark = pytest.mark.campaign
MUTANTS = Ledger("relay").mutants
CHOSEN = MUTANTS if LONG else dict(list(MUTANTS.items())[:: max(1, len(MUTANTS) // 10)])


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of_source(tmp_path_factory.mktemp("mutants"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", CHOSEN)
def test_a_broken_line_is_noticed(copy: Path, name: str, figures: Figures) -> None:
    assert not survives(copy, MUTANTS[name], "tests/protocols/relay"), "the mutant lives"
    figures(mutant=name, killed_by=MUTANTS[name]["test"])
