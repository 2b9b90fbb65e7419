from __future__ import annotations

import msgspec
import pytest

from syncline.core.errors import UsageError
from syncline.core.record import SEQ_MAX, Arrival, Direction, Record, RecordName
from syncline.core.verdict import ACCEPT, Outcome, Reason, ignore, reject
from syncline.formats.records import RECORD_SCHEMA, from_arrow, iso_time, to_arrow, to_json


def record(**changes: object) -> Record:
    plain = Record(
        node="12D3KooWnode",
        epoch="0123456789abcdef",
        lsn=7,
        protocol="chirp",
        topic="yard",
        kind="chirp",
        id=b"\x00\xff",
        received_at=1_772_323_200_000_001,
        verdict=Outcome.ACCEPT,
    )
    return msgspec.structs.replace(plain, **changes)


def test_a_record_is_named_by_node_epoch_and_lsn() -> None:
    assert str(record().name) == "12D3KooWnode/0123456789abcdef/7"
    assert RecordName.parse("12D3KooWnode/0123456789abcdef/7") == record().name


@pytest.mark.parametrize(
    "text", ["", "a/b/c", "a/0123456789abcdef/-1", "a/0123456789ABCDEF/1", "a/0123456789abcdef/1/2"]
)
def test_text_that_is_no_record_name_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        RecordName.parse(text)


def test_an_ignored_arrival_keeps_no_raw_bytes_and_a_rejected_one_does() -> None:
    arrival = Arrival(protocol="p", topic="t", kind="k", id=b"i", received_at=1, verdict=Outcome.ACCEPT, raw=b"raw")
    assert arrival.judged(ignore(Reason.DUPLICATE)).raw is None
    rejected = arrival.judged(reject(Reason.MALFORMED))
    assert (rejected.raw, rejected.verdict, rejected.reason) == (b"raw", Outcome.REJECT, Reason.MALFORMED)


def test_records_go_to_arrow_and_back_unchanged() -> None:
    records = [
        record(),
        record(lsn=8, seq=SEQ_MAX, raw=b"", reason=Reason.DUPLICATE, verdict=Outcome.IGNORE, direction=Direction.OUT),
        record(lsn=9, seq=0, published_at=-1, expires_at=2**55, raw_ref="blob", key="ключ", raw=b"\x00" * 100),
    ]
    batch = to_arrow(records)
    assert batch.schema.equals(RECORD_SCHEMA)
    assert from_arrow(batch) == records
    assert from_arrow(to_arrow([])) == []


def test_json_shows_bytes_as_text_and_large_numbers_exactly() -> None:
    shown = to_json(record(seq=SEQ_MAX, raw=b"hello"))
    assert shown["seq"] == "18446744073709551615"
    assert (shown["id"], shown["raw"]) == ("00ff", "aGVsbG8=")
    assert shown["received_at"] == "2026-03-01T00:00:00.000001Z"
    assert shown["name"] == "12D3KooWnode/0123456789abcdef/7"


def test_iso_time_handles_times_before_1970() -> None:
    assert iso_time(-1) == "1969-12-31T23:59:59.999999Z"


def test_only_a_reject_that_is_not_our_fault_blames_the_sender() -> None:
    assert reject(Reason.MALFORMED).blames_sender
    assert not reject(Reason.JUDGE_FAILED).blames_sender
    assert not ignore(Reason.DUPLICATE).blames_sender
    assert not ACCEPT.blames_sender


def test_every_reason_is_about_content_or_context_and_says_what_it_means() -> None:
    for reason in Reason:
        assert reason.about in ("content", "context")
        assert len(reason.doc) > 10
        assert Reason(reason.value) is reason
