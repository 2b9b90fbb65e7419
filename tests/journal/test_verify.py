from __future__ import annotations

import base64
import io
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from syncline.core.errors import CorruptionError, UnavailableError, UsageError
from syncline.core.ports import RecordQuery, StateChange
from syncline.core.settings import JournalSettings, SegmentSettings
from syncline.core.verdict import Outcome, Reason
from syncline.formats.records import from_arrow
from syncline.journal import Drainer, Journal, LocalBlobs, LocalTarget
from syncline.journal.backup import backup
from syncline.journal.export import export
from syncline.journal.inspect import Count, inspect
from syncline.journal.reading import Reading
from syncline.journal.recover import export_salvage, recover
from syncline.journal.rows import row_of
from syncline.journal.salvage import salvage
from syncline.journal.verify import verify
from tests.journal.conftest import NOW, HandClock, arrival, execute

Open = Callable[..., Journal]
PAGE = 4096


@pytest.fixture
def target(tmp_path: Path) -> LocalTarget:
    return LocalTarget(tmp_path / "segments")


def filled(journal: Journal, count: int = 60, large: int = 3) -> Journal:
    """A journal with small and large records and some state."""
    journal.append_sync(
        [
            arrival(b"%d" % n, raw=bytes([n]) * (9_000 if n % 20 < large else 200), key=f"k{n % 7}")
            for n in range(count)
        ],
        [StateChange(space="s", key=b"%d" % n, value=bytes(50)) for n in range(30)],
    )
    return journal


def test_an_inspection_counts_by_protocol_verdict_and_reason(open_journal: Open, clock: HandClock) -> None:
    journal = open_journal(settings=JournalSettings(refused_per_peer_hour=2))
    forged = [arrival(b"%d" % n, verdict=Outcome.REJECT, reason=Reason.INVALID_SIGNATURE) for n in range(5)]
    journal.append_sync([arrival(b"x"), *forged], [StateChange(space="s", key=b"k", value=b"v")])
    found = inspect(journal.path)
    assert (found.oldest, found.newest, found.records, found.sealed, found.unsealed) == (1, 3, 3, 0, 3)
    assert found.counts == [
        Count("echo", "accept", None, 1, 0),
        Count("echo", "reject", "invalid_signature", 2, 3),
    ]
    assert found.states == {"s": 1}
    assert (found.node, found.epoch) == ("node", journal.epoch)


def test_verification_sees_one_moment_though_others_write(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """States that expire are counted by two ways, and one more is committed before each count."""
    filled(journal)
    count, numbers = Reading.one, itertools.count()

    def one(self: Reading, *arguments: Any) -> Any:
        key = b"%d" % next(numbers)
        journal.append_sync([], [StateChange(space="e", key=key, value=b"v", expires_at=NOW + 10**12)])
        return count(self, *arguments)

    monkeypatch.setattr(Reading, "one", one)
    assert verify(journal.path).problems == []
    assert len(journal.scan_state("e")) >= 3


def test_a_sound_journal_verifies_while_it_is_in_use(journal: Journal, target: LocalTarget) -> None:
    filled(journal)
    Drainer(journal, target, SegmentSettings()).drain()
    journal.append_sync([arrival(b"later")])
    seen: list[str] = []
    found = verify(journal.path, target=target, progress=lambda what, done, of: seen.append(what))
    assert found.problems == []
    assert (found.records, found.states, found.segments, found.sealed_records) == (61, 30, 1, 60)
    assert {"pages", "records", "segments"} <= set(seen)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("DELETE FROM records WHERE lsn BETWEEN 7 AND 9", "records 7 to 9 are missing"),
        ("UPDATE records SET raw = x'00' WHERE lsn = 5", "record 5 does not match its checksum"),
        ("UPDATE records SET expires_at = 1 WHERE lsn = 5", "record 5 does not match its checksum"),
        ("UPDATE state SET value = x'01' WHERE key = x'31'", "the state s/b'1' does not match its checksum"),
        ("UPDATE head SET indexed = 60", "record 1 is not found by all of its terms"),
    ],
)
def test_a_changed_or_missing_row_is_named(journal: Journal, damage: str, problem: str) -> None:
    execute(filled(journal), damage)
    assert problem in [found.what for found in verify(journal.path).problems]


@pytest.mark.parametrize("change", [lambda whole: whole[:-1], lambda whole: whole + bytes(100)], ids=["cut", "longer"])
def test_a_file_that_ends_in_the_middle_of_a_page_is_named_whatever_the_missing_bytes_were(
    open_journal: Open, change: Callable[[bytes], bytes]
) -> None:
    journal = filled(open_journal())
    journal.close()
    path = journal.path
    path.write_bytes(change(path.read_bytes()))
    assert "the file ends in the middle of a page" in {problem.what for problem in verify(path).problems}


def test_damage_ends_one_check_and_the_others_tell_what_is_intact(
    open_journal: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncline.journal.verify._PAGE", 5)
    journal = filled(open_journal(), count=200, large=0)
    journal.close()
    data = bytearray(journal.path.read_bytes())
    data[data.index(bytes([47]) * 200)] ^= 1  # in the message of record 48
    journal.path.write_bytes(data)
    found = verify(journal.path)
    assert [problem.what for problem in found.problems] == ["a page of the journal does not match its checksum"]
    assert 25 <= found.records <= 45
    assert found.records % 5 == 0
    assert found.states == 30


def test_a_missing_blob_is_named(open_journal: Open, tmp_path: Path) -> None:
    blobs = LocalBlobs(tmp_path / "blobs")
    journal = open_journal()
    journal.append_sync([arrival(b"x", raw=bytes(2**20 + 1))])
    assert verify(journal.path, blobs=blobs).blobs == 1
    next((tmp_path / "blobs").glob("*/*")).unlink()
    assert [found.what for found in verify(journal.path, blobs=blobs).problems] == [
        "raw bytes that a record refers to are gone"
    ]


def test_lost_doubled_and_foreign_segments_are_named(journal: Journal, target: LocalTarget) -> None:
    drainer = Drainer(journal, target, SegmentSettings())
    infos = []
    for n in range(4):
        journal.append_sync([arrival(b"a%d" % n, protocol="a"), arrival(b"b%d" % n, protocol="b")])
        infos += drainer.drain()
    (target.folder / infos[3].path).unlink()
    assert [p.what for p in verify(journal.path, target=target).problems] == ["the segment is missing"]
    (target.folder / infos[2].path).unlink()
    assert [p.what for p in verify(journal.path, target=target).problems] == [
        f"records between 2 and 5 of epoch {journal.epoch} are missing"
    ]


@pytest.mark.parametrize("format", ["parquet", "arrow", "ndjson", "csv"])
def test_an_export_holds_what_the_query_asks_for(journal: Journal, format: str) -> None:
    journal.append_sync([arrival(b"%d" % n, topic=f"t{n % 2}", seq=2**64 - 1 - n) for n in range(10)])
    out = io.BytesIO()
    assert export(journal.path, RecordQuery(topic="t1", limit=4), out, format) == 4  # type: ignore[arg-type]
    expected = journal.read(RecordQuery(topic="t1", limit=4))
    out.seek(0)
    if format in ("parquet", "arrow"):
        table = pq.read_table(out) if format == "parquet" else pa.ipc.open_stream(out).read_all()
        assert [r for batch in table.to_batches() for r in from_arrow(batch)] == expected
    elif format == "ndjson":
        lines = [json.loads(line) for line in out]
        assert [line["seq"] for line in lines] == [str(record.seq) for record in expected]
        assert [base64.b64decode(line["raw"]) for line in lines] == [record.raw for record in expected]
    else:
        text = out.read().decode().splitlines()
        assert text[0].startswith("name,node,epoch,lsn,protocol")
        assert text[1].split(",")[1:5] == ["node", journal.epoch, "2", "echo"]


def test_an_export_finds_ids_that_are_not_in_the_table_of_terms_yet(journal: Journal) -> None:
    filled(journal)
    out = io.BytesIO()
    assert export(journal.path, RecordQuery(id=b"7"), out, "ndjson") == 1
    assert json.loads(out.getvalue())["lsn"] == 8


def test_a_backup_is_a_sound_journal_of_that_moment(journal: Journal, tmp_path: Path) -> None:
    filled(journal)
    copy = tmp_path / "copy.db"
    steps: list[tuple[int, int]] = []
    assert backup(journal.path, copy, lambda done, of: steps.append((done, of))) == 60
    journal.append_sync([arrival(b"later")])
    assert verify(copy).sound
    assert inspect(copy).records == 60
    assert steps[-1][0] == steps[-1][1] > 0
    with pytest.raises(UsageError, match="already there"):
        backup(journal.path, copy)


def test_salvage_finds_every_record_without_sqlite(open_journal: Open) -> None:
    journal = filled(open_journal())
    in_log = {row[0] for row in salvage(journal.path)}
    journal.close()
    in_file = {row[0]: row for row in salvage(journal.path)}
    assert in_log == in_file.keys() == set(range(1, 61))
    assert in_file[1][-1] == bytes(9_000)


def test_salvage_takes_what_was_committed_before_what_a_failed_commit_left_behind(open_journal: Open) -> None:
    """The log of an earlier round holds a row 60 that was never committed; the database holds the one that was."""
    journal = filled(open_journal(), large=0)
    left_behind = journal.path.with_name("journal.db-wal").read_bytes()
    journal.close()
    committed = {row[0]: row for row in salvage(journal.path)}
    stale = bytearray(left_behind)
    wrong = msgspec.structs.replace(arrival(b"59", raw=bytes([59]) * 200, key="k3"), raw=bytes([7]) * 200)
    right_crc, wrong_crc = (row_of(a)[-2] + 60 for a in (arrival(b"59", raw=bytes([59]) * 200, key="k3"), wrong))
    assert stale.count(bytes([59]) * 200) == 1
    stale = stale.replace(bytes([59]) * 200, bytes([7]) * 200)
    for width in (4, 6):  # as SQLite stores it
        if right_crc < 1 << 8 * width - 1:
            assert wrong_crc < 1 << 8 * width - 1
            assert stale.count(right_crc.to_bytes(width, "big")) == 1
            stale = stale.replace(right_crc.to_bytes(width, "big"), wrong_crc.to_bytes(width, "big"))
            break
    stale[16:24] = bytes(8)  # the header of a later round
    journal.path.with_name("journal.db-wal").write_bytes(stale)
    found = {row[0]: row for row in salvage(journal.path)}
    assert found == committed
    journal.path.write_bytes(b"")  # without the database it is all there is, and shows that the row was intact
    assert {row[0]: row for row in salvage(journal.path)}[60][-1] == bytes([7]) * 200


def test_salvage_skips_only_what_a_damaged_page_held(open_journal: Open) -> None:
    journal = filled(open_journal(), large=0)
    journal.close()
    data = bytearray(journal.path.read_bytes())
    data[:PAGE] = bytes(PAGE)  # SQLite can make nothing of such a file
    leaves = [n for n in range(1, len(data) // PAGE) if data[n * PAGE] == 13]  # of tables
    lost = next(n for n in leaves if b"accept" in data[n * PAGE : (n + 1) * PAGE])
    data[lost * PAGE : (lost + 1) * PAGE] = bytes(PAGE)
    journal.path.write_bytes(data)
    found = {row[0] for row in salvage(journal.path)}
    assert 40 <= len(found) < 60
    out = io.BytesIO()
    assert export_salvage(journal.path, "node", journal.epoch, out) == len(found)
    assert set(pq.read_table(out)["lsn"].to_pylist()) == found


def test_a_damaged_journal_is_put_aside_and_what_is_intact_goes_on_in_a_new_epoch(
    open_journal: Open, clock: HandClock, target: LocalTarget
) -> None:
    journal = open_journal()
    journal.append_sync([arrival(b"sealed")])
    Drainer(journal, target, SegmentSettings()).drain()
    filled(journal)
    journal.close()
    data = bytearray(journal.path.read_bytes())
    data[PAGE // 2] ^= 1  # in the schema
    journal.path.write_bytes(data)
    with pytest.raises(CorruptionError) as error:
        open_journal()
    assert "journal recover" in error.value.hint
    found = recover(journal.path, node="node", clock=clock, target=target)
    assert found.old_epoch == journal.epoch
    assert (found.records, found.states_complete, found.missing) == (60, False, [])
    aside = journal.path.with_name("journal.db.corrupt-20231114T221320Z")
    assert aside.read_bytes() == data
    assert str(aside) in found.quarantined
    again = open_journal()
    assert again.epoch == found.epoch != journal.epoch
    assert [record.id for record in again.read(RecordQuery())] == [b"%d" % n for n in range(60)]
    assert verify(again.path, target=target).sound


def test_state_is_carried_over_when_only_a_record_is_damaged(
    open_journal: Open, clock: HandClock, target: LocalTarget
) -> None:
    journal = filled(open_journal())
    execute(journal, "UPDATE records SET raw = x'00' WHERE lsn IN (5, 6)")
    journal.close()
    found = recover(journal.path, node="node", clock=clock, target=target)
    assert (found.records, found.states, found.states_complete, found.missing) == (58, 30, True, [(5, 6)])
    assert len(open_journal().scan_state("s")) == 30


def test_a_backup_comes_back_in_a_new_epoch_with_what_no_segment_holds(
    open_journal: Open, clock: HandClock, target: LocalTarget, tmp_path: Path
) -> None:
    journal = open_journal()
    journal.append_sync([arrival(b"%d" % n) for n in range(5)])
    backup(journal.path, tmp_path / "copy.db")
    drainer = Drainer(journal, target, SegmentSettings())
    drainer.drain()
    journal.append_sync([arrival(b"after the backup")])
    journal.close()
    found = recover(journal.path, node="node", clock=clock, target=target, source=tmp_path / "copy.db")
    assert (found.records, found.missing) == (0, [(6, 6)])
    assert open_journal().newest() == 0


def test_a_journal_in_use_is_not_recovered(journal: Journal, clock: HandClock, target: LocalTarget) -> None:
    with pytest.raises(UnavailableError, match="another process"):
        recover(journal.path, node="node", clock=clock, target=target)


def test_a_missing_journal_cannot_be_inspected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no journal"):
        inspect(tmp_path / "journal.db")


def test_damage_in_the_log_that_sqlite_overlooks_is_found(open_journal: Open, tmp_path: Path) -> None:
    journal = open_journal()
    for n in range(20):
        journal.append_sync([arrival(b"%d" % n)])
    log, file, mark = (journal.path.with_name(f"journal.db{suffix}") for suffix in ("-wal", "", "-mark"))
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    for source in (log, file, mark):  # as a killed process leaves them
        (crashed / source.name).write_bytes(source.read_bytes())
    data = bytearray((crashed / log.name).read_bytes())
    data[len(data) // 2] ^= 1
    (crashed / log.name).write_bytes(data)
    with pytest.raises(CorruptionError, match="but had come to record 20"):
        open_journal(path=crashed / "journal.db")


def test_a_vanished_database_is_a_loss_not_a_fresh_start(open_journal: Open) -> None:
    journal = filled(open_journal())
    journal.close()
    journal.path.unlink()
    for look in (open_journal, lambda: inspect(journal.path)):
        with pytest.raises(CorruptionError, match="is gone, but had come to record 60"):
            look()
    assert [problem.what for problem in verify(journal.path).problems] == [
        "the journal is gone, but had come to record 60"
    ]


def test_two_pages_in_each_others_place_are_named_and_verification_comes_to_an_end(
    open_journal: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("syncline.core.limits.JOURNAL_RUN_RECORDS", 12)
    monkeypatch.setattr("syncline.core.limits.JOURNAL_SLICE_RECORDS", 1)
    journal = open_journal()
    for n in range(40):
        state = StateChange(space="s", key=b"%d" % n, value=bytes(100))
        journal.append_sync([arrival(b"%d" % n, raw=bytes(200), key="k", publisher="p", seq=n)], [state])
    journal.close()
    whole = journal.path.read_bytes()
    pages = [whole[start : start + PAGE] for start in range(0, len(whole), PAGE)]
    assert len(pages) >= 10
    for one in range(len(pages)):
        for other in range(one):
            if pages[one] == pages[other]:
                continue  # two empty ones
            swapped = list(pages)
            swapped[one], swapped[other] = pages[other], pages[one]
            path = tmp_path / "swapped.db"
            path.write_bytes(b"".join(swapped))
            assert verify(path).problems, f"pages {one + 1} and {other + 1}"
