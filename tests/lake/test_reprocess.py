"""History decoded anew: after a mended decoder the old rows are right too, once, whatever was killed. No Spark."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from syncline.core import crash
from syncline.core.errors import UnavailableError, UsageError
from syncline.lake import reprocess as module
from syncline.lake.batch import InProcess, Lander
from syncline.lake.lock import only_pipeline
from syncline.lake.maintain import drop_old_records
from syncline.lake.reprocess import reprocess
from syncline.lake.roots import Lake
from syncline.lake.segments import Segment, list_segments
from syncline.lake.stages import Examined, Stages, built_in_stages
from syncline.testing.segments import DAY_ZERO, FakeJournal
from syncline.testing.traffic import Traffic, seal
from tests.lake.conftest import rows
from tests.lake.stages.test_sds import arrived, omm
from tests.lake.test_gaps import packets
from tests.lake.truth import assert_tables_equal

DAY = 86_400_000_000


def land(lake: Lake, stages: Stages | None = None, **options: Any) -> None:
    sealed = sorted(found for found in list_segments(lake.segments) if isinstance(found, Segment))
    Lander(lake, stages or built_in_stages(), InProcess(), buckets=3).land(sealed)


def with_faulty_sds() -> Stages:
    """Stages whose SDS decoder cannot read the mean motion and refuses every third record."""
    stages = built_in_stages()

    def examine(records: pa.Table) -> Examined:
        found = stages["sds"].examine(records)
        table = dict(found.rows)
        if "sds_omm" in table:
            column = table["sds_omm"].schema.get_field_index("MEAN_MOTION")
            count = table["sds_omm"].num_rows
            table["sds_omm"] = table["sds_omm"].set_column(column, "MEAN_MOTION", pa.nulls(count, pa.float64()))
        outcome = pa.array(
            ["reject" if at % 3 == 2 else each for at, each in enumerate(found.outcome.to_pylist())], pa.string()
        )
        reason = pa.array(
            ["malformed" if at % 3 == 2 else each for at, each in enumerate(found.reason.to_pylist())], pa.string()
        )
        return Examined(outcome, reason, table)

    return {**stages, "sds": msgspec.structs.replace(stages["sds"], examine=examine)}


def everything(lake: Lake) -> dict[str, list[str]]:
    """All rows of all tables of SDSP, SVS and SDS, as text, in order."""
    names = ("rejected", "audit", "sdsp_frames", "sdsp_objects", "svs_packets", "svs_publications", "gaps", "sds_omm")
    return {name: sorted(map(str, rows(lake, name).to_pylist())) for name in (*names, "sds_messages")}


@pytest.fixture
def mixed(lake: Lake) -> Traffic:
    traffic, journal = Traffic(5), FakeJournal("a")
    sent = traffic.publish(60)
    seal(lake.segments.path, traffic.receive(journal, sent, disorder=20, repeats=0.1, garbage=0.1), 20)
    others = [*(arrived(omm(number), "OMM") for number in range(30)), *(p for s in (1, 2, 5) for p in packets(s, s))]
    kept = journal.keep(others)
    seal(lake.segments.path, kept, 20)
    traffic.truth.records.update({str(record.name): record for record in kept})
    return traffic


def test_a_mended_decoder_mends_the_rows_that_landed_before(lake: Lake, mixed: Traffic) -> None:
    land(lake, with_faulty_sds())
    assert (rows(lake, "sds_omm").num_rows, rows(lake, "audit").num_rows) == (21, 9)
    done = reprocess(lake, built_in_stages(), InProcess())
    found = rows(lake, "sds_omm")
    assert found["MEAN_MOTION"].to_pylist() == [15.5] * 30
    assert done["sds_omm"] == done["sds_messages"] == 30
    assert rows(lake, "audit").num_rows == done["audit"] == 0
    assert_tables_equal(lake, mixed.truth)


def test_without_a_change_every_table_stays_as_it_is_and_knows_its_segments(lake: Lake, mixed: Traffic) -> None:
    land(lake)
    before = everything(lake)
    for _ in range(2):
        reprocess(lake, built_in_stages(), InProcess())
        assert everything(lake) == before
    sealed = [found for found in list_segments(lake.segments) if isinstance(found, Segment)]
    assert Lander(lake, built_in_stages(), InProcess()).lacking(sealed) == {}


def test_only_the_table_asked_for_and_its_states_are_made_anew(lake: Lake, mixed: Traffic) -> None:
    land(lake, with_faulty_sds())
    done = reprocess(lake, built_in_stages(), InProcess(), ["sdsp_frames"])
    assert set(done) == {"sdsp_frames", "sdsp_objects", "gaps"}
    assert rows(lake, "sds_omm").num_rows == 21
    assert set(reprocess(lake, built_in_stages(), InProcess(), ["svs_publications"])) == {"svs_publications"}


def test_records_and_segments_cannot_be_made_anew(lake: Lake) -> None:
    for name in ("records", "segments"):
        with pytest.raises(UsageError, match="made from"):
            reprocess(lake, built_in_stages(), InProcess(), [name])
    with pytest.raises(UsageError, match="there is no table"):
        reprocess(lake, built_in_stages(), InProcess(), ["nothing"])


def test_a_lake_without_records_has_nothing_to_do(lake: Lake) -> None:
    assert reprocess(lake, built_in_stages(), InProcess()) == {}


class Killed(BaseException):
    pass


@pytest.fixture
def killed_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes the n-th crash point of reprocessing end it, as a kill would."""

    def at(number: int) -> None:
        left = [number]

        def point(name: str) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Killed(name)

        monkeypatch.setattr(module, "crash_point", point)

    yield at
    monkeypatch.setattr(module, "crash_point", crash.crash_point)


def test_killed_after_any_table_it_is_simply_run_again(lake: Lake, mixed: Traffic, killed_at: Any) -> None:
    land(lake, with_faulty_sds())
    for number in range(1, 40):
        killed_at(number)
        try:
            reprocess(lake, built_in_stages(), InProcess())
        except Killed:
            found = rows(lake, "sds_omm")
            assert found.num_rows in (21, 30), "a table is as it was or as it shall be"
            continue
        break
    assert number > 8, "every table was one place to be killed at"
    assert rows(lake, "sds_omm")["MEAN_MOTION"].to_pylist() == [15.5] * 30
    assert_tables_equal(lake, mixed.truth)


def test_rows_whose_records_were_dropped_for_their_age_stay(lake: Lake) -> None:
    journal = FakeJournal("a")
    old = [arrived(omm(number), "OMM", after=1_000_000) for number in range(5)]
    new = [arrived(omm(10 + number), "OMM", after=3 * DAY) for number in range(4)]
    seal(lake.segments.path, journal.keep([*old, *new]), 20)
    land(lake, with_faulty_sds())
    today = datetime.datetime.fromtimestamp(DAY_ZERO / 1e6, datetime.UTC).date() + datetime.timedelta(4)
    drop_old_records(lake, days=2, today=today)
    assert rows(lake, "records").num_rows == 4
    reprocess(lake, built_in_stages(), InProcess())
    found = rows(lake, "sds_omm").sort_by("received_at")
    assert found["MEAN_MOTION"].to_pylist() == [None] * 4 + [15.5] * 4, "the old ones cannot be read again"
    assert rows(lake, "sds_messages").num_rows == 8


def test_a_dropped_record_of_which_another_node_has_a_copy_is_still_one_row(lake: Lake) -> None:
    for name, after in (("a", 1_000_000), ("b", 3 * DAY)):
        seal(lake.segments.path, FakeJournal(name).keep([arrived(omm(n), "OMM", after=after) for n in range(5)]), 20)
        land(lake, with_faulty_sds())
    seal(lake.segments.path, FakeJournal("c").keep([arrived(omm(9), "OMM", after=1_000_000)]), 20)
    land(lake, with_faulty_sds())
    today = datetime.datetime.fromtimestamp(DAY_ZERO / 1e6, datetime.UTC).date() + datetime.timedelta(4)
    drop_old_records(lake, days=2, today=today)
    for _ in range(2):
        reprocess(lake, built_in_stages(), InProcess())
        found = rows(lake, "sds_omm").sort_by("received_at")
        assert found["MEAN_MOTION"].to_pylist() == [None] + [15.5] * 5, "what can be read again is, once"
        assert rows(lake, "sds_messages").num_rows == 6


def test_a_running_pipeline_must_end_first(lake: Lake) -> None:
    with only_pipeline(lake), pytest.raises(UnavailableError, match="another pipeline"):
        reprocess(lake, built_in_stages(), InProcess())


@pytest.mark.parametrize("moment", ["judge", "write", "fold"])
def test_what_a_pipeline_lands_meanwhile_is_not_lost(lake: Lake, mixed: Traffic, moment: str) -> None:
    """In a bucket there is no lock: a pipeline may land at any moment of it."""
    land(lake)
    journal, late = FakeJournal("b"), Traffic(6)
    pending = [late.receive(journal, late.publish(20)), journal.keep([arrived(omm(90), "OMM"), *packets(4, 9)])]

    class PipelineInBetween(InProcess):
        def run(self, function, tasks, title):  # type: ignore[no-untyped-def]
            answers = super().run(function, tasks, title)
            if title.startswith(moment) and pending:
                seal(lake.segments.path, pending.pop(), 10)
                land(lake)
            return answers

    reprocess(lake, built_in_stages(), PipelineInBetween())
    assert pending == []
    assert rows(lake, "sdsp_frames").num_rows == 60 + 20
    assert sorted(rows(lake, "sdsp_objects")["uid"].to_pylist()) == sorted(
        set(rows(lake, "sdsp_frames")["uid"].to_pylist())
    )
    assert rows(lake, "sds_omm").num_rows == rows(lake, "sds_messages").num_rows == 31
    assert {int(row["seq"]) for row in rows(lake, "svs_publications").to_pylist() if row["complete"]} == {1, 2, 4, 5}
    assert rows(lake, "segments").num_rows == len(list(list_segments(lake.segments)))
