from __future__ import annotations

from pathlib import Path

import pytest

from syncline.bench import journal


def test_it_compares_with_a_log_that_kept_the_same_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "ROUNDS", 1)
    found = journal.run(0.02)
    burst, long = found["cases"]
    for case in (burst, long):
        assert case["peer_name"] == "raw length+crc log, same group fsync"
        assert case["bar"] == 0.5
        assert case["ratio"] == pytest.approx(case["ours"] / case["peer"])
    assert found["records"] == [1_000, 3_200]
    assert found["met"] == (min(burst["ratio"], long["ratio"]) >= 0.5)
    assert found["growth"]["sizes"] == [1_000, 4_000, 16_000]


def test_a_lost_record_would_be_noticed() -> None:
    arrivals = journal._arrivals(3)
    kept = [(arrival.id, arrival.raw) for arrival in arrivals]
    journal._check(arrivals, iter(kept))
    with pytest.raises(AssertionError, match="2 records came back of 3"):
        journal._check(arrivals, iter(kept[:2]))


def test_the_peers_log_holds_what_was_appended(tmp_path: Path) -> None:
    arrivals = journal._arrivals(500)
    assert journal._log(tmp_path, arrivals)["rate"] > 0
    assert sorted(kept.id for kept in journal.read_log(tmp_path / "log")) == sorted(kept.id for kept in arrivals)
