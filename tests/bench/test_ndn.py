"""The NDN benchmark does the work it claims, at a fraction of its size. Ratios are not asserted here."""

from __future__ import annotations

from syncline.bench import ndn


def test_both_codecs_do_the_same_exchanges() -> None:
    report = ndn.run(0.001)
    assert [case["bar"] for case in report["cases"]] == [5.0, 3.0]
    assert all(case["ours"] > 0 and case["peer"] > 0 for case in report["cases"])
