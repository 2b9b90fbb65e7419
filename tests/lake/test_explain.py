"""A record's path can be told from its name or the start of its id. No Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from syncline.core.errors import NotFoundError, UsageError
from syncline.core.verdict import Outcome, Reason
from syncline.journal import Journal
from syncline.lake import every_table
from syncline.lake.batch import InProcess, Lander
from syncline.lake.explain import Explanation, explain
from syncline.lake.query import Queries
from syncline.lake.roots import Lake
from syncline.lake.segments import Segment, list_segments
from syncline.lake.stages import built_in_stages
from syncline.protocols.sdsp.wire import encode, full_frame
from syncline.testing.clock import FakeClock
from syncline.testing.segments import FakeJournal, write_segments
from tests.lake.conftest import command, command_here
from tests.lake.stages.test_sds import arrived, omm
from tests.lake.test_audit import frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two nodes that received the same good frame; one of them also nonsense and a satellite's elements."""
    folder = tmp_path_factory.mktemp("explain")
    lake = Lake.below(folder / "data")
    good, bad = frame(encode(full_frame("thing", 7, {"a": 1}))), frame(b"nonsense")
    write_segments(lake.segments.path, FakeJournal("a").keep([good, bad, arrived(omm(1), "OMM")]))
    write_segments(lake.segments.path, FakeJournal("b").keep([good]))
    sealed = [found for found in list_segments(lake.segments) if isinstance(found, Segment)]
    Lander(lake, built_in_stages(), InProcess(), buckets=2).land(sealed)
    return folder


def told(folder: Path, text: str) -> Explanation:
    lake = Lake.below(folder / "data")
    with Queries(lake, every_table()) as queries:
        return explain(lake, queries, built_in_stages(), text)


def name(node: str, lsn: int) -> str:
    journal = FakeJournal(node)
    return f"{journal.node}/{journal.epoch}/{lsn}"


def test_an_accepted_record_is_shown_with_its_copies_and_its_rows(folder: Path) -> None:
    found = told(folder, name("a", 1))
    assert found.record.raw == encode(full_frame("thing", 7, {"a": 1}))
    assert found.lake_verdict is not None
    assert found.lake_verdict.outcome is Outcome.ACCEPT
    assert found.copies == [name("b", 1)]
    assert found.segment.startswith("protocol=sdsp/date=2026-03-01/" + FakeJournal("a").node)
    assert set(found.rows) == {"sdsp_frames", "sdsp_objects"}
    assert found.rows["sdsp_objects"][0]["value"] == '{"a":1}'
    assert told(folder, name("b", 1)).rows["sdsp_frames"] == found.rows["sdsp_frames"], "one row for both copies"


def test_a_rejected_record_is_shown_with_the_reason(folder: Path) -> None:
    found = told(folder, name("a", 2))
    assert (found.record.verdict, found.record.reason) == (Outcome.REJECT, Reason.MALFORMED)
    assert set(found.rows) == {"rejected"}


def test_a_record_is_found_by_the_start_of_its_id(folder: Path) -> None:
    whole = told(folder, name("a", 3)).record.id.hex()
    found = told(folder, whole[:12].upper())
    assert str(found.record.name) == name("a", 3)
    assert found.rows["sds_omm"][0]["NORAD_CAT_ID"] == 25_544
    assert found.rows["sds_messages"][0]["schema"] == "OMM"
    assert "sds_cdm" not in found.rows


def test_what_cannot_be_found_or_told_apart_is_said_so(folder: Path) -> None:
    with pytest.raises(NotFoundError, match="no such record"):
        told(folder, name("a", 99))
    with pytest.raises(NotFoundError, match="no such record"):
        told(folder, "0123456789")
    with pytest.raises(UsageError, match="names no record"):
        told(folder, "what?")
    with pytest.raises(UsageError, match="names no record"):
        told(folder, "ab12")


def test_what_has_not_landed_is_found_in_the_nodes_own_journal(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "data" / "journal.db", node=FakeJournal("a").node, clock=FakeClock())
    journal.append_sync([frame(b"nonsense"), frame(encode(full_frame("thing", 7, {"a": 1})))])
    journal.close()
    shown = command(tmp_path, "explain", f"{journal.node}/{journal.epoch}/2", "--json")
    assert shown.returncode == 0, shown.stderr
    printed = json.loads(shown.stdout)
    assert (printed["why"], printed["lake"], printed["segment"], printed["tables"]) == ("accept", "accept", None, {})
    assert printed["decoded"]["uid"] == "thing"


def test_several_messages_under_one_start_are_too_many(lake: Lake) -> None:
    frames = [frame(encode(full_frame("thing", serial, 1))) for serial in range(2)]
    write_segments(lake.segments.path, FakeJournal("a").keep(frames))
    sealed = [found for found in list_segments(lake.segments) if isinstance(found, Segment)]
    Lander(lake, built_in_stages(), InProcess(), buckets=2).land(sealed)
    with Queries(lake, every_table()) as queries, pytest.raises(UsageError, match="2 ids start so"):
        explain(lake, queries, built_in_stages(), b"thing".hex())


def test_the_command_prints_it_for_people_and_for_programs(folder: Path) -> None:
    shown = command(folder, "explain", name("a", 1))
    assert shown.returncode == 0, shown.stderr
    assert "node said     accept" in shown.stdout
    assert "sdsp_objects" in shown.stdout
    printed = json.loads(command_here(folder, "explain", name("a", 2), "--json").stdout)
    assert bytes.fromhex(printed["record"]["raw"]) == b"nonsense"
    assert printed["why"].startswith("reject: malformed (content): the bytes are not")
    assert printed["lake"] == printed["why"]
    assert printed["segment"].startswith("protocol=sdsp/")
    missing = command_here(folder, "explain", name("a", 99))
    assert (missing.returncode, missing.stdout) == (1, "")
