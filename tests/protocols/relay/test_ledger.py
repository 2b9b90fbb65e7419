"""The ledger is kept: every row names code and a test that exist, and has a mutant that can be made."""

from __future__ import annotations

from tests.protocols.ledger import Ledger

LEDGER = Ledger("relay")


def test_what_the_rows_name_exists() -> None:
    assert len(LEDGER.rows) > 70
    assert LEDGER.missing() == []


def test_every_row_has_a_mutant_that_can_be_made_and_a_test_for_it() -> None:
    assert list(LEDGER.mutants) == [row.name for row in LEDGER.rows]
    assert LEDGER.unmakeable() == []
