"""The SDSP benchmark in small: its figures have the documented form, and its own checks hold."""

from __future__ import annotations

from syncline.bench import SCENARIOS, sdsp


def test_the_report_has_the_documented_form() -> None:
    report = sdsp.run(0.02)
    assert "sdsp" in SCENARIOS
    assert report["scenario"] == "sdsp"
    assert isinstance(report["met"], bool)
    assert [case["name"] for case in report["cases"]] == [
        "bytes on the wire, 100 KB document",
        "make a jp delta, 5 MB object",
        "apply a jp delta in place, 5 MB object",
    ]
    for case in report["cases"]:
        assert set(case) >= {"name", "ours", "peer", "peer_name", "unit", "ratio", "bar", "at_most"}
        assert case["ours"] > 0
        assert case["peer"] > 0
