"""Missing numbers: found, told since when, and closed when they come, whatever the order and the batches. No Spark."""

from __future__ import annotations

import itertools
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.core.record import Arrival, Incoming
from syncline.formats.ndn import names
from syncline.formats.ndn.signing import Digest
from syncline.lake.batch import InProcess, Lander
from syncline.lake.gaps import Gap, gaps_fold, gaps_of
from syncline.lake.roots import Lake
from syncline.lake.segments import Segment, list_segments
from syncline.lake.stages import Fold, built_in_stages
from syncline.lake.stages.journal import fold_positions
from syncline.lake.stages.svs import PACKETS
from syncline.lake.tables import GAPS, SEGMENTS, Table
from syncline.protocols.sdsp.rules import NOTHING_KNOWN
from syncline.protocols.sdsp.rules import judge as judge_frame
from syncline.protocols.sdsp.wire import encode, full_frame
from syncline.protocols.svs import wire
from syncline.protocols.svs.rules import Trust, judge_arrival
from syncline.protocols.svs.rules import examine as judge_packet
from syncline.testing.segments import DAY_ZERO, FakeJournal, write_segments
from tests.lake.conftest import arrivals, rows

GROUP, ALICE = names.parse("/room"), names.parse("/alice")


def told(gap: Gap) -> tuple[int, int, int, Any, Any]:
    return gap.first, gap.last, gap.missing, gap.opened_at, gap.closed_at


def frame(serial: int, at: int) -> Arrival:
    raw = encode(full_frame("thing", serial, serial))
    incoming = Incoming(protocol="sdsp", topic="objects", raw=raw, peer="p", received_at=DAY_ZERO + at)
    return judge_frame(incoming, lambda _: NOTHING_KNOWN)


def packets(seq: int, at: int) -> list[Arrival]:
    found = []
    for raw in wire.encapsulate(ALICE, GROUP, seq, names.parse("/x"), bytes(9_000), inner=Digest(), outer=Digest()):
        incoming = Incoming(protocol="svs", topic="/room", raw=raw, peer="p", received_at=DAY_ZERO + at)
        found.append(judge_arrival(incoming, GROUP, judge_packet(raw, GROUP, Trust())))
    return found


def land(lake: Lake) -> None:
    sealed = sorted(found for found in list_segments(lake.segments) if isinstance(found, Segment))
    Lander(lake, built_in_stages(), InProcess(), buckets=2).land(sealed)


def seal(lake: Lake, journal: FakeJournal, found: list[Arrival]) -> list[Path]:
    return write_segments(lake.segments.path, journal.keep(found))


def gaps(lake: Lake, protocol: str) -> list[tuple[Any, ...]]:
    found = rows(lake, "gaps").sort_by([("series", "ascending"), ("first", "ascending")]).to_pylist()
    names = ("series", "what", "first", "last", "missing")
    return [
        (*(row[name] for name in names), row["closed_at"] is not None) for row in found if row["protocol"] == protocol
    ]


def test_a_number_that_leaves_others_out_opens_a_gap_and_the_last_of_them_closes_it() -> None:
    assert gaps_of([(1, 10), (2, 11)]) == []
    assert [told(gap) for gap in gaps_of([(1, 10), (2, 14), (3, 12), (4, 13), (5, 11), (6, 15)])] == [(11, 13, 0, 2, 5)]
    assert [told(gap) for gap in gaps_of([(1, 10), (2, 14), (3, 12)])] == [(11, 13, 2, 2, None)]
    assert [told(gap) for gap in gaps_of([(1, 57), (2, 0), (3, 1)])] == [(1, 56, 55, 2, None)]


def test_numbers_up_to_the_greatest_are_counted() -> None:
    assert [told(gap) for gap in gaps_of([(1, 0), (2, 2**64 - 1)])] == [(1, 2**64 - 2, 2**64 - 2, 2, None)]


@given(st.lists(st.integers(0, 40), unique=True, max_size=30), st.randoms())
def test_what_is_missing_is_what_did_not_come(numbers: list[int], random: Random) -> None:
    arrived = list(enumerate(numbers))
    found = gaps_of(random.sample(arrived, len(arrived)))
    spans = [(gap.first, gap.last) for gap in found]
    assert spans == sorted(spans)
    missing = set(range(min(numbers, default=0), max(numbers, default=-1) + 1)) - set(numbers)
    covered = {number for gap in found for number in range(gap.first, gap.last + 1)}
    assert missing <= covered
    assert sum(gap.missing for gap in found) == len(missing)
    for gap in found:
        late = [time for time, number in arrived if gap.first <= number <= gap.last]
        assert gap.closed_at == (None if gap.missing else max(late))


def test_missing_serials_are_reported_and_closed_when_they_come(lake: Lake) -> None:
    journal = FakeJournal("a")
    seal(lake, journal, [frame(serial, serial) for serial in (0, 1, 5)])
    land(lake)
    assert gaps(lake, "sdsp") == [("thing", "serial", Decimal(2), Decimal(4), Decimal(3), False)]
    seal(lake, journal, [frame(3, 10)])
    land(lake)
    assert gaps(lake, "sdsp") == [("thing", "serial", Decimal(2), Decimal(4), Decimal(2), False)]
    seal(lake, FakeJournal("b"), [frame(4, 11), frame(2, 12), frame(3, 13)])
    land(lake)
    assert gaps(lake, "sdsp") == [("thing", "serial", Decimal(2), Decimal(4), Decimal(0), True)]


def test_missing_sequence_numbers_of_a_publisher_are_reported(lake: Lake) -> None:
    journal = FakeJournal("a")
    seal(lake, journal, [packet for seq in (1, 2, 6) for packet in packets(seq, seq)])
    land(lake)
    assert gaps(lake, "svs") == [("/room /alice", "sequence", Decimal(3), Decimal(5), Decimal(3), False)]
    seal(lake, journal, [packet for seq in (3, 4, 5) for packet in packets(seq, 20 + seq)])
    land(lake)
    assert gaps(lake, "svs") == [("/room /alice", "sequence", Decimal(3), Decimal(5), Decimal(0), True)]


def test_positions_of_a_journal_that_did_not_land_are_missing_until_they_do(lake: Lake) -> None:
    journal = FakeJournal("a")
    first = seal(lake, journal, [*arrivals(10), *arrivals(10, protocol="other")])
    second = seal(lake, journal, arrivals(5, first=20))
    seal(lake, journal, arrivals(5, first=30))
    series = f"{journal.node}/{journal.epoch}"
    aside = {path: path.rename(path.with_name(f".{path.name}")) for path in (first[1], second[0])}
    land(lake)
    assert gaps(lake, "journal") == [
        (series, "lsn", Decimal(1), Decimal(20), Decimal(10), False),
        (series, "lsn", Decimal(21), Decimal(25), Decimal(5), False),
    ]
    for path, hidden in aside.items():
        hidden.rename(path)
    land(lake)
    assert gaps(lake, "journal") == []
    assert rows(lake, "segments")["rows"].to_pylist().count(10) == 2


def test_gaps_do_not_depend_on_how_the_numbers_were_split_into_batches(tmp_path: Path) -> None:
    random = Random(3)
    serials = random.sample(range(60), 50)
    found = []
    for attempt in range(3):
        lake, journal = Lake.below(tmp_path / str(attempt)), FakeJournal("a")
        kept = journal.keep([frame(serial, at) for at, serial in enumerate(serials)])
        cuts = [0, *sorted(random.sample(range(1, 50), attempt)), 50]
        for low, high in itertools.pairwise(cuts):
            write_segments(lake.segments.path, kept[low:high])
            land(lake)
        found.append(rows(lake, "gaps").sort_by([("series", "ascending"), ("first", "ascending")]))
    assert found[0].num_rows > 5
    assert found[0] == found[1] == found[2]


class Landings:
    """A state table and its source, folded batch by batch as the lake does, also by batches that a kill cut short."""

    def __init__(self, fold: Fold, source: Table, key: str) -> None:
        self.fold, self.key = fold, key
        self.state, self.landed = GAPS.file_schema.empty_table(), source.file_schema.empty_table()
        self.read = 0

    def history(self, keys: list[Any], least: tuple[str, Any] | None = None) -> pa.Table:
        rows = self.landed.filter(pc.is_in(self.landed[self.key], value_set=pa.array(keys, pa.string())))
        if least is not None:
            rows = rows.filter(pc.greater_equal(rows[least[0]], pa.scalar(least[1], rows[least[0]].type)))
        self.read += rows.num_rows
        return rows

    def land(self, rows: pa.Table, *, killed: bool = False) -> None:
        touched = pc.is_in(self.state["series"], value_set=pc.unique(rows[self.key]))
        new = self.fold(self.state.filter(touched), rows, self.history)
        self.state = pa.concat_tables([self.state.filter(pc.invert(touched)), new]).combine_chunks()
        if not killed:
            self.landed = pa.concat_tables([self.landed, rows]).combine_chunks()

    def told(self) -> list[dict[str, Any]]:
        ordered = self.state.sort_by([("series", "ascending"), ("first", "ascending")])
        return [dict(row) for row in ordered.to_pylist()]


def folded_at_once(fold: Fold, source: Table, key: str, rows: pa.Table) -> list[dict[str, Any]]:
    whole = Landings(fold, source, key)
    whole.land(rows)
    return whole.told()


def made(source: Table, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows of a table with the columns that matter here, and something in the others."""
    other = {
        field.name: b"" if pa.types.is_binary(field.type) else "" if pa.types.is_string(field.type) else 0
        for field in source.file_schema
        if not field.nullable
    }
    return pa.Table.from_pylist([{**other, **row} for row in rows], schema=source.file_schema)


def numbered(*numbers: int) -> pa.Table:
    """Packets with these sequence numbers, which came in the order of their numbers."""
    return made(PACKETS, [{"series": "a", "seq": Decimal(n), "received_at": DAY_ZERO + n} for n in numbers])


def test_a_gap_that_only_a_killed_batch_knew_of_is_gone_when_its_numbers_landed() -> None:
    lands = Landings(gaps_fold("series", "seq", "sequence"), PACKETS, "series")
    lands.land(numbered(1, 2))
    lands.land(numbered(6, 7), killed=True)
    assert [(int(row["first"]), int(row["last"])) for row in lands.told()] == [(3, 5)]
    lands.land(numbered(3, 4, 5))
    lands.land(numbered(6, 7))
    assert lands.told() == []


@settings(max_examples=60)
@given(st.randoms(use_true_random=False), st.integers(1, 40), st.integers(0, 3))
def test_numbers_folded_batch_by_batch_give_the_gaps_of_all_of_them(random: Random, count: int, disorder: int) -> None:
    """Mostly in order, with copies, late ones, several series, and batches that were killed before their source landed."""
    numbers = sorted(
        ((series, number) for series in ("a", "b") for number in range(3, 3 + count) if random.random() > 0.1),
        key=lambda each: each[1] + random.randint(0, disorder) * random.randint(0, 4),
    )
    arrivals = [
        {
            "series": series,
            "seq": Decimal(number),
            "received_at": DAY_ZERO + at + random.choice((0, 0, 0, -5)),
            "final_segment": 0,
        }
        for at, (series, number) in enumerate(numbers)
        for _ in range(random.choice((1, 1, 2)))
    ]
    rows, fold = made(PACKETS, arrivals), gaps_fold("series", "seq", "sequence")
    batches = [rows.slice(start, 5) for start in range(0, rows.num_rows, 5)]
    lands = Landings(fold, PACKETS, "series")
    while batches:
        at = random.randrange(min(2, len(batches)))
        if random.random() < 0.3:
            lands.land(batches[at], killed=True)
        else:
            lands.land(batches.pop(at))
    if rows.num_rows:
        assert lands.told() == folded_at_once(fold, PACKETS, "series", rows)


@settings(max_examples=60)
@given(st.randoms(use_true_random=False), st.integers(1, 30))
def test_ranges_folded_batch_by_batch_give_the_positions_that_all_of_them_leave_out(random: Random, count: int) -> None:
    files: list[dict[str, Any]] = []
    for journal in ("n/1", "n/2"):
        end = 0
        for _ in range(count):
            first, end = end + 1, end + random.randint(1, 5)
            parts = [1] * (end - first + 1) if random.random() < 0.3 else [end - first + 1]
            files += [
                {
                    "journal": journal,
                    "path": f"{journal}/{first}/{part}",
                    "first_lsn": first,
                    "last_lsn": end,
                    "rows": rows_,
                }
                for part, rows_ in enumerate(parts)
                if random.random() > 0.05
            ]
    files.sort(key=lambda file: file["first_lsn"] + random.choice((0, 0, 0, 9)))
    rows = made(SEGMENTS, files)
    batches = [rows.slice(start, 4) for start in range(0, rows.num_rows, 4)]
    lands = Landings(fold_positions, SEGMENTS, "journal")
    while batches:
        at = random.randrange(min(3, len(batches)))
        if random.random() < 0.3:
            lands.land(batches[at], killed=True)
        else:
            lands.land(batches.pop(at))
    if rows.num_rows:
        assert lands.told() == folded_at_once(fold_positions, SEGMENTS, "journal", rows)


def test_a_series_that_just_goes_on_is_told_by_its_end_not_by_its_history() -> None:
    lands = Landings(gaps_fold("series", "seq", "sequence"), PACKETS, "series")
    ranges = Landings(fold_positions, SEGMENTS, "journal")
    for start in range(0, 1_000, 10):
        seqs = [number for number in range(start, start + 10) if number != 505]
        lands.land(numbered(*seqs))
        ranges.land(
            made(
                SEGMENTS,
                [{"journal": "n/1", "path": str(n), "first_lsn": n + 1, "last_lsn": n + 1, "rows": 1} for n in seqs],
            )
        )
    assert [(int(row["first"]), int(row["last"])) for row in lands.told()] == [(505, 505)]
    assert [(int(row["first"]), int(row["last"])) for row in ranges.told()] == [(506, 506)]
    assert lands.read < 3 * 1_000, "a row or two for each batch, and all of them once, when one was missing"
    assert ranges.read < 3 * 1_000
