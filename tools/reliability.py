"""Writes docs/reliability.md from what the campaigns measured.

`make campaigns` leaves one JSON line for every figure and every outcome in build/figures.ndjson; this takes the newest of
each into docs/reliability.json, short and long form apart, and writes the page anew from there. Failures are shown.
"""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from tools.threats import THREATS

ROOT: Final = Path(__file__).resolve().parent.parent
FIGURES: Final = ROOT / "build" / "figures.ndjson"
RECORD: Final = ROOT / "docs" / "reliability.json"
PAGE: Final = ROOT / "docs" / "reliability.md"
REMARKS: Final = ROOT / "docs" / "reliability-remarks.md"
Figures = list[dict[str, Any]]


class Row(NamedTuple):
    """One campaign of the promise."""

    name: str
    asked: str  # long [short]
    holds_if: str
    files: tuple[str, ...]
    say: Callable[[Figures], str]


def _sum(figures: Figures, name: str, **only: Any) -> int:
    return sum(each.get(name, 0) for each in figures if all(each.get(key) == value for key, value in only.items()))


def _fuzz(figures: Figures) -> str:
    peak = max((each["peak_mb"] for each in figures), default=0)
    return f"{_sum(figures, 'inputs'):,} inputs to {len(figures)} decoders; peak {peak} MB"


def _kills(figures: Figures) -> str:
    return f"{_sum(figures, 'kills')} kills; {_sum(figures, 'acknowledged'):,} acknowledged records, all recovered"


def _kills_of_nodes(figures: Figures) -> str:
    acknowledged = _sum(figures, "acknowledged_relay") + _sum(figures, "acknowledged_sdsp")
    kept = sum(value for each in figures for name, value in each.items() if name.startswith("records_"))
    return (
        f"{_sum(figures, 'kills')} kills; {acknowledged:,} acknowledged, all there; {kept:,} records of five protocols"
    )


def _faults(figures: Figures) -> str:
    operations = _sum(figures, "operations")
    return f"{operations} operations failed, {_sum(figures, 'cuts')} power cuts; without fsync, on purpose, losses were seen"


def _corruption(figures: Figures) -> str:
    flips = sum(each["count"] for each in figures if "flips" in each.get("what", ""))
    cuts = sum(each["count"] for each in figures if each.get("what", "").startswith("cuts"))
    pages = sum(each["count"] for each in figures if "pages" in each.get("what", ""))
    return (
        f"{cuts:,} cuts (a segment at every byte), {flips:,} flips, {pages} zeroed or exchanged pages, swapped segments"
    )


def _lake(figures: Figures) -> str:
    places = [each["places"] for each in figures if "places" in each]
    in_turn, drawn = (
        sum(found if isinstance(found, int) else len(found) for found in places if isinstance(found, kind))
        for kind in (int, list)
    )
    return (
        f"{_sum(figures, 'kills')} drivers killed at random moments; {_sum(figures, 'records'):,} records, each once; "
        f"killed at {drawn} named places, and ended at {in_turn} one after the other"
    )


def _simulation(figures: Figures) -> str:
    seeds = max((each["seeds"] for each in figures), default=0)
    lost, copies = _sum(figures, "lost"), _sum(figures, "copies")
    return f"{seeds} seeds × {len(figures)} protocols; {lost:,} packets lost, {copies:,} copies"


def _bad_peers(figures: Figures) -> str:
    plans = {each["plan"]: each for each in figures if "honest_delivery" in each}
    if not plans:
        return ""
    least = min(each["honest_delivery"] for each in plans.values())
    ratios = [each["p99_ms"] / max(each["baseline_p99_ms"], 0.1) for each in plans.values()]
    over = sum(ratio > 2 for ratio in ratios)
    slow = f"; the p99 bar of 2 × was missed by {over} plans" if over else ""
    worst = f"honest p99 {max(ratios):.1f} × baseline at worst{slow}"
    return f"{len(plans)} plans; honest delivery {least:.1%} at least; {worst}"


def _load(figures: Figures) -> str:
    if not figures:
        return ""
    last = figures[-1]
    rates, waits, memory = last["per_second"], last["receive_to_durable_ms"], last["memory_mib"]
    spoken = ", ".join(f"{name} {rate}/s" for name, rate in sorted(rates.items()))
    return (
        f"{last['seconds']} s: {spoken}; receive → durable p50 {waits['p50']} ms, p99 {waits['p99']} ms; memory "
        f"{memory['first']} → {memory['last']} MiB, in the second half "
        f"{memory['second_half_over_first']} MiB above the first"
    )


def _oracle(figures: Figures) -> str:
    return f"{_sum(figures, 'messages'):,} messages, {_sum(figures, 'arrivals'):,} arrivals" if figures else ""


def _cluster(figures: Figures) -> str:
    executors, drivers = _sum(figures, "executors_killed"), _sum(figures, "drivers_killed")
    return f"{executors} executors and {drivers} drivers killed on a cluster of two workers"


def _mutants(figures: Figures) -> str:
    of = max((each["of"] for each in figures), default=0)
    return f"{len({each['mutant'] for each in figures})} of {of} tried, every one killed"


def _scale(figures: Figures) -> str:
    sizes = [each for each in figures if "nodes" in each]
    if not sizes:
        return ""
    last = max(sizes, key=lambda each: int(each["nodes"]))
    return f"{last['nodes']:,} nodes: {last['copies_per_node_and_message']} copies a message, p99 {last['p99_ms']} ms"


ROWS: Final = (
    Row("fuzz every decoder", "≥ 10 M inputs [500 k]", "only typed errors, memory < 200 MB", ("fuzz",), _fuzz),
    Row("round trips and differential tests", "≥ 10,000 examples", "no difference", ("round_trips", "sds_columns"),
        lambda f: f"{_sum(f, 'examples') + _sum(f, 'payloads'):,} examples, 0 differences"),
    Row("named bad inputs", "≥ 300", "each refused with its own reason, nothing kept as valid, sender counted iff reject",
        ("bad_inputs",), lambda f: f"{_sum(f, 'inputs')} inputs, {_sum(f, 'blamed')} senders counted"),
    Row("kill −9 the journal's process", "500 [25]", "acknowledged ⊆ recovered, order kept, no duplicate id",
        ("kill_journal",), _kills),
    Row("kill −9 the whole node under load", "500 [25]", "the same", ("kill_node",), _kills_of_nodes),
    Row("kill −9 a publisher of a group", "", "acknowledged is there and served, no number used twice", ("kill_svs",),
        _kills),
    Row("every write, fsync and rename failed once; power cuts", "all", "the same", ("faults_journal",), _faults),
    Row("corruption", "20 k cuts, 100 k flips [2 k, 5 k]", "always detected; intact data still readable",
        ("corruption_journal",), _corruption),
    Row("Spark driver killed", "15 + 100 [3 + 10]", "count == distinct == expected; state identical",
        ("kill_lake", "crash_points_lake"), _lake),
    Row("executor and driver killed on a cluster", "", "the tables end as the truth says", ("kill_cluster",), _cluster),
    Row("simulation of 20 nodes", "500 seeds × 5 protocols [20]", "converges, memory bounded, same seed → same trace",
        ("simulation",), _simulation),
    Row("catching up", "10,000 records missed", "all held, ≤ 1.1 × the bytes missed", ("sds_catchup",),
        lambda f: f"{_sum(f, 'missed'):,} missed, {f[-1]['ratio']} × their bytes" if f else ""),
    Row("bad peers", "≥ 15 plans", "honest delivery ≥ 99 %, attackers cut off, honest p99 ≤ 2 × baseline",
        ("bad_peers",), _bad_peers),
    Row("load held", "10 min [10 s]", "no drop, memory flat", ("load",), _load),
    Row("oracle", "5 M [20 k] records", "journal, tables, query and export equal", ("oracle",), _oracle),
    Row("mutants", "all [10]", "every one killed by some test", ("mutants",), _mutants),
    Row("many nodes", "1,000 [100] nodes", "cost of a message for a node does not grow", ("scale",), _scale),
)  # fmt: skip


def taken_in(record: dict[str, Any], lines: Iterable[str], today: str) -> dict[str, Any]:
    """The record with a run's lines in it. A campaign that was run replaces what was known of its form."""
    documents = [json.loads(line) for line in lines if line.strip()]
    touched: dict[str, dict[str, Any]] = {}
    for document in documents:
        told = document.get("figures") or document.get("outcome")
        key = f"{told['campaign']}/{'long' if told['long'] else 'short'}"
        run = touched.setdefault(key, {"date": today, "figures": [], "failed": [], "passed": 0, "seconds": 0.0})
        if "figures" in document:
            run["seed"] = told["seed"]
            run["figures"].append({k: v for k, v in told.items() if k not in ("campaign", "seed", "long")})
        else:
            run["seconds"] = round(run["seconds"] + told["seconds"], 1)
            if told["outcome"] == "passed":
                run["passed"] += 1
            else:
                run["failed"].append(told["test"])
    return dict(sorted({**record, **touched}.items()))


def page(record: dict[str, Any], remarks: str = "") -> str:
    """The page."""
    lines = [
        "<!-- Written by `python -m tools.reliability` from docs/reliability.json, after the campaigns. -->",
        "# Reliability",
        "",
        "**Promise.** A record is acknowledged only after fsync. At least once into the journal, exactly once into the",
        "tables. Bad input never stops the node; corruption of our own data is always loud (quarantined, exit code 4) and",
        "never silent. No loss that is not counted and named. Memory is bounded everywhere: every cache, queue, pool and",
        "buffer has a cap in `core/limits.py`.",
        "",
        "## Campaigns",
        "",
        "`make campaigns` runs all in their short form (in brackets), `make campaigns LONG=1` in full; both end by writing",
        "this page. Each prints its seed; `SYNCLINE_SEED=…` repeats a run. One alone:",
        "`python -m pytest -s tests/campaigns/test_NAME.py`, with `SYNCLINE_LONG=1` in full. Figures below are the newest",
        "of each form, failures included.",
        "",
        "| campaign | asked for | holds if | short form | long form | command |",
        "|---|---|---|---|---|---|",
        *(_row(row, record) for row in ROWS),
        "",
        "### Bad peers, one by one",
        "",
        *_bad_peer_table(record),
        "",
        "## Threats",
        "",
        "Each with its test (below `tests/`) and the cut-off it holds to.",
        "",
        "| surface | threat | test | cut-off |",
        "|---|---|---|---|",
        *(f"| {each.surface} | {each.threat} | `{each.test}` | {each.cut_off} |" for each in THREATS),
        "",
    ]
    return "\n".join(lines) + (f"\n{remarks}" if remarks else "")


def _row(row: Row, record: dict[str, Any]) -> str:
    command = " ".join(f"`pytest -s tests/campaigns/test_{name}.py`" for name in row.files)
    cells = [_cell(row, record, form) for form in ("short", "long")]
    return f"| {row.name} | {row.asked} | {row.holds_if} | {cells[0]} | {cells[1]} | {command} |"


def _cell(row: Row, record: dict[str, Any], form: str) -> str:
    runs = [record[f"{name}/{form}"] for name in row.files if f"{name}/{form}" in record]
    if not runs:
        return "not run yet"
    failed = [test for run in runs for test in run["failed"]]
    said = row.say([figure for run in runs for figure in run["figures"]])
    verdict = f"**failed: {', '.join(failed)}**" if failed else "held"
    seconds = sum(run["seconds"] for run in runs)
    seed = next((f", seed {run['seed']}" for run in runs if "seed" in run), "")
    return f"{verdict}: {said} ({runs[0]['date']}{seed}, {seconds:,.0f} s)"


def _bad_peer_table(record: dict[str, Any]) -> list[str]:
    run = record.get("bad_peers/long") or record.get("bad_peers/short")
    plans = {each["plan"]: each for each in run["figures"] if "honest_delivery" in each} if run else {}
    if not plans:
        return ["Not run yet."]
    lines = ["| plan | surface | answer | sent | cut after | honest delivery | honest p99 / baseline, ms |"]
    lines.append("|---|---|---|--:|--:|--:|--:|")
    for name, each in plans.items():
        cut = "–" if each["cut_after"] is None else f"{each['cut_after']:,}"
        lines.append(
            f"| {name} | {each['surface']} | {each['answer']} | {each['sent']:,} | {cut} "
            f"| {each['honest_delivery']:.1%} | {each['p99_ms']} / {each['baseline_p99_ms']} |"
        )
    return lines


def main() -> int:
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    figures = Path(sys.argv[1]) if len(sys.argv) > 1 else FIGURES
    if figures.exists():
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        record = taken_in(record, figures.read_text().splitlines(), today)
        RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    PAGE.write_text(page(record, REMARKS.read_text() if REMARKS.exists() else ""))
    print(f"docs/{PAGE.name} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
