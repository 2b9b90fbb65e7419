"""SDSP in the lake: frames once each, objects as their publishers made them, however the frames came. No Spark here."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import pairwise

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.core.record import Incoming
from syncline.core.settings import SegmentSettings
from syncline.journal import Drainer, Journal, LocalTarget
from syncline.lake.batch import InProcess, Lander
from syncline.lake.reprocess import reprocess
from syncline.lake.roots import Lake
from syncline.lake.segments import Segment, list_segments
from syncline.lake.stages import built_in_stages
from syncline.lake.stages.sdsp import FRAMES, OBJECTS, examine, fold_objects
from syncline.protocols.sdsp.rules import NOTHING_KNOWN, judge
from syncline.protocols.sdsp.wire import Frame, add_history_uri, delta_frame, encode, freeze_frame, full_frame
from syncline.testing.clock import FakeClock
from syncline.testing.segments import DAY_ZERO, FakeJournal, write_segments
from syncline.testing.traffic import Traffic, seal
from tests.lake.conftest import rows
from tests.lake.truth import assert_tables_equal, objects


def sealed(lake: Lake) -> list[Segment]:
    return sorted(found for found in list_segments(lake.segments) if isinstance(found, Segment))


def land(lake: Lake, segments: list[Segment] | None = None) -> None:
    Lander(lake, built_in_stages(), InProcess(), buckets=4).land(sealed(lake) if segments is None else segments)


def receive(lake: Lake, journal: FakeJournal, *raws: bytes) -> None:
    """Let a node keep and seal these frames."""
    incoming = [
        Incoming(protocol="sdsp", topic="t", raw=raw, peer="p", received_at=DAY_ZERO + index)
        for index, raw in enumerate(raws)
    ]
    write_segments(lake.segments.path, journal.keep(judge(each, lambda _: NOTHING_KNOWN) for each in incoming))


def step(serial: int, ver: int, value: int) -> bytes:
    return encode(delta_frame("u", serial, ver, "jp", [{"op": "replace", "path": "/n", "value": value}]))


FULL = encode(full_frame("u", 0, {"n": 0}))


def test_frames_and_objects_equal_the_truth(lake: Lake) -> None:
    traffic = Traffic(1)
    seal(lake.segments.path, traffic.receive(FakeJournal("a"), traffic.publish(500), repeats=0.1, garbage=0.1))
    land(lake)
    assert_tables_equal(lake, traffic.truth)


def test_two_nodes_that_received_the_same_frames_give_one_row_each(lake: Lake) -> None:
    traffic = Traffic(2)
    sent = traffic.publish(300)
    for name in ("a", "b"):
        seal(lake.segments.path, traffic.receive(FakeJournal(name), sent, disorder=20, repeats=0.1))
    land(lake)
    assert rows(lake, "sdsp_frames").num_rows == 300
    assert_tables_equal(lake, traffic.truth)


def test_the_same_frames_landed_later_from_another_node_change_nothing(lake: Lake) -> None:
    traffic = Traffic(3)
    sent = traffic.publish(200)
    seal(lake.segments.path, traffic.receive(FakeJournal("a"), sent))
    land(lake)
    before = DeltaTable(lake.table("sdsp_objects").url).file_uris()
    seal(lake.segments.path, traffic.receive(FakeJournal("b"), sent, disorder=50))
    land(lake)
    assert DeltaTable(lake.table("sdsp_objects").url).file_uris() == before
    assert_tables_equal(lake, traffic.truth)


def test_late_and_disordered_frames_in_any_number_of_batches_make_the_same_objects(lake: Lake) -> None:
    traffic = Traffic(4, objects=5)
    sent = traffic.publish(400)
    seal(lake.segments.path, traffic.receive(FakeJournal("a"), sent, disorder=120), size=20)
    segments = sealed(lake)
    random.Random(4).shuffle(segments)
    for start in range(0, len(segments), 3):
        land(lake, segments[start : start + 3])
    assert_tables_equal(lake, traffic.truth)


def test_each_node_may_have_only_part_of_the_frames(lake: Lake) -> None:
    traffic = Traffic(5)
    sent = traffic.publish(300)
    for index, name in enumerate(("a", "b", "c")):
        seal(lake.segments.path, traffic.receive(FakeJournal(name), sent[index::3]))
        land(lake)
    assert_tables_equal(lake, traffic.truth)


def test_an_object_waits_for_a_missing_frame_and_catches_up(lake: Lake) -> None:
    journal = FakeJournal("a")
    receive(lake, journal, FULL, step(1, 1, 1), step(3, 3, 3), step(4, 4, 4))
    land(lake)
    assert objects(lake) == {"u": ("synced", 1, 1, {"n": 1})}
    assert rows(lake, "sdsp_objects").select(["newest", "pending"]).to_pylist() == [{"newest": 4, "pending": 2}]
    receive(lake, journal, step(2, 2, 2))
    land(lake)
    assert objects(lake) == {"u": ("synced", 4, 4, {"n": 4})}
    assert rows(lake, "sdsp_objects")["pending"].to_pylist() == [0]


def test_an_object_without_a_full_frame_is_waiting(lake: Lake) -> None:
    journal = FakeJournal("a")
    receive(lake, journal, step(5, 2, 2))
    land(lake)
    assert objects(lake) == {"u": ("waiting", None, None, None)}
    receive(lake, journal, encode(full_frame("u", 3, {"n": 0})), step(4, 1, 1))
    land(lake)
    assert objects(lake) == {"u": ("synced", 5, 2, {"n": 2})}


def test_a_delta_that_does_not_fit_leaves_the_object_stale_until_the_next_full_frame(lake: Lake) -> None:
    journal = FakeJournal("a")
    bad = encode(delta_frame("u", 1, 1, "jp", [{"op": "remove", "path": "/nothing"}]))
    receive(lake, journal, FULL, bad, step(2, 2, 2))
    land(lake)
    assert objects(lake) == {"u": ("stale", 0, 0, {"n": 0})}
    assert rows(lake, "sdsp_objects")["problem"].to_pylist() == ["delta_failed at serial 1"]
    receive(lake, journal, encode(full_frame("u", 3, {"n": 30})))
    land(lake)
    assert objects(lake) == {"u": ("synced", 3, 0, {"n": 30})}
    assert rows(lake, "sdsp_objects")["problem"].to_pylist() == [None]


def test_a_copy_that_differs_only_in_where_its_history_is_is_no_second_row(lake: Lake) -> None:
    receive(lake, FakeJournal("a"), FULL)
    receive(lake, FakeJournal("b"), add_history_uri(FULL, "http://b.example/h"))
    land(lake)
    receive(lake, FakeJournal("c"), add_history_uri(FULL, "http://c.example/h"))
    land(lake)
    assert rows(lake, "sdsp_frames").num_rows == 1
    assert rows(lake, "records").num_rows == 3


@pytest.mark.parametrize("together", [True, False])
def test_a_fork_keeps_both_frames_and_makes_the_object_stale(lake: Lake, together: bool) -> None:
    receive(lake, FakeJournal("a"), FULL, step(1, 1, 1), step(2, 2, 2))
    if not together:
        land(lake)
        assert objects(lake) == {"u": ("synced", 2, 2, {"n": 2})}
    receive(lake, FakeJournal("b"), FULL, step(1, 1, 99))
    land(lake)
    assert sorted(rows(lake, "sdsp_frames")["serial"].to_pylist()) == [0, 1, 1, 2]
    assert objects(lake) == {"u": ("stale", 0, 0, {"n": 0})}


def test_a_frozen_object_takes_no_more_frames(lake: Lake) -> None:
    receive(lake, FakeJournal("a"), FULL, step(1, 1, 1), encode(freeze_frame("u", 2, 2)))
    land(lake)
    receive(lake, FakeJournal("b"), encode(full_frame("u", 3, {"n": 3})))
    land(lake)
    assert objects(lake) == {"u": ("frozen", 2, 2, {"n": 1})}


def test_texts_and_binaries_are_objects_too(lake: Lake) -> None:
    from syncline.protocols.sdsp.deltas import Deltas
    from syncline.protocols.sdsp.wire import ObjectKind

    deltas = Deltas()
    text, blob = deltas["md"].make("héllo", "héllo wörld"), deltas["X-vcdiff"].make(b"\0\1" * 50, b"\0\1" * 60)
    receive(
        lake,
        FakeJournal("a"),
        encode(full_frame("t", 0, "héllo", ObjectKind.TEXT)),
        encode(delta_frame("t", 1, 1, "md", text)),
        encode(full_frame("b", 0, b"\0\1" * 50, ObjectKind.BINARY)),
    )
    land(lake)
    receive(lake, FakeJournal("b"), encode(delta_frame("b", 1, 1, "X-vcdiff", blob)))
    land(lake)
    found = rows(lake, "sdsp_objects").sort_by("uid").select(["uid", "kind", "serial", "value", "data"]).to_pylist()
    assert found == [
        {"uid": "b", "kind": "binary", "serial": 1, "value": None, "data": b"\0\1" * 60},
        {"uid": "t", "kind": "text", "serial": 1, "value": "héllo wörld", "data": None},
    ]


def test_the_lake_turns_away_what_a_node_should_not_have_accepted(lake: Lake) -> None:
    """A node with other rules, or a forged segment: the bytes decide."""
    journal = FakeJournal("a")
    good = judge(
        Incoming(protocol="sdsp", topic="t", raw=FULL, peer="p", received_at=DAY_ZERO), lambda _: NOTHING_KNOWN
    )
    import msgspec

    bad = msgspec.structs.replace(good, raw=b"{", id=b"x")
    write_segments(lake.segments.path, journal.keep([good, bad]))
    result = Lander(lake, built_in_stages(), InProcess()).land(sealed(lake))
    assert result.differing == 1
    assert rows(lake, "rejected").select(["lsn", "judged_by", "verdict", "reason"]).to_pylist() == [
        {"lsn": 2, "judged_by": "lake", "verdict": "reject", "reason": "malformed"}
    ]
    assert rows(lake, "sdsp_frames").num_rows == 1


def test_state_that_missed_a_batch_its_source_has_is_folded_from_the_whole_batch(lake: Lake) -> None:
    """What a kill between the commits of frames and objects leaves behind."""
    traffic = Traffic(6)
    seal(lake.segments.path, traffic.receive(FakeJournal("a"), traffic.publish(200)))
    land(lake)
    (lake.table("sdsp_objects").path / "_delta_log" / f"{1:020d}.json").unlink()
    seal(lake.segments.path, traffic.receive(FakeJournal("b"), traffic.publish(100)))
    land(lake)
    assert_tables_equal(lake, traffic.truth)


frames_of_one_object = st.lists(
    st.one_of(
        st.integers(0, 9).map(lambda serial: full_frame("u", serial, {"n": serial * 10})),
        st.integers(1, 9).flatmap(
            lambda serial: st.integers(1, serial).map(
                lambda ver: delta_frame("u", serial, ver, "jp", [{"op": "replace", "path": "/n", "value": serial}])
            )
        ),
        st.integers(1, 9).map(lambda serial: freeze_frame("u", serial, 1)),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=200, deadline=None)
@given(frames=frames_of_one_object, cuts=st.lists(st.integers(1, 11), max_size=4))
def test_the_state_depends_on_the_set_of_frames_not_on_how_they_came(frames: list[Frame], cuts: list[int]) -> None:
    unique = list({encode(frame): frame for frame in frames})
    whole = fold_objects(OBJECTS.file_schema.empty_table(), table(unique), lambda keys, least=None: table([]))
    edges = [0, *sorted({cut for cut in cuts if cut < len(unique)}), len(unique)]
    state = OBJECTS.file_schema.empty_table()
    for start, end in pairwise(edges):
        past = unique[:start]
        state = fold_objects(state, table(unique[start:end]), lambda keys, least=None, past=past: table(past))
    assert state.to_pylist() == whole.to_pylist()


def table(raws: list[bytes]):  # type: ignore[no-untyped-def]
    import pyarrow as pa

    examined = examine(pa.table({"raw": pa.array(raws, pa.binary())}))
    return examined.rows[FRAMES.name]


def test_frames_show_their_attributes_as_columns(lake: Lake) -> None:
    receive(lake, FakeJournal("a"), FULL, step(1, 1, 5), encode(freeze_frame("u", 2, 2)))
    receive(lake, FakeJournal("a", 2), encode(full_frame("v", 7, None, uri="https://example.org/o")))
    land(lake)
    found = rows(lake, "sdsp_frames").sort_by([("uid", "ascending"), ("serial", "ascending")])
    names = ["uid", "serial", "ver", "kind", "alg", "frozen", "object_kind", "data_uri"]
    assert [tuple(row.values()) for row in found.select(names).to_pylist()] == [
        ("u", 0, 0, "full", None, False, "json", None),
        ("u", 1, 1, "delta", "jp", False, None, None),
        ("u", 2, 2, "freeze", None, True, None, None),
        ("v", 7, 0, "full", None, False, "json", "https://example.org/o"),
    ]
    assert json.loads(found["frame"].to_pylist()[1])["delta"] == [{"op": "replace", "path": "/n", "value": 5}]


@pytest.fixture
def journal(lake: Lake) -> Iterator[Journal]:
    journal = Journal.open(lake.segments.path.parent / "journal.db", node="12D3Koo", clock=FakeClock())
    yield journal
    journal.close()


def test_what_a_real_journal_sealed_lands_large_frames_included(lake: Lake, journal: Journal) -> None:
    """Raw bytes over 1 MiB are kept beside the segment, by reference."""
    large = encode(full_frame("big", 0, {"text": "x" * 1_500_000}))
    for raw in (FULL, step(1, 1, 1), b"garbage", large, FULL):
        incoming = Incoming(protocol="sdsp", topic="t", raw=raw, peer="p", received_at=DAY_ZERO)
        journal.append_sync([judge(incoming, lambda _: NOTHING_KNOWN)])
    Drainer(journal, LocalTarget(lake.segments.path), SegmentSettings()).drain()
    result = Lander(lake, built_in_stages(), InProcess()).land(sealed(lake))
    assert (result.records, result.differing, result.damaged) == (5, 0, [])
    assert objects(lake) == {"u": ("synced", 1, 1, {"n": 1}), "big": ("synced", 0, 0, {"text": "x" * 1_500_000})}
    [reference] = [ref for ref in rows(lake, "records")["raw_ref"].to_pylist() if ref]
    assert journal.blobs.get(reference) == large
    assert rows(lake, "rejected").num_rows == 1


def test_large_bytes_that_are_gone_are_reported_and_stop_nothing_else(lake: Lake, journal: Journal) -> None:
    import shutil

    large = encode(full_frame("big", 0, {"text": "x" * 1_500_000}))
    for raw in (FULL, large):
        incoming = Incoming(protocol="sdsp", topic="t", raw=raw, peer="p", received_at=DAY_ZERO)
        journal.append_sync([judge(incoming, lambda _: NOTHING_KNOWN)])
    Drainer(journal, LocalTarget(lake.segments.path), SegmentSettings()).drain()
    shutil.rmtree(lake.blobs.path)
    result = Lander(lake, built_in_stages(), InProcess()).land(sealed(lake))
    assert [damage.why for damage in result.damaged] == ["raw bytes that a record refers to are gone"]
    assert result.records == 2
    assert objects(lake) == {"u": ("synced", 0, 0, {"n": 0})}
    assert len(sealed(lake)) == 1, "the segment itself is sound and stays"


def test_reprocessing_keeps_rows_whose_large_bytes_are_gone_and_makes_them_when_they_are_back(
    lake: Lake, journal: Journal
) -> None:
    large = encode(full_frame("big", 0, {"text": "x" * 1_500_000}))
    for raw in (FULL, large):
        incoming = Incoming(protocol="sdsp", topic="t", raw=raw, peer="p", received_at=DAY_ZERO)
        journal.append_sync([judge(incoming, lambda _: NOTHING_KNOWN)])
    Drainer(journal, LocalTarget(lake.segments.path), SegmentSettings()).drain()
    aside = lake.blobs.path.rename(lake.blobs.path.with_name("aside"))
    Lander(lake, built_in_stages(), InProcess()).land(sealed(lake))
    assert set(objects(lake)) == {"u"}
    lake.blobs.path.rmdir()
    aside.rename(lake.blobs.path)
    reprocess(lake, built_in_stages(), InProcess(), ["sdsp_frames"])
    assert set(objects(lake)) == {"u", "big"}, "landed without its bytes, it is made once they are there"
    lake.blobs.path.rename(aside)
    before = objects(lake)
    reprocess(lake, built_in_stages(), InProcess(), ["sdsp_frames"])
    assert objects(lake) == before
    assert rows(lake, "sdsp_frames").num_rows == 2
