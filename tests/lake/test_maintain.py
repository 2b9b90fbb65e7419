"""Housekeeping beside the pipeline: files become fewer, old ones go, nothing that counts is lost. No Spark here."""

from __future__ import annotations

import datetime
import os
import threading
import time

import msgspec
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.table import TableAlterer

from syncline.core.errors import ConflictError, SynclineError
from syncline.lake.batch import InProcess, Lander
from syncline.lake.deltas import LakeTable
from syncline.lake.files import AddedFile
from syncline.lake.maintain import drop_old_records, drop_old_segments, optimize, table_facts, vacuum
from syncline.lake.query import Queries
from syncline.lake.refold import refold
from syncline.lake.roots import Lake
from syncline.lake.segments import Segment, list_segments
from syncline.lake.stages import all_tables, built_in_stages
from syncline.lake.stages.sdsp import FRAMES, OBJECTS, STAGES
from syncline.lake.tables import RECORDS, Column
from syncline.testing.segments import FakeJournal
from syncline.testing.traffic import Traffic, seal
from tests.lake.conftest import rows
from tests.lake.truth import assert_tables_equal

TABLES = list(all_tables(built_in_stages().values()).values())


def sealed(lake: Lake) -> list[Segment]:
    return sorted(found for found in list_segments(lake.segments) if isinstance(found, Segment))


def lander(lake: Lake) -> Lander:
    return Lander(lake, built_in_stages(), InProcess(), buckets=2)


def landed(lake: Lake, seed: int = 31, batches: int = 6) -> Traffic:
    """A lake that grew in several batches."""
    traffic, journal = Traffic(seed), FakeJournal("a")
    for _ in range(batches):
        seal(lake.segments.path, traffic.receive(journal, traffic.publish(60), garbage=0.1))
        lander(lake).land(sealed(lake))
    return traffic


def test_optimize_leaves_fewer_files_and_the_same_rows(lake: Lake) -> None:
    traffic = landed(lake)
    before = {facts.name: facts.files for facts in table_facts(lake, TABLES)}
    done = {each.name: (each.files_before, each.files_after) for each in optimize(lake, TABLES)}
    assert before["records"] >= 6
    assert done["records"] == (before["records"], 1)
    assert done["sdsp_frames"] == (before["sdsp_frames"], 2)
    assert_tables_equal(lake, traffic.truth)
    optimize(lake, TABLES, by_key=True)
    assert_tables_equal(lake, traffic.truth)
    seal(lake.segments.path, traffic.receive(FakeJournal("b"), traffic.publish(60)))
    lander(lake).land(sealed(lake))
    assert_tables_equal(lake, traffic.truth)


def test_table_facts_tell_rows_files_and_version(lake: Lake) -> None:
    traffic = landed(lake, batches=2)
    facts = {each.name: each for each in table_facts(lake, TABLES)}
    assert facts["records"].rows == len(traffic.truth.records)
    assert facts["sdsp_frames"].rows == 120
    assert facts["sdsp_objects"].rows == len(traffic.truth.newest())
    assert (facts["records"].version, facts["records"].files) == (2, 2)
    assert facts["records"].bytes > 1_000


def test_compaction_and_z_order_racing_state_rewrites_corrupt_nothing(lake: Lake) -> None:
    """Others may run any compaction, on any table, at any moment."""
    traffic, journal = Traffic(32, objects=6), FakeJournal("a")
    seal(lake.segments.path, traffic.receive(journal, traffic.publish(60)))
    lander(lake).land(sealed(lake))
    over = threading.Event()
    done = {"compactions": 0, "conflicts": 0}

    def compact() -> None:
        while not over.is_set():
            for name in ("sdsp_objects", "sdsp_frames", "records"):
                try:
                    table = DeltaTable(lake.table(name).url)
                    key = "uid" if name != "records" else "lsn"
                    table.optimize.z_order([key], commit_properties=CommitProperties(max_commit_retries=0))
                    done["compactions"] += 1
                except CommitFailedError:
                    done["conflicts"] += 1

    rival = threading.Thread(target=compact)
    rival.start()
    try:
        for _ in range(15):
            seal(lake.segments.path, traffic.receive(journal, traffic.publish(40), disorder=10))
            for attempt in range(20):
                try:
                    lander(lake).land(sealed(lake))
                    break
                except SynclineError:
                    assert attempt < 19
    finally:
        over.set()
        rival.join()
    assert done["compactions"] > 5
    assert_tables_equal(lake, traffic.truth)


def test_a_state_rewrite_from_an_old_snapshot_is_refused(lake: Lake) -> None:
    """The three ways in which delta-rs would carry a stale rewrite past a change of its bucket."""
    landed(lake, batches=1)
    stale = LakeTable.open(lake.table(OBJECTS.name), OBJECTS, buckets=2)
    seal(lake.segments.path, Traffic(33).receive(FakeJournal("c"), Traffic(33).publish(20)))
    traffic = Traffic(34)
    seal(lake.segments.path, traffic.receive(FakeJournal("b"), traffic.publish(50)))
    lander(lake).land(sealed(lake))
    before = rows(lake, OBJECTS.name).num_rows
    with pytest.raises(ConflictError):
        stale.commit([], [], sealed(lake), None)
    assert rows(lake, OBJECTS.name).num_rows == before


def test_a_file_that_is_not_there_is_not_committed(lake: Lake) -> None:
    landed(lake, batches=1)
    table = LakeTable.open(lake.table(RECORDS.name), RECORDS, buckets=2)
    ghost = AddedFile(
        RECORDS.name, "protocol=x/date=2026-03-01/ghost.parquet", 7, 1, {"protocol": "x", "date": "2026-03-01"}, "{}"
    )
    with pytest.raises(SynclineError, match="not where the driver sees it"):
        table.commit([ghost], [], sealed(lake), None)


def test_vacuum_removes_orphans_and_old_versions_but_nothing_fresh(lake: Lake) -> None:
    traffic = landed(lake)
    optimize(lake, TABLES)
    orphan = lake.table("records").path / "protocol=sdsp" / "date=2026-03-01" / "orphan.parquet"
    orphan.write_bytes(b"left by a killed batch")
    assert sum(vacuum(lake, TABLES, hours=1).values()) == 0, "everything is younger than an hour"
    long_ago = time.time() - 7 * 86_400
    for path in lake.tables.path.rglob("*.parquet"):
        os.utime(path, (long_ago, long_ago))
    would = vacuum(lake, TABLES, hours=1, dry_run=True)
    assert orphan.exists()
    gone = vacuum(lake, TABLES, hours=1)
    assert gone == would
    assert gone["records"] >= 1
    assert not orphan.exists()
    assert_tables_equal(lake, traffic.truth)


def test_retention_drops_whole_days_and_segments_only_once_all_tables_hold_them(lake: Lake) -> None:
    traffic, journal = Traffic(35), FakeJournal("a")
    day = 86_400_000_000
    seal(lake.segments.path, traffic.receive(journal, traffic.publish(40), step=day // 20))
    segments = sealed(lake)
    dates = sorted({segment.date for segment in segments})
    assert len(dates) >= 2
    today = datetime.date.fromisoformat(dates[-1])
    assert drop_old_segments(lake, built_in_stages(), days=0, today=today) == 0, "nothing has landed yet"
    lander(lake).land(segments)
    old = [segment for segment in segments if segment.date < dates[-1]]
    assert drop_old_segments(lake, built_in_stages(), days=0, today=today, dry_run=True) == len(old)
    assert drop_old_segments(lake, built_in_stages(), days=0, today=today) == len(old)
    assert {segment.date for segment in sealed(lake)} == {dates[-1]}
    drop_old_records(lake, days=0, today=today)
    assert {str(date) for date in rows(lake, "records")["date"].to_pylist()} == {dates[-1]}
    assert lander(lake).land(segments).records == 0, "what was dropped does not come back"
    assert rows(lake, "sdsp_frames").num_rows == 40


def test_new_columns_appear_in_old_tables_and_queries_see_both(lake: Lake) -> None:
    landed(lake, batches=1)
    wider = msgspec.structs.replace(
        OBJECTS, columns=(*OBJECTS.columns, Column("colour", pa.string(), "a column of a later version"))
    )
    LakeTable.open(lake.table(OBJECTS.name), wider, buckets=2)
    names = [field.name for field in DeltaTable(lake.table(OBJECTS.name).url).schema().fields]
    assert names[-1] == "colour"
    with Queries(lake, [wider]) as queries:
        found = queries.ask("SELECT count(*) AS n, count(colour) AS c FROM sdsp_objects").rows.to_pylist()
    assert found == [{"n": rows(lake, OBJECTS.name).num_rows, "c": 0}]
    landed(lake, seed=36, batches=1)


class Killed(BaseException):
    pass


def killed(*_: object, **__: object) -> None:
    raise Killed


def test_a_kill_while_columns_are_added_leaves_a_table_that_can_be_asked(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed(lake, batches=1)
    wider = msgspec.structs.replace(
        OBJECTS, columns=(*OBJECTS.columns, Column("colour", pa.string(), "a column of a later version"))
    )
    for doomed in ("add_columns", "set_table_properties"):
        with monkeypatch.context() as patch:
            patch.setattr(TableAlterer, doomed, killed)
            with pytest.raises(Killed):
                LakeTable.open(lake.table(OBJECTS.name), wider, buckets=2)
        for known in (OBJECTS, wider):
            with Queries(lake, [known]) as queries:
                assert queries.ask("SELECT count(*) AS n FROM sdsp_objects").rows["n"].to_pylist() != [0]
    LakeTable.open(lake.table(OBJECTS.name), wider, buckets=2)
    with Queries(lake, [wider]) as queries:
        assert queries.ask("SELECT count(colour) AS c FROM sdsp_objects").rows["c"].to_pylist() == [0]


def test_state_folded_anew_from_its_source_equals_the_state_that_grew(lake: Lake) -> None:
    traffic = landed(lake)
    grown = rows(lake, OBJECTS.name).sort_by("uid")
    assert refold(lake, STAGES, STAGES.states[0], InProcess()) == grown.num_rows
    assert rows(lake, OBJECTS.name).sort_by("uid").equals(grown)
    seal(lake.segments.path, traffic.receive(FakeJournal("b"), traffic.publish(60)))
    lander(lake).land(sealed(lake))
    assert_tables_equal(lake, traffic.truth)


def test_a_lost_state_table_is_folded_anew_and_knows_its_segments(lake: Lake) -> None:
    import shutil

    traffic = landed(lake)
    shutil.rmtree(lake.table(OBJECTS.name).path)
    refold(lake, STAGES, STAGES.states[0], InProcess())
    assert lander(lake).lacking(sealed(lake)) == {}
    assert_tables_equal(lake, traffic.truth)
    assert FRAMES.name in {facts.name for facts in table_facts(lake, TABLES)}
