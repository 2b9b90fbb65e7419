"""What a table's log says of segments, read in bulk, is what delta-rs says one by one, checkpoints included."""

from __future__ import annotations

from deltalake import DeltaTable

from syncline.lake.batch import InProcess, Lander
from syncline.lake.landed import chain_name, read_transactions, segment_name
from syncline.lake.roots import Lake
from syncline.lake.segments import Segment, list_segments
from syncline.testing.segments import FakeJournal, write_segments
from tests.lake.conftest import arrivals


def test_the_log_read_in_bulk_agrees_with_delta_rs_before_and_after_a_checkpoint(lake: Lake) -> None:
    journal, lander = FakeJournal("a"), Lander(lake, {}, InProcess())
    for number in range(4):
        write_segments(lake.segments.path, journal.keep(arrivals(5, first=number * 5)))
        lander.land([found for found in list_segments(lake.segments) if isinstance(found, Segment)])
        if number == 1:
            DeltaTable(lake.table("records").url).create_checkpoint()
    segments = sorted(found for found in list_segments(lake.segments) if isinstance(found, Segment))
    delta = DeltaTable(lake.table("records").url)
    found = read_transactions(lake.table("records"), delta.version())
    names = [*(segment_name(segment) for segment in segments), chain_name(segments[0])]
    assert sorted(found) == sorted(names)
    assert {name: delta.transaction_version(name) for name in names} == found
    assert found[chain_name(segments[0])] == 20
    early = read_transactions(lake.table("records"), 1)
    assert sorted(early) == sorted([segment_name(segments[0]), chain_name(segments[0])])
    wanted = read_transactions(lake.table("records"), delta.version(), [names[0], names[3], "seg/never landed"])
    assert wanted == {names[0]: 0, names[3]: 0}, "one from the checkpoint, one from a commit"
