"""Looking for segments without Spark's stream, as in a bucket: nothing is passed over, and a look does not cost more for
every batch that landed before. No Spark here.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from syncline.lake import deltas, pipeline
from syncline.lake.batch import InProcess
from syncline.lake.landed import read_transactions
from syncline.lake.pipeline import Lag, Pipeline
from syncline.lake.roots import Lake, Root
from syncline.lake.segments import Segment, list_segments
from syncline.testing.segments import FakeJournal, in_pieces, write_segments
from tests.lake.conftest import arrivals, rows

DAY = 86_400
Sweeping = Callable[..., Pipeline]


@pytest.fixture
def sweeping(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Sweeping:
    monkeypatch.setattr(pipeline, "OnSpark", lambda _: InProcess())
    return lambda **options: Pipeline(SimpleNamespace(), lake, stages={}, **options)  # type: ignore[arg-type]


def seal(lake: Lake, journal: FakeJournal, count: int, step: int = 60) -> None:
    for piece in in_pieces(journal.keep(arrivals(count, step=step)), 2):
        write_segments(lake.segments.path, piece)


def test_a_sweep_lands_all_there_is_in_batches_of_the_size_asked_for(lake: Lake, sweeping: Sweeping) -> None:
    seal(lake, FakeJournal("a"), 20)
    own = sweeping(batch_segments=4)
    assert own.lag() == Lag(10, 20)
    own.sweep()
    assert (own.summary.batches, own.summary.segments, own.lag()) == (3, 10, Lag())
    assert sorted(rows(lake, "records")["lsn"].to_pylist()) == list(range(1, 21))


def test_a_sweep_over_landed_segments_reads_each_tables_log_once(
    lake: Lake, sweeping: Sweeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    seal(lake, FakeJournal("a"), 40)
    sweeping().sweep()
    read: list[str] = []

    def counting(root: Root, version: int, wanted: list[str]) -> dict[str, int]:
        read.append(root.url)
        return read_transactions(root, version, wanted)

    monkeypatch.setattr(deltas, "read_transactions", counting)
    sweeping(batch_segments=2).sweep()
    assert len(read) == len(set(read)) == 4


def test_a_look_at_the_last_days_does_not_list_the_others(lake: Lake, sweeping: Sweeping) -> None:
    seal(lake, FakeJournal("a"), 6, step=DAY)
    dates = sorted({found.date for found in list_segments(lake.segments) if isinstance(found, Segment)})
    assert len(dates) == 6
    assert {found.date for found in list_segments(lake.segments, dates[4]) if isinstance(found, Segment)} == {
        *dates[4:]
    }
    own = sweeping()
    own.sweep(dates[4])
    assert (own.summary.records, own.lag(dates[4]), own.lag().segments) == (2, Lag(), 4)
    own.sweep()
    assert (own.summary.records, own.lag()) == (6, Lag())


def test_names_no_node_gives_are_told_wherever_they_are(lake: Lake) -> None:
    for place in ("a.parquet", "protocol=x/b.parquet", "protocol=x/date=2026-01-01/c/d.parquet", ".hidden/e.parquet"):
        (lake.segments.path / place).parent.mkdir(parents=True, exist_ok=True)
        (lake.segments.path / place).write_bytes(b"")
    assert sorted(map(str, list_segments(lake.segments))) == [
        "a.parquet",
        "protocol=x/b.parquet",
        "protocol=x/date=2026-01-01/c/d.parquet",
    ]
