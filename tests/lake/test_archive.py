"""The lake as an archive: it finds what a query says, of one node, in pages, in order."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import anyio
import pytest

from syncline.core.ports import RecordQuery
from syncline.core.record import Record
from syncline.core.verdict import Outcome
from syncline.lake.archive import LakeArchive
from syncline.lake.batch import InProcess, Lander
from syncline.lake.roots import Lake
from syncline.lake.segments import Segment, list_segments
from syncline.lake.stages import built_in_stages
from syncline.testing.segments import DAY_ZERO, FakeJournal, write_segments
from tests.journal.test_queries import matches
from tests.lake.conftest import arrivals


def read(archive: LakeArchive, query: RecordQuery) -> list[Record]:
    async def collect() -> list[Record]:
        return [record async for record in archive.read(query)]

    return anyio.run(collect)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, list[Record]]:
    """A lake with two lives of one node and another node, and the records of the former in order."""
    lake = Lake.below(tmp_path_factory.mktemp("archive") / "data")
    lives = [
        journal.keep([*arrivals(60, step=3_000), *arrivals(40, first=60, protocol="plainer")])
        for journal in (FakeJournal("a", 1), FakeJournal("a", 2), FakeJournal("b"))
    ]
    for records in lives:
        write_segments(lake.segments.path, records)
    sealed = [found for found in list_segments(lake.segments) if isinstance(found, Segment)]
    Lander(lake, built_in_stages(), InProcess()).land(sealed)
    return lake, sorted(lives[0] + lives[1], key=lambda record: (record.epoch, record.lsn))


def test_it_finds_what_a_query_says(kept: tuple[Lake, list[Record]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.core.limits.ARCHIVE_PAGE", 17)
    lake, records = kept
    archive, chance = LakeArchive(lake, records[0].node), random.Random(5)
    values: dict[str, list[Any]] = {
        "after": [0, 20], "before": [None, 70], "protocol": [None, "plain"], "topic": [None, "yard", "field"],
        "kind": [None, "message"], "key": [None, "key-3"], "seq_from": [None, 2**64 - 50], "seq_to": [None, 2**64 - 9],
        "received_from": [None, DAY_ZERO + 20 * 3_000_000_000], "received_to": [None, DAY_ZERO + 50 * 3_000_000_000],
        "id": [None, b"9"], "verdict": [None, "accept"], "reason": [None, None, "malformed"], "publisher": [None, ""],
    }  # fmt: skip
    found = 0
    for _ in range(40):
        chosen = {name: chance.choice([options[0], *options]) for name, options in values.items()}
        query = RecordQuery(**chosen)
        expected = [record for record in records if matches(record, query)]
        assert read(archive, query) == expected
        limited = RecordQuery(**chosen, limit=20, descending=True)
        assert read(archive, limited) == expected[::-1][:20]
        found += len(expected)
    archive.close()
    assert found > 300


def test_a_lake_that_is_not_there_yet_holds_nothing(tmp_path: Path) -> None:
    archive = LakeArchive(Lake.below(tmp_path / "data"), "nobody")
    assert read(archive, RecordQuery(verdict=Outcome.ACCEPT)) == []
    archive.close()
