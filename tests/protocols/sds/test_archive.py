"""Queries reach back beyond the journal: what it has forgotten is found in the archive, as if it were still there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from syncline.core.errors import RefusedError, SynclineError, UnavailableError
from syncline.core.ports import RecordQuery
from syncline.core.record import Record
from syncline.core.settings import Settings
from syncline.lake.archive import LakeArchive
from syncline.lake.batch import InProcess, Lander
from syncline.lake.roots import Lake
from syncline.lake.segments import Segment, list_segments
from syncline.lake.stages import built_in_stages
from syncline.protocols.sds.service.asking import Found
from syncline.testing.clock import FakeClock
from tests.protocols.sds.nodes import Running, nodes

pytestmark = pytest.mark.anyio
HOURS: dict[str, Any] = {"journal.retention_hours": 1.0, "memory_hours": 1.0}


class Shelf:
    """An archive that holds what a test puts there, and may break."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.asked: list[RecordQuery] = []
        self.error: SynclineError | None = None

    async def read(self, query: RecordQuery) -> AsyncIterator[Record]:
        self.asked.append(query)
        for record in self.records:
            if self.error is not None:
                raise self.error
            if query.received_to is None or record.received_at < query.received_to:
                yield record


async def publish(place: Running, clock: FakeClock, *numbers: int, **fields: float) -> None:
    for number in numbers:
        await place.sds.send("OMM", {"NORAD_CAT_ID": number, **fields})
        clock.advance(1.0)


def age(place: Running, clock: FakeClock) -> None:
    """Seal all, and wait until it is old."""
    place.node.drainer.drain()
    clock.advance(3 * 3600.0)


def forgotten(place: Running) -> list[str]:
    """Let the journal remove what is old, but for the newest record; what it still holds."""
    while place.node.journal.sweep().more:
        pass
    return [record.key for record in place.records()]


def numbers(found: list[Found]) -> list[int]:
    return [each.fields["NORAD_CAT_ID"] for each in found]


async def test_a_peer_is_answered_from_the_lake_what_the_journal_has_forgotten(tmp_path: Path) -> None:
    clock, lakes, archives = FakeClock(), {}, ExitStack()

    def archive(settings: Settings, node: str) -> LakeArchive:
        lakes[node] = Lake.of(settings)
        return archives.enter_context(closing(LakeArchive(lakes[node], node)))

    async with nodes(tmp_path, 2, clock=clock, archive=archive, **HOURS) as (asker, place):
        await publish(place, clock, 1, 2, 3)
        await publish(place, clock, 4, MEAN_MOTION=15.5)
        age(place, clock)
        lake = lakes[place.peer_id]
        sealed = [found for found in list_segments(lake.segments) if isinstance(found, Segment)]
        Lander(lake, built_in_stages(), InProcess()).land(sealed)
        await publish(place, clock, 5, 6)
        assert forgotten(place) == ["5", "6"]
        await asker.host.connect(place.host.addresses[0])
        found = await asker.sds.query(place.peer_id, "OMM")
        assert numbers(found) == [1, 2, 3, 4, 5, 6]
        assert all(each.verified for each in found)
        assert numbers(await asker.sds.query(place.peer_id, "OMM", where={"NORAD_CAT_ID": 2})) == [2]
        assert numbers(await asker.sds.query(place.peer_id, "OMM", where={"MEAN_MOTION": {"gt": 15}})) == [4]
        assert numbers(await place.sds.find("OMM", order="desc", limit=4)) == [6, 5, 4, 3]
    archives.close()


@pytest.mark.parametrize("page", [1, 2, 7])
async def test_pages_go_on_from_the_journal_into_the_archive_in_the_order_asked_for(tmp_path: Path, page: int) -> None:
    clock, shelf = FakeClock(), Shelf()
    async with nodes(tmp_path, 1, clock=clock, archive=lambda *_: shelf, **HOURS) as [place]:
        await publish(place, clock, 5, 1, 4)
        shelf.records = place.records()
        age(place, clock)
        await publish(place, clock, 6, 2)
        assert forgotten(place) == ["6", "2"]
        found = [
            number
            for offset in range(0, 5, page)
            for number in numbers(await place.sds.find("OMM", order_by="NORAD_CAT_ID", limit=page, offset=offset))
        ]
        assert found == [1, 2, 4, 5, 6]
        before = clock.now() - 3_600_000_000
        assert {query.received_to for query in shelf.asked} == {before}


async def test_a_full_answer_leaves_the_rest_of_the_archive_to_the_next_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncline.core.limits.SDS_PAGE_BYTES", 3_000)
    clock, shelf = FakeClock(), Shelf()
    async with nodes(tmp_path, 2, clock=clock, archive=lambda *_: shelf, **HOURS) as (asker, place):
        await publish(place, clock, *range(1, 21))
        shelf.records = place.records()
        age(place, clock)
        assert len(forgotten(place)) == 1
        await asker.host.connect(place.host.addresses[0])
        assert numbers(await asker.sds.query(place.peer_id, "OMM", limit=20)) == list(range(1, 21))
        assert 6 < len(shelf.asked) < 14  # some pages, each of which looks and then fetches


async def test_an_archive_that_does_not_answer_is_error_5_and_stops_nothing(tmp_path: Path) -> None:
    clock, shelf = FakeClock(), Shelf()
    async with nodes(tmp_path, 2, clock=clock, archive=lambda *_: shelf, **HOURS) as (asker, place):
        await publish(place, clock, 1, 2)
        shelf.records = place.records()
        age(place, clock)
        assert len(forgotten(place)) == 1
        await asker.host.connect(place.host.addresses[0])
        shelf.error = UnavailableError("it rains in")
        with pytest.raises(RefusedError, match="older than the journal keeps cannot be read now"):
            await asker.sds.query(place.peer_id, "OMM")
        shelf.error = None
        assert numbers(await asker.sds.query(place.peer_id, "OMM")) == [1, 2]
