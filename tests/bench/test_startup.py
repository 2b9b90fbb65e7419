"""The start of a node is measured over journals that hold what they should."""

from __future__ import annotations

from pathlib import Path

from syncline.bench import startup
from syncline.journal.verify import verify


def test_a_node_becomes_ready_over_a_journal_of_so_many_records(tmp_path: Path) -> None:
    startup._prepare(tmp_path / "node", 250)
    assert 0 < startup._ready(tmp_path / "node") < startup.PATIENCE
    found = verify(tmp_path / "node" / "data" / "journal.db")
    assert found.problems == []
    assert found.records == 250
