"""Figures are kept by machine, a slowed peer is noticed, and the page shows what was missed."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from syncline.bench import page, plot
from syncline.bench.machine import machine_class
from syncline.bench.record import crippled_peers, measured, merged, more_is_better, recorded, with_peers_compared
from syncline.bench.report import case, growth, is_met, report

GROWN = growth("work", "rows", [10, 40, 160], [0.1, 0.4, 1.6])


def rates(peer: float, ours: float = 200.0) -> dict[str, Any]:
    found = case("appends", ours, peer, "a log", "records/s", bar=0.5, ratio=ours / peer)
    return report("journal", [found], growth=GROWN)


def times(peer: float) -> dict[str, Any]:
    return report("query", [case("page", 2.0, peer, "DuckDB", "ms", bar=1.3, ratio=2.0 / peer, at_most=True)])


def cpu(peer: float) -> dict[str, Any]:
    return report("gossip", [case("200 B", 10.0, peer, "js-libp2p", "µs", bar=2.0, ratio=peer / 10.0)])


def test_whether_more_is_better_follows_from_how_the_ratio_was_made() -> None:
    assert more_is_better(rates(100.0)["cases"][0])
    assert not more_is_better(times(3.0)["cases"][0])
    assert not more_is_better(cpu(30.0)["cases"][0])


@pytest.mark.parametrize(("make", "before", "now", "share"), [
    (rates, 100.0, 60.0, 0.6), (times, 3.0, 5.0, 0.6), (cpu, 30.0, 50.0, 0.6),
])  # fmt: skip
def test_a_peer_below_seven_tenths_of_its_record_is_flagged(make: Any, before: float, now: float, share: float) -> None:
    found = with_peers_compared(make(now), [measured(make(before), 1.0)])
    assert found["cases"][0]["peer_recorded"] == before
    assert found["cases"][0]["peer_of_recorded"] == pytest.approx(share)
    assert len(crippled_peers(found)) == 1
    assert crippled_peers(with_peers_compared(make(before), [measured(make(before), 1.0)])) == []


def test_a_record_of_another_class_of_machine_is_not_compared_with() -> None:
    import msgspec

    elsewhere = msgspec.structs.replace(measured(rates(100.0), 1.0), machine="1 × abacus")
    assert "peer_recorded" not in with_peers_compared(rates(10.0), [elsewhere])["cases"][0]
    assert machine_class() in {each.machine for each in merged([elsewhere], [measured(rates(1.0), 1.0)])}


def test_the_page_tells_the_newest_figures_and_what_was_missed(tmp_path: Path) -> None:
    file = tmp_path / "benchmarks.md"
    (tmp_path / "benchmarks-remarks.md").write_text("## Remarks\n\nThe log has no index.\n")
    page.write(file, [measured(rates(100.0), 1.0), measured(times(3.0), 1.0)])
    page.write(file, [measured(rates(1_000.0), 0.5)])
    text = file.read_text()
    assert "| journal | appends | 200 records/s | 1 k records/s (a log) | 0.2 | ≥ 0.5 | **missed** |" in text
    assert "`syncline bench journal --json --scale 0.5`" in text
    assert "| query | page | 2 ms | 3 ms (DuckDB) | 0.667 | ≤ 1.3 | met |" in text
    assert "| journal | work | 10 / 40 / 160 rows | 0.1 / 0.4 / 1.6 | 1.00 |" in text
    assert "Not measured yet: " in text
    assert text.endswith("The log has no index.\n")
    assert [each.scenario for each in recorded(file)] == ["journal", "query"]
    for name in ("ratios", "growth"):
        drawn = ElementTree.fromstring((tmp_path / f"benchmarks-{name}.svg").read_text())
        assert drawn.tag.endswith("svg")


@pytest.mark.parametrize(("value", "unit", "said"), [
    (1.806e6, "rows/s", "1.81 M rows/s"), (8_932, "packets/s", "8.93 k packets/s"), (113.6, "µs CPU", "114 µs CPU"),
    (5.148e-05, "s", "51.5 µs"), (0.785, "s", "785 ms"), (1.178e6, "B", "1.18 MB"), (0.5, "ms", "0.5 ms"), (0, "s", "0 s"),
])  # fmt: skip
def test_figures_are_written_as_people_say_them(value: float, unit: str, said: str) -> None:
    assert page.figure(value, unit) == said


def test_a_level_curve_is_drawn_for_linear_growth() -> None:
    [line] = [
        each for each in ElementTree.fromstring(plot.growth([rates(1.0)])).iter() if each.tag.endswith("polyline")
    ]
    heights = {point.split(",")[1] for point in line.attrib["points"].split()}
    assert len(heights) == 1


def test_a_case_is_met_at_its_bar() -> None:
    assert is_met(case("x", 1, 1, "y", "s", bar=1.0, ratio=1.0))
    assert is_met(case("x", 1, 1, "y", "s", bar=1.0, ratio=1.0, at_most=True))
    assert not is_met(case("x", 1, 1, "y", "s", bar=1.0, ratio=1.01, at_most=True))
