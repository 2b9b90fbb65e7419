from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import obstore
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

from syncline.core.errors import CorruptionError, UnavailableError
from syncline.core.limits import DAY
from syncline.core.ports import RecordQuery
from syncline.core.settings import SegmentSettings
from syncline.formats.records import RECORD_SCHEMA, from_arrow
from syncline.formats.segments import METADATA_KEY, SegmentName, check_segment, read_segment
from syncline.journal import Drainer, Journal, LocalTarget, ObjectTarget
from tests.journal.conftest import NOW, arrival, execute

SETTINGS = SegmentSettings()


@pytest.fixture
def target(tmp_path: Path) -> LocalTarget:
    return LocalTarget(tmp_path / "segments")


@pytest.fixture
def drainer(journal: Journal, target: LocalTarget) -> Drainer:
    return Drainer(journal, target, SETTINGS)


def append(journal: Journal, *ids: bytes, **fields: Any) -> None:
    journal.append_sync([arrival(id_, **fields) for id_ in ids])


def unseal(journal: Journal) -> None:
    """As if the process had died before the cursor moved."""
    execute(journal, "UPDATE head SET sealed = 0")
    journal._sealed = 0


def test_a_segment_holds_the_records_of_one_protocol_and_day(
    journal: Journal, drainer: Drainer, target: LocalTarget
) -> None:
    append(journal, b"1", b"2", protocol="sds")
    append(journal, b"3", protocol="relay")
    append(journal, b"4", protocol="sds", received_at=NOW + DAY)
    infos = drainer.drain()
    name = f"node-{journal.epoch}-{1:020d}-{4:020d}.parquet"
    siblings = {
        f"protocol=relay/date=2023-11-14/{name}": 1,
        f"protocol=sds/date=2023-11-14/{name}": 2,
        f"protocol=sds/date=2023-11-15/{name}": 1,
    }
    assert {info.path: info.rows for info in infos} == siblings
    assert all(info.siblings == siblings and (info.lo, info.hi) == (1, 4) for info in infos)
    assert [n.path for n in target.list()] == sorted(siblings)
    records = [
        r for path in siblings for b in read_segment(target.read(path), path)[1].to_batches() for r in from_arrow(b)
    ]
    assert sorted(records, key=lambda record: record.lsn) == journal.read(RecordQuery())


def test_any_parquet_reader_finds_schema_and_metadata(journal: Journal, drainer: Drainer, target: LocalTarget) -> None:
    append(journal, b"1", seq=2**64 - 1)
    (info,) = drainer.drain()
    file = pq.ParquetFile(target.folder / info.path)
    assert file.schema_arrow.equals(RECORD_SCHEMA)
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    said = json.loads(file.metadata.metadata[METADATA_KEY])
    digest = said.pop("sha256")
    assert said == {
        "version": 1, "path": info.path, "node": "node", "epoch": journal.epoch, "lo": 1, "hi": 1, "rows": 1,
        "siblings": {info.path: 1},
    }  # fmt: skip
    assert len(digest) == 64
    assert digest != "0" * 64


def test_the_next_drain_goes_on_where_the_last_one_ended(journal: Journal, drainer: Drainer) -> None:
    assert drainer.drain() == []
    append(journal, b"1", b"2")
    assert [(info.lo, info.hi) for info in drainer.drain()] == [(1, 2)]
    assert drainer.drain() == []
    append(journal, b"3")
    assert [(info.lo, info.hi) for info in drainer.drain()] == [(3, 3)]
    assert journal.sealed() == 3
    assert drainer.statistics() == {"segments": 2, "sealed_records": 3, "drains_failed": 0, "unsealed_records": 0}


def test_a_backlog_is_cut_into_bounded_ranges(
    journal: Journal, drainer: Drainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncline.core.limits.SEGMENT_RECORDS", 4)
    append(journal, *(b"%d" % n for n in range(10)))
    assert [(info.lo, info.hi) for info in drainer.drain()] == [(1, 4), (5, 8), (9, 10)]
    monkeypatch.setattr("syncline.core.limits.SEGMENT_BYTES", 2_000)
    append(journal, *(b"b%d" % n for n in range(3)), raw=bytes(1_000))
    assert [(info.lo, info.hi) for info in drainer.drain()] == [(11, 12), (13, 13)]


def test_siblings_that_a_crash_kept_from_being_made_are_made_for_the_same_range(
    journal: Journal, drainer: Drainer, target: LocalTarget
) -> None:
    append(journal, b"1", protocol="a")
    append(journal, b"2", protocol="b")
    infos = drainer.drain()
    unseal(journal)
    kept, lost = infos
    before = target.read(kept.path)
    (target.folder / lost.path).unlink()
    (target.folder / lost.path).with_name(f".{Path(lost.path).name}.tmp").write_bytes(b"half")
    append(journal, b"3", protocol="a")
    again = Drainer(journal, target, SETTINGS).drain()
    assert [(info.path, info.lo, info.hi) for info in again[:2]] == [(info.path, 1, 2) for info in infos]
    assert (again[2].lo, again[2].hi) == (3, 3)
    assert target.read(kept.path) == before
    assert check_segment(target.read(lost.path), lost.path).rows == 1
    assert list(target.folder.glob("*/*/.*")) == []


def test_segments_beyond_the_journal_are_an_error_not_a_new_start(
    journal: Journal, drainer: Drainer, target: LocalTarget
) -> None:
    append(journal, b"1", b"2")
    (info,) = drainer.drain()
    other = SegmentName("node", journal.epoch, 2, 9, "echo", "2023-11-14")
    (target.folder / other.path).write_bytes(target.read(info.path))
    append(journal, b"3")
    with pytest.raises(CorruptionError, match="but the journal has sealed up to 2 of 3") as error:
        Drainer(journal, target, SETTINGS).drain()
    assert "older copy" in error.value.hint
    assert (target.folder / other.path).exists()


def test_an_older_journal_put_back_does_not_take_its_new_records_for_sealed_ones(
    open_journal: Callable[..., Journal], target: LocalTarget, tmp_path: Path
) -> None:
    """The same numbers, as many records, the same day: only what they hold tells that they are others."""
    journal = open_journal()
    journal.append_sync([arrival(b"first")])
    Drainer(journal, target, SegmentSettings()).drain()
    journal.close()
    older = journal.path.read_bytes()
    journal = open_journal()
    journal.append_sync([arrival(b"second")])
    Drainer(journal, target, SegmentSettings()).drain()
    journal.close()
    journal.path.write_bytes(older)
    journal.path.with_name("journal.db-mark").unlink()
    again = open_journal()
    again.append_sync([arrival(b"another")])
    with pytest.raises(CorruptionError, match="does not agree with the journal") as error:
        Drainer(again, target, SegmentSettings()).drain()
    assert "journal recover" in error.value.hint
    assert again.sealed() == 1


def test_a_visible_segment_is_never_overwritten(journal: Journal, target: LocalTarget) -> None:
    name = SegmentName("node", journal.epoch, 1, 1, "echo", "2023-11-14")
    target.publish({name.path: b"landed"})
    with pytest.raises(CorruptionError, match="already there"):
        target.publish({name.path: b"other"})
    assert target.read(name.path) == b"landed"


@pytest.mark.parametrize("where", [0, 10, 200, -300, -60, -8, -5, -1])
def test_a_flipped_bit_anywhere_in_a_segment_is_found(
    journal: Journal, drainer: Drainer, target: LocalTarget, where: int
) -> None:
    append(journal, *(b"%d" % n for n in range(20)))
    (info,) = drainer.drain()
    data = bytearray(target.read(info.path))
    assert check_segment(bytes(data), info.path).rows == 20
    data[where] ^= 4
    with pytest.raises(CorruptionError):
        check_segment(bytes(data), info.path)


def test_a_segment_in_the_place_of_another_is_found(journal: Journal, drainer: Drainer, target: LocalTarget) -> None:
    append(journal, b"1")
    (first,) = drainer.drain()
    append(journal, b"2")
    (second,) = drainer.drain()
    with pytest.raises(CorruptionError, match="belongs at"):
        check_segment(target.read(first.path), second.path)


def test_a_record_missing_from_the_unsealed_ones_stops_the_drain(journal: Journal, drainer: Drainer) -> None:
    append(journal, b"1", b"2", b"3")
    execute(journal, "DELETE FROM records WHERE lsn = 2")
    with pytest.raises(CorruptionError, match="record 2 is missing"):
        drainer.drain()


def test_a_disk_that_refuses_is_unavailable_and_the_drain_can_be_repeated(
    journal: Journal, drainer: Drainer, target: LocalTarget
) -> None:
    append(journal, b"1")
    target.folder.parent.mkdir(exist_ok=True)
    target.folder.write_bytes(b"a file where the folder should be")
    with pytest.raises(UnavailableError):
        drainer.drain()
    target.folder.unlink()
    assert len(drainer.drain()) == 1
    assert drainer.statistics()["drains_failed"] == 1


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["trio", "asyncio"])
async def test_a_running_drainer_seals_when_enough_bytes_wait(journal: Journal, target: LocalTarget) -> None:
    drainer = Drainer(journal, target, SegmentSettings(seconds=3600, bytes=4096))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drainer.run)
        await journal.append([arrival(b"1")])
        await anyio.sleep(0.15)
        assert journal.sealed() == 0
        await journal.append([arrival(b"2", raw=bytes(5000))])
        with anyio.fail_after(5):
            while journal.sealed() < 2:
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_a_running_drainer_seals_after_a_while_whatever_waits(journal: Journal, target: LocalTarget) -> None:
    drainer = Drainer(journal, target, SegmentSettings(seconds=0.05))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drainer.run)
        await journal.append([arrival(b"1")])
        with anyio.fail_after(5):
            while journal.sealed() < 1:
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()


def test_an_object_store_gets_the_same_segments(journal: Journal) -> None:
    target = ObjectTarget(MemoryStore())
    append(journal, b"1", protocol="a")
    append(journal, b"2", protocol="b")
    infos = Drainer(journal, target, SETTINGS).drain()
    assert [name.path for name in target.list()] == [info.path for info in infos]
    assert all(check_segment(target.read(info.path), info.path).rows == 1 for info in infos)


def test_an_object_store_that_has_half_of_a_range_gets_the_other_half(journal: Journal) -> None:
    target = ObjectTarget(MemoryStore())
    append(journal, b"1", protocol="a")
    append(journal, b"2", protocol="b")
    infos = Drainer(journal, target, SETTINGS).drain()
    unseal(journal)
    obstore.delete(target.store, infos[1].path)
    append(journal, b"3", protocol="b")
    again = Drainer(journal, target, SETTINGS).drain()
    assert [(info.path, info.lo, info.hi) for info in again[:2]] == [(info.path, 1, 2) for info in infos]
    assert [name.path for name in target.list()] == sorted(info.path for info in again)


def test_the_documented_record_is_the_record() -> None:
    page = (Path(__file__).parents[2] / "docs" / "segments.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", page, re.MULTILINE)
    assert rows == [(field.name, str(field.type)) for field in RECORD_SCHEMA]
