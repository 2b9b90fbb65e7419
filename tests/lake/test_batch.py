"""A batch is landed exactly once, whatever was landed before and whoever else is landing. No Spark here."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from syncline.core.record import Record
from syncline.formats.records import from_arrow
from syncline.lake.batch import InProcess, Lander, clear_left_exchanges
from syncline.lake.deltas import BatchName
from syncline.lake.roots import Lake
from syncline.lake.segments import Segment, list_segments
from syncline.testing.segments import FakeJournal, in_pieces, write_segments
from tests.lake.conftest import arrivals, rows


def sealed(lake: Lake) -> list[Segment]:
    return sorted(found for found in list_segments(lake.segments) if isinstance(found, Segment))


def seal(lake: Lake, records: list[Record], size: int = 10) -> None:
    for piece in in_pieces(records, size):
        write_segments(lake.segments.path, piece)


def lander(lake: Lake) -> Lander:
    return Lander(lake, {}, InProcess())


def in_lake(lake: Lake) -> list[Record]:
    found = rows(lake, "records").drop_columns(["date"])
    return sorted((record for batch in found.to_batches() for record in from_arrow(batch)), key=lambda r: r.name)


def test_every_record_comes_back_from_the_lake_as_it_was_sealed(lake: Lake) -> None:
    records = FakeJournal("a").keep(arrivals(100))
    seal(lake, records)
    result = lander(lake).land(sealed(lake))
    assert (result.segments, result.records) == (10, 100)
    assert result.added == {"records": 100, "rejected": 14, "audit": 0, "segments": 10}
    assert in_lake(lake) == records


def test_rejected_holds_what_the_node_turned_away_and_why(lake: Lake) -> None:
    seal(lake, FakeJournal("a").keep(arrivals(21)))
    lander(lake).land(sealed(lake))
    found = rows(lake, "rejected").sort_by("lsn").select(["lsn", "verdict", "reason", "judged_by"]).to_pylist()
    assert found == [
        {"lsn": lsn, "verdict": "reject", "reason": "malformed", "judged_by": "node"} for lsn in (4, 11, 18)
    ]


def test_landing_the_same_segments_again_adds_nothing(lake: Lake) -> None:
    seal(lake, FakeJournal("a").keep(arrivals(50)))
    lander(lake).land(sealed(lake), BatchName("q", 0))
    version = DeltaTable(lake.table("records").url).version()
    assert lander(lake).land(sealed(lake), BatchName("another query", 0)).records == 0
    assert DeltaTable(lake.table("records").url).version() == version
    assert rows(lake, "records").num_rows == 50


def test_a_batch_that_overlaps_an_earlier_one_lands_only_the_rest(lake: Lake) -> None:
    records = FakeJournal("a").keep(arrivals(60))
    seal(lake, records)
    segments = sealed(lake)
    assert lander(lake).land(segments[1:4]).records == 30
    assert lander(lake).land(segments).records == 30
    assert in_lake(lake) == records


def test_segments_of_many_nodes_are_told_apart_by_one_look_at_the_log(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    journals = [FakeJournal(f"node {number}") for number in range(12)]
    for count in (10, 30):
        for journal in journals:
            seal(lake, journal.keep(arrivals(count)))
        with monkeypatch.context() as patch:
            patch.setattr(DeltaTable, "transaction_version", lambda *_: pytest.fail("one by one"))
            assert lander(lake).land(sealed(lake)).records == 12 * count
            assert lander(lake).land(sealed(lake)).records == 0
    assert rows(lake, "records").num_rows == 12 * 40
    delta = DeltaTable(lake.table("records").url)
    assert {delta.transaction_version(f"lsn/{journal.node}/{journal.epoch}/plain") for journal in journals} == {40}


def test_a_table_that_missed_a_batch_catches_up_alone(lake: Lake) -> None:
    """What a kill between two tables' commits leaves behind."""
    seal(lake, FakeJournal("a").keep(arrivals(50)))
    lander(lake).land(sealed(lake)[:2])
    lander(lake).land(sealed(lake))
    (lake.table("rejected").path / "_delta_log" / f"{2:020d}.json").unlink()
    assert rows(lake, "rejected").num_rows == 3
    result = lander(lake).land(sealed(lake))
    assert result.added == {"rejected": 4}
    assert rows(lake, "rejected").num_rows == 7
    assert rows(lake, "records").num_rows == 50


def test_a_node_rebuilt_from_nothing_does_not_collide_with_its_past(lake: Lake) -> None:
    for life in (1, 2):
        seal(lake, FakeJournal("a", life).keep(arrivals(30)))
        lander(lake).land(sealed(lake))
    names = {(row["node"], row["epoch"], row["lsn"]) for row in rows(lake, "records").to_pylist()}
    assert len(names) == rows(lake, "records").num_rows == 60


def test_rows_of_several_days_and_protocols_go_to_their_own_partitions(lake: Lake) -> None:
    journal = FakeJournal("a")
    mixed = [*arrivals(24, step=7_200), *arrivals(24, protocol="other", step=7_200)]
    seal(lake, journal.keep(mixed), size=48)
    lander(lake).land(sealed(lake))
    partitions = DeltaTable(lake.table("records").url).partitions()
    assert sorted((part["protocol"], part["date"]) for part in partitions) == [
        ("other", "2026-03-01"),
        ("other", "2026-03-02"),
        ("plain", "2026-03-01"),
        ("plain", "2026-03-02"),
    ]


def test_two_pipelines_landing_the_same_segments_at_once_land_them_once(lake: Lake) -> None:
    seal(lake, FakeJournal("a").keep(arrivals(40)))
    segments = sealed(lake)

    class RivalInBetween(InProcess):
        """Lets another pipeline land everything between our work and our commit."""

        def run(self, function, tasks, title):  # type: ignore[no-untyped-def]
            answers = super().run(function, tasks, title)
            if title.startswith("land"):
                lander(lake).land(segments)
            return answers

    assert Lander(lake, {}, RivalInBetween()).land(segments[:3]).records == 0
    assert rows(lake, "records").num_rows == 40


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
def test_a_damaged_segment_is_put_aside_and_the_others_land(lake: Lake, cut: int) -> None:
    seal(lake, FakeJournal("a").keep(arrivals(30)))
    victim = lake.segments.path / sealed(lake)[1].path
    content = victim.read_bytes()
    victim.write_bytes(content[:cut])
    result = lander(lake).land(sealed(lake))
    assert [damage.path for damage in result.damaged] == [str(victim.relative_to(lake.segments.path))]
    assert result.records == 20
    aside = lake.segments.path / ".quarantine" / victim.relative_to(lake.segments.path)
    assert aside.read_bytes() == content[:cut]
    assert Path(f"{aside}.reason.txt").read_text() == "not a whole Parquet file\n"
    assert not victim.exists()
    victim.write_bytes(content)
    assert lander(lake).land(sealed(lake)).records == 10
    assert rows(lake, "records").num_rows == 30


def test_a_segment_that_somebody_else_took_away_meanwhile_is_passed_over(lake: Lake) -> None:
    seal(lake, FakeJournal("a").keep(arrivals(30)))
    segments = sealed(lake)
    path = lake.segments.path / segments[1].path
    content = path.read_bytes()
    path.unlink()
    result = lander(lake).land(segments)
    assert (result.records, result.damaged) == (20, [])
    path.write_bytes(content)
    assert lander(lake).land(segments).records == 10, "it was not taken for landed"


def test_exchange_files_of_a_killed_run_are_removed_by_the_next(lake: Lake) -> None:
    left = lake.tables.path / "_exchange" / "killed" / "sdsp_frames-1.arrow"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"left behind")
    clear_left_exchanges(lake)
    assert left.exists(), "it may be in use"
    clear_left_exchanges(lake, alone=True)
    assert not left.parent.exists()


def test_a_flipped_bit_in_a_segment_is_noticed(lake: Lake) -> None:
    seal(lake, FakeJournal("a").keep(arrivals(30)), size=30)
    [segment] = sealed(lake)
    path = lake.segments.path / segment.path
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0x10
    path.write_bytes(content)
    result = lander(lake).land([segment])
    assert (result.records, len(result.damaged)) == (0, 1)
    assert rows(lake, "records").num_rows == 0


def test_a_segment_under_another_ones_name_is_not_believed(lake: Lake) -> None:
    seal(lake, FakeJournal("a").keep(arrivals(20)))
    one, other = (lake.segments.path / segment.path for segment in sealed(lake))
    other.write_bytes(one.read_bytes())
    result = lander(lake).land(sealed(lake))
    assert [damage.why for damage in result.damaged] == [f"the segment belongs at {sealed(lake)[0].path}"]
    assert rows(lake, "records").num_rows == 10
