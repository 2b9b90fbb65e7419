"""One row per message at a cost of the batch, not of history: only what may hold a copy is read. No Spark here."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from syncline.core import limits
from syncline.core.errors import CorruptionError
from syncline.core.record import Arrival, Incoming
from syncline.lake.batch import InProcess, Lander
from syncline.lake.roots import Lake
from syncline.lake.segments import Segment, list_segments
from syncline.lake.stages import built_in_stages
from syncline.protocols.relay.rules.messages import RelayJudge
from syncline.protocols.relay.wire.messages import NetworkMessage, encode
from syncline.testing.segments import DAY_ZERO, FakeJournal, write_segments
from syncline.testing.traffic import Traffic, seal
from tests.lake.conftest import rows
from tests.lake.truth import assert_tables_equal
from tests.relays import topic_of

HOUR = 3_600_000_000


def said(hour: int, after: int = 0) -> list[Arrival]:
    """Ten messages of one hour, as a node got them `after` hours later."""
    found = []
    for number in range(10):
        at = DAY_ZERO + hour * HOUR + number
        text = f"{hour} {number}".encode()
        raw = encode(NetworkMessage(tag=1, prompt=False, timestamp=at // 1_000, ttl=86_400, message=text))
        incoming = Incoming(
            protocol="relay", topic=topic_of("news"), raw=raw, peer="p", received_at=at + after * HOUR + 1_000
        )
        found.append(RelayJudge()(incoming))
    return found


def land(lake: Lake, journal: FakeJournal, arrivals: list[Arrival]) -> None:
    if arrivals:
        write_segments(lake.segments.path, journal.keep(arrivals))
    sealed = [found for found in list_segments(lake.segments) if isinstance(found, Segment)]
    Lander(lake, built_in_stages(), InProcess(), buckets=1).land(sealed)


def texts(lake: Lake) -> list[str]:
    return sorted(rows(lake, "relay_messages")["message"].to_pylist())


def test_a_copy_that_comes_late_from_another_node_is_no_second_row(lake: Lake) -> None:
    journal, other = FakeJournal("a"), FakeJournal("b")
    for hour in (0, 5, 2):
        land(lake, journal, said(hour))
    expected = texts(lake)
    assert len(expected) == len(set(expected)) == 30
    land(lake, other, said(0, after=20))
    land(lake, other, [*said(5, after=1), *said(2, after=4)])
    assert texts(lake) == expected
    land(lake, other, [*said(2), *said(3)])
    assert texts(lake) == sorted([*expected, *(f"3 {number}" for number in range(10))])


def test_files_that_cannot_hold_a_copy_are_not_read(lake: Lake) -> None:
    journal = FakeJournal("a")
    land(lake, journal, said(0))
    [old] = lake.table("relay_messages").path.rglob("*.parquet")
    whole = old.read_bytes()
    land(lake, journal, said(1))
    old.write_bytes(whole[:4] + bytes(len(whole) // 3) + whole[4 + len(whole) // 3 :])  # its footer is as it was
    land(lake, journal, said(2))
    with pytest.raises(CorruptionError, match="damaged or gone"):
        land(lake, FakeJournal("b"), said(0, after=3))
    old.write_bytes(whole)
    land(lake, journal, said(3))
    assert texts(lake) == sorted(f"{hour} {number}" for hour in range(4) for number in range(10))


def test_a_changed_bit_in_a_state_is_not_written_again_as_the_truth(lake: Lake) -> None:
    traffic, journal = Traffic(71, objects=1), FakeJournal("a")
    seal(lake.segments.path, traffic.receive(journal, traffic.publish(5)))
    land(lake, journal, [])
    [state] = lake.table("sdsp_objects").path.rglob("*.parquet")
    whole = state.read_bytes()
    at = pq.ParquetFile(state).metadata.row_group(0).column(5)  # the object's value
    middle = at.data_page_offset + at.total_compressed_size - 3
    state.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    seal(lake.segments.path, traffic.receive(journal, traffic.publish(5)))
    with pytest.raises(CorruptionError, match="damaged or gone"):
        land(lake, journal, [])
    state.write_bytes(whole)
    land(lake, journal, [])
    assert_tables_equal(lake, traffic.truth)


@pytest.mark.parametrize(("least", "files", "kept"), [(1, 4, 3), (2**40, 1, 0)])
def test_large_files_of_a_state_stay_unless_a_key_in_them_changes(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, least: int, files: int, kept: int
) -> None:
    monkeypatch.setattr(limits, "LAKE_STATE_FILE_BYTES", least)
    journal, publishers = FakeJournal("a"), [Traffic(80 + number, objects=2) for number in range(4)]
    for traffic in publishers:
        seal(lake.segments.path, traffic.receive(journal, traffic.publish(6), disorder=3))
        land(lake, journal, [])
    before = lake_files(lake, "sdsp_objects")
    seal(lake.segments.path, publishers[1].receive(journal, publishers[1].publish(6)))
    land(lake, journal, [])
    after = lake_files(lake, "sdsp_objects")
    assert (len(before), len(after), len(before & after)) == (files, files, kept)
    expected = {uid: last for traffic in publishers for uid, last in traffic.truth.newest().items()}
    found = rows(lake, "sdsp_objects").to_pylist()
    assert len(found) == len(expected)
    assert {row["uid"]: (row["serial"], json.loads(row["value"])) for row in found} == {
        uid: (last.frame.serial, last.value) for uid, last in expected.items()
    }


def lake_files(lake: Lake, table: str) -> set[str]:
    return set(DeltaTable(lake.table(table).url).file_uris())
