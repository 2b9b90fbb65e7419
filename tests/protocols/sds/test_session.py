"""The conversation on a stream: every message type, every limit and every error code, as frames on the wire."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.core import limits
from syncline.core.errors import DecodeError, OverloadedError, UsageError
from syncline.core.limits import SDS_MESSAGE_BYTES, SECOND
from syncline.core.ports import RecordQuery
from syncline.core.record import Record
from syncline.core.verdict import Reason
from syncline.protocols.sds import wire
from syncline.protocols.sds.bloom import Bloom
from syncline.protocols.sds.catalogue import NAMES, standard
from syncline.protocols.sds.filters import from_where
from syncline.protocols.sds.rules import published, topic_of
from syncline.protocols.sds.session import Quotas, Requester, Responder, Send, greeting
from syncline.protocols.sds.session.greeting import shared_schemas
from syncline.protocols.sds.session.query import QueryScan
from syncline.protocols.sds.session.responder import STRIKES, Terms
from syncline.protocols.sds.wire import Ack, Filter, Hello, Query, QueryResponse, Refusal, Subscribe, Sync, encode
from tests.protocols.sds.conversation import NETWORK, Conversation, Place


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Callable[..., Place]]:
    made: list[Place] = []

    def make(**options: Any) -> Place:
        made.append(Place(tmp_path, len(made) + 1, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def alice(place: Callable[..., Place]) -> Place:
    return place()


@pytest.fixture
def bob(place: Callable[..., Place]) -> Place:
    return place()


def numbers(records: Any) -> list[int]:
    return [_number(record.data) for record in records]


def _number(payload: bytes) -> int:
    found: int = standard("OMM").reader.decode(payload).get("NORAD_CAT_ID", 0)
    return found


def asked(talk: Conversation, **query: Any) -> QueryResponse:
    """The answer to one query."""
    talk.do(talk.asking.query(Query(query_id=f"q{len(talk.crossed)}", schema="OMM", **query)))
    answer = talk.crossed[-1]
    assert isinstance(answer, QueryResponse), answer
    return answer


def last_error(talk: Conversation) -> Refusal:
    error = talk.crossed[-1]
    assert isinstance(error, Refusal), error
    return error


# hello


def test_both_sides_say_hello_first_with_version_schemas_and_capabilities(alice: Place, bob: Place) -> None:
    talk = Conversation(alice, bob)
    for hello in (talk.asking.hello, talk.answering.hello):
        assert hello is not None
        assert hello.protocol_version == "1.0.0"
        assert hello.supported_schemas == NAMES
        assert hello.capabilities[:3] == ("filter.v1", "sync.bloom.v1", standard("BOV").capability)
        assert len(hello.capabilities) == 31


@pytest.mark.parametrize("version", ["1.0.0", "1.7.3", "1.0.0-rc1"])
def test_another_minor_version_is_compatible(alice: Place, bob: Place, version: str) -> None:
    talk = Conversation(alice, bob, greet=False)
    talk.send(encode(Hello(protocol_version=version)))
    assert talk.answering.hello is not None
    assert talk.crossed == []


@pytest.mark.parametrize("version", ["2.0.0", "0.9.0", "", "one", "1", "1.0"])
def test_another_major_version_is_error_1_and_the_end(alice: Place, bob: Place, version: str) -> None:
    talk = Conversation(alice, bob, greet=False)
    talk.send(encode(Hello(protocol_version=version)))
    [error] = talk.crossed
    assert isinstance(error, Refusal)
    assert error.code == 1
    assert len(talk.closed) == 2  # the answerer ends it, and so does the asker when it hears
    assert talk.asking.hello is None


def test_anything_before_hello_is_error_1_and_the_end(alice: Place, bob: Place) -> None:
    talk = Conversation(alice, bob, greet=False)
    talk.send(encode(Query(query_id="q", schema="OMM")))
    assert talk.crossed == [Refusal(code=1, message="hello comes first", request_id="q")]
    assert talk.closed


def test_a_second_hello_is_error_1_and_the_end(alice: Place, bob: Place) -> None:
    talk = Conversation(alice, bob)
    talk.send(encode(greeting(["OMM"])))
    assert talk.crossed[-1] == Refusal(code=1, message="hello comes once")
    assert talk.closed == ["a second hello"]


def test_a_hello_with_more_lists_than_anybody_has_is_refused(alice: Place, bob: Place) -> None:
    talk = Conversation(alice, bob, greet=False)
    talk.send(encode(Hello(protocol_version="1.0.0", capabilities=("x",) * 1_025)))
    assert talk.closed


def test_a_schema_that_the_peer_means_otherwise_is_unknown_between_the_two(alice: Place, bob: Place) -> None:
    bob.fill(1)
    talk = Conversation(alice, bob, greet=False)
    talk.send(encode(Hello(protocol_version="1.0.0", capabilities=("schema:OMM:0123456789abcdef",))))
    talk.send(encode(Query(query_id="q", schema="OMM")))
    [error] = talk.crossed
    assert (error.code, error.request_id) == (4, "q")  # type: ignore[union-attr]
    assert "another version" in error.message  # type: ignore[union-attr]
    other = Hello(
        protocol_version="1.0.0",
        supported_schemas=("OMM", "CDM.fbs", "XYZ"),
        capabilities=("schema:OMM:0123456789abcdef",),
    )
    assert shared_schemas(NAMES, other) == {"CDM"}


# publish


def test_a_publish_is_acknowledged_with_its_id_once_it_is_on_disk(alice: Place, bob: Place) -> None:
    talk = Conversation(alice, bob)
    message = alice.message(payload={"NORAD_CAT_ID": 5})
    talk.do(talk.asking.publish(message))
    assert talk.crossed[-1] == Ack(request_id=message.message_id, stored=(wire.record_id(message).hex(),))
    [record] = bob.journal.read(RecordQuery(topic=topic_of(NETWORK, "OMM")))
    assert (record.publisher, record.peer, record.key) == (alice.key.peer_id, alice.key.peer_id, "5")
    assert talk.asking.waiting == 0


def test_publishing_the_same_again_is_acknowledged_and_kept_once(alice: Place, bob: Place) -> None:
    talk = Conversation(alice, bob)
    message = alice.message(payload={"NORAD_CAT_ID": 5})
    for _ in range(2):
        talk.do(talk.asking.publish(message))
    assert talk.crossed[-1] == talk.crossed[-2]
    assert len(bob.journal.read(RecordQuery(verdict="accept"))) == 1


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"signature": bytes(64)}, 2),
        ({"publisher_id": "me"}, 2),
        ({"timestamp": "2027-01-01T00:00:00Z"}, 1),
        ({"timestamp": "soon"}, 1),
        ({"payload": b"?"}, 2),
    ],
)
def test_a_bad_publish_is_answered_with_its_code_and_counted(
    alice: Place, bob: Place, changes: dict[str, Any], code: int
) -> None:
    talk = Conversation(alice, bob)
    message = msgspec.structs.replace(alice.message(), **changes)
    talk.do(talk.asking.publish(message))
    error = last_error(talk)
    assert (error.code, error.request_id, error.retry_after) == (code, message.message_id, 0)
    assert len(talk.blamed) == 1
    assert bob.journal.read(RecordQuery(verdict="accept")) == []


def test_a_payload_that_does_not_verify_is_error_1(alice: Place, bob: Place) -> None:
    talk = Conversation(alice, bob)
    talk.do(talk.asking.publish(alice.message(payload=b"not an OMM")))
    assert last_error(talk).code == 1


def test_an_expired_publish_is_refused_but_nobody_is_blamed(alice: Place, bob: Place) -> None:
    talk = Conversation(alice, bob)
    message = alice.message(ttl=5)
    bob.clock.advance(6)
    talk.do(talk.asking.publish(message))
    assert last_error(talk).code == 1
    assert talk.blamed == []


def test_an_unknown_schema_is_error_4(alice: Place, bob: Place) -> None:
    talk = Conversation(alice, bob, schemas=frozenset({"CDM"}))
    talk.do(talk.asking.publish(alice.message()))
    talk.do(talk.asking.query(Query(query_id="q", schema="OMM")))
    talk.do(talk.asking.subscribe(Subscribe(subscription_id="s", schemas=("CDM", "OMM"))))
    talk.do(talk.asking.sync(Sync(sync_id="y", schemas=("OMM",))))
    errors = [each for each in talk.crossed if isinstance(each, Refusal)]
    assert [(each.code, each.request_id) for each in errors[1:]] == [(4, "q"), (4, "s"), (4, "y")]
    assert errors[0].code == 4


# limits


def test_the_eleventh_publish_in_a_second_is_error_3_with_the_wait(alice: Place, bob: Place) -> None:
    talk = Conversation(alice, bob)
    for _ in range(11):
        talk.do(talk.asking.publish(alice.message()))
    error = last_error(talk)
    assert (error.code, error.retry_after) == (3, 1)
    assert len([each for each in talk.crossed if isinstance(each, Ack)]) == 10
    bob.clock.advance(error.retry_after)
    talk.do(talk.asking.publish(alice.message()))
    assert isinstance(talk.crossed[-1], Ack)


def test_retry_after_is_the_missing_tokens_over_the_rate(alice: Place, bob: Place) -> None:
    talk = Conversation(alice, bob, quotas=Quotas(publish_rate=0.2))
    talk.do(talk.asking.publish(alice.message()))
    bob.clock.advance(1.5)  # 0.3 of a token: 0.7 are missing, which takes 3.5 seconds
    talk.do(talk.asking.publish(alice.message()))
    assert last_error(talk).retry_after == 4


def test_the_hundred_and_first_query_in_a_second_is_error_3(alice: Place, bob: Place) -> None:
    talk = Conversation(alice, bob)
    for number in range(100):
        talk.do(talk.asking.query(Query(query_id=f"q{number}", schema="OMM")))
    assert talk.refusals == []
    talk.do(talk.asking.query(Query(query_id="last", schema="OMM")))
    assert talk.crossed[-1] == Refusal(code=3, message="too many queries", request_id="last", retry_after=1)
    talk.do(talk.asking.sync(Sync(sync_id="sync")))
    assert last_error(talk).code == 3


def test_rates_are_per_peer_over_all_its_streams(alice: Place, bob: Place, place: Callable[..., Place]) -> None:
    quotas, carol = Quotas(publish_rate=1), place()
    first, second = (Conversation(alice, bob, quotas=quotas) for _ in range(2))
    other = Conversation(carol, bob, quotas=quotas)
    first.do(first.asking.publish(alice.message()))
    second.do(second.asking.publish(alice.message()))
    other.do(other.asking.publish(carol.message()))
    assert [type(talk.crossed[-1]) for talk in (first, second, other)] == [Ack, Refusal, Ack]


def test_the_hundred_and_first_subscription_is_error_3_until_one_ends(alice: Place, bob: Place) -> None:
    quotas = Quotas()
    talk = Conversation(alice, bob, quotas=quotas)
    for number in range(101):
        talk.do(talk.asking.subscribe(Subscribe(subscription_id=f"s{number}", schemas=("OMM",))))
    assert last_error(talk) == Refusal(code=3, message="too many subscriptions", request_id="s100")
    assert quotas.subscriptions == 100
    talk.do(talk.asking.unsubscribe("s7"))
    talk.do(talk.asking.subscribe(Subscribe(subscription_id="s100", schemas=("OMM",))))
    assert talk.crossed[-1] == Ack(request_id="s100")
    talk.answering.close()
    assert quotas.subscriptions == 0


def test_a_frame_over_a_megabyte_is_error_1_that_names_the_limit_and_the_end(alice: Place, bob: Place) -> None:
    talk = Conversation(alice, bob)
    talk.send(encode(alice.message(payload=bytes(SDS_MESSAGE_BYTES))))
    error = last_error(talk)
    assert (error.code, "1000000 are allowed" in error.message) == (1, True)
    assert talk.closed


def test_requests_that_pile_up_are_error_3(alice: Place, bob: Place) -> None:
    responder = Responder(
        "peer", Terms(network=NETWORK, schemas=frozenset(NAMES)), Quotas(), newest=lambda: 0, wall=lambda: 0
    )
    responder.receive(encode(greeting(NAMES)), 0.0)
    for number in range(8):
        responder.receive(encode(Query(query_id=f"q{number}", schema="OMM")), 0.0)
    [refused] = responder.receive(encode(Query(query_id="q8", schema="OMM")), 0.0)
    assert isinstance(refused, Send)
    error = wire.decode(refused.frame)
    assert (error.code, error.retry_after) == (3, 1)  # type: ignore[union-attr]
    responder.served()
    assert not isinstance(responder.receive(encode(Query(query_id="q9", schema="OMM")), 0.0)[0], Send)


def test_frames_that_cannot_be_read_are_error_1_and_end_the_stream_when_they_are_many(alice: Place, bob: Place) -> None:
    talk = Conversation(alice, bob)
    for _ in range(STRIKES):
        assert not talk.closed
        talk.send(b"\x08\0\0\0nonsense")
    assert [each.code for each in talk.crossed[1:]] == [1] * STRIKES  # type: ignore[union-attr]
    assert len(talk.blamed) == STRIKES
    assert talk.closed == ["frames that cannot be read"]


def test_an_error_is_not_answered_with_an_error(alice: Place, bob: Place) -> None:
    talk = Conversation(alice, bob)
    before = len(talk.crossed)
    talk.send(encode(Refusal(code=1, message="I do not like you")))
    assert len(talk.crossed) == before


def test_an_answer_to_nothing_is_error_1(alice: Place, bob: Place) -> None:
    talk = Conversation(alice, bob)
    talk.send(encode(Ack(request_id="x")))
    assert talk.crossed[-1] == Refusal(code=1, message="an answer to nothing", request_id="x")


# query


def test_a_query_finds_what_matches_its_filter(alice: Place, bob: Place) -> None:
    bob.fill(20)
    answer = asked(Conversation(alice, bob), filter=from_where({"NORAD_CAT_ID": {"gt": 17}}))
    assert (answer.total_count, answer.returned_count, answer.has_more) == (3, 3, False)
    assert numbers(answer.records) == [18, 19, 20]


def test_a_query_by_what_records_are_about_is_looked_up_and_not_scanned(alice: Place, bob: Place) -> None:
    bob.fill(20)
    scan = QueryScan(
        Query(query_id="q", schema="OMM", filter=from_where({"NORAD_CAT_ID": 7})), network=NETWORK, deadline=9e9
    )
    wanted = scan.wants()
    assert isinstance(wanted, RecordQuery)
    assert wanted.key == "7"
    assert numbers(asked(Conversation(alice, bob), filter=from_where({"NORAD_CAT_ID": 7})).records) == [7]


def test_a_query_by_epoch_is_looked_up_and_not_scanned(alice: Place, bob: Place) -> None:
    for day in range(1, 21):
        assert bob.take(bob.message(payload={"NORAD_CAT_ID": day, "EPOCH": f"2026-03-{day:02}T06:00:00.5"})).accepted
    bob.take(bob.message(payload={"NORAD_CAT_ID": 99}))
    where = from_where({"EPOCH": {"gte": "2026-03-07", "lt": "2026-03-09T06"}})
    scan = QueryScan(Query(query_id="q", schema="OMM", filter=where), network=NETWORK, deadline=9e9)
    wanted = scan.wants()
    assert isinstance(wanted, RecordQuery)
    assert (wanted.seq_from, wanted.seq_to) == (20260307000000, 20260309060000)
    assert [record.key for record in bob.journal.read(wanted)] == [
        "7",
        "8",
        "9",
    ]  # the filter itself is held against these
    assert numbers(asked(Conversation(alice, bob), filter=where).records) == [7, 8]


def test_records_that_leave_a_key_out_are_found_by_its_default(alice: Place, bob: Place) -> None:
    assert bob.take(bob.message(payload={"OBJECT_NAME": "nameless"})).accepted
    assert asked(Conversation(alice, bob), filter=from_where({"NORAD_CAT_ID": 0})).total_count == 1


def test_an_answer_is_ordered_and_ties_go_by_record_id(alice: Place, bob: Place) -> None:
    motions = [3.0, *[1.0] * 8, 2.0]
    for number, motion in enumerate(motions, start=1):
        bob.take(bob.message(payload={"NORAD_CAT_ID": number, "MEAN_MOTION": motion}))
    talk = Conversation(alice, bob)
    rising = asked(talk, order_by="MEAN_MOTION").records
    by_id = sorted(rising[:8], key=lambda each: wire.record_id(each.published))
    assert numbers(rising) == [*numbers(by_id), 10, 1]
    assert numbers(by_id) != sorted(numbers(by_id))  # the ids are in another order than the records came
    falling = asked(talk, order_by="MEAN_MOTION", order="desc").records
    assert numbers(falling) == [1, 10, *numbers(by_id)]
    assert numbers(asked(talk, order="desc").records) == list(range(10, 0, -1))


def test_pages_follow_one_another_without_gap_or_repeat(alice: Place, bob: Place) -> None:
    bob.fill(25)
    talk = Conversation(alice, bob)
    offset, seen = 0, []
    while True:
        answer = asked(talk, limit=10, offset=offset, order_by="NORAD_CAT_ID")
        seen += numbers(answer.records)
        assert answer.total_count == 25
        if not answer.has_more:
            break
        offset = answer.next_offset
    assert seen == list(range(1, 26))
    beyond = asked(talk, limit=10, offset=1_000)
    assert (beyond.total_count, beyond.records, beyond.has_more) == (25, (), False)


def test_a_page_has_100_records_unless_asked_and_1000_at_most(alice: Place, bob: Place) -> None:
    bob.fill(1_050)
    talk = Conversation(alice, bob)
    assert asked(talk).returned_count == 100
    most = asked(talk, limit=5_000)
    assert (most.returned_count, most.has_more, most.next_offset) == (1_000, True, 1_000)


def test_an_answer_is_full_at_900_kilobytes(alice: Place, bob: Place) -> None:
    bob.take_all([bob.message(payload={"NORAD_CAT_ID": n, "COMMENT": "x" * 200_000}) for n in range(1, 8)])
    talk = Conversation(alice, bob)
    first = asked(talk, order_by="NORAD_CAT_ID")
    assert numbers(first.records) == [1, 2, 3, 4, 5]
    assert (first.has_more, first.next_offset, first.total_count) == (True, 5, 7)
    assert numbers(asked(talk, order_by="NORAD_CAT_ID", offset=5).records) == [6, 7]


def test_the_largest_record_fits_into_an_answer(alice: Place, bob: Place) -> None:
    room = SDS_MESSAGE_BYTES - len(encode(bob.message(payload={"COMMENT": "x" * 100_000}))) + 100_000
    largest = bob.message(payload={"COMMENT": "x" * room})
    assert SDS_MESSAGE_BYTES - 8 <= len(encode(largest)) - 4 <= SDS_MESSAGE_BYTES
    assert bob.take(largest).accepted
    talk = Conversation(alice, bob)
    [record] = asked(talk, include_signatures=True).records
    assert record.published == largest
    talk.do(talk.asking.sync(Sync(sync_id="s")))
    assert talk.crossed[-1].records[0].published == largest  # type: ignore[union-attr]
    assert alice.take(record).accepted


def test_signatures_come_only_when_asked_for(alice: Place, bob: Place) -> None:
    [message] = bob.fill(1)
    talk = Conversation(alice, bob)
    [bare] = asked(talk).records
    [proven] = asked(talk, include_signatures=True).records
    assert (bare.signature, proven.signature) == (b"", message.signature)
    assert alice.take(bare).reason is Reason.INVALID_SIGNATURE
    assert alice.take(proven).accepted


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ({"filter": Filter(field="WINGS", operator="eq", value="2")}, "OMM has no field 'WINGS'"),
        ({"filter": Filter(field="EPOCH", operator="like", value="2")}, "no operator 'like'"),
        ({"order_by": "WINGS"}, "no field 'WINGS'"),
        ({"order_by": "EPOCH", "order": "sideways"}, "no order 'sideways'"),
        ({"offset": 1_000_001}, "at most 1000000"),
    ],
)
def test_a_query_that_cannot_be_answered_is_error_1_naming_why(
    alice: Place, bob: Place, query: dict[str, Any], complaint: str
) -> None:
    talk = Conversation(alice, bob)
    talk.do(talk.asking.query(Query(query_id="q", schema="OMM", **query)))
    error = last_error(talk)
    assert (error.code, error.request_id) == (1, "q")
    assert complaint in error.message


def test_a_query_that_takes_too_long_is_error_5(alice: Place, bob: Place) -> None:
    bob.fill(3)
    scan = QueryScan(Query(query_id="q", schema="OMM"), network=NETWORK, deadline=10.0)
    wanted = scan.wants()
    assert isinstance(wanted, RecordQuery)
    [frame] = scan.feed(bob.journal.read(wanted), now=10.1)
    error = wire.decode(frame)
    assert (error.code, error.request_id) == (5, "q")  # type: ignore[union-attr]
    assert scan.wants() is None


def test_a_query_that_would_look_at_too_much_is_error_5(bob: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.core.limits.SDS_SCAN_RECORDS", 600)
    bob.fill(700)
    scan, frames = QueryScan(Query(query_id="q", schema="OMM"), network=NETWORK, deadline=10.0), []
    while isinstance(wanted := scan.wants(), RecordQuery):
        frames += scan.feed(bob.journal.read(wanted), 0.0)
    assert [wire.decode(frame).code for frame in frames] == [5]  # type: ignore[union-attr]


def test_an_empty_id_is_refused(alice: Place, bob: Place) -> None:
    talk = Conversation(alice, bob)
    talk.send(encode(Query(schema="OMM")))
    assert "query_id" in last_error(talk).message
    talk.send(encode(Sync(sync_id="x" * 257)))
    assert "sync_id" in last_error(talk).message


# subscribe


def subscribe(talk: Conversation, **changes: Any) -> None:
    talk.do(talk.asking.subscribe(Subscribe(**{"subscription_id": "s", "schemas": ("OMM",), **changes})))


def pushed(talk: Conversation) -> list[int]:
    return [_number(message.payload) for message in talk.pushes]


def test_a_subscriber_gets_what_comes_after_and_nothing_from_before(alice: Place, bob: Place) -> None:
    bob.fill(2)
    talk = Conversation(alice, bob)
    subscribe(talk)
    assert talk.crossed[-1] == Ack(request_id="s")
    message = bob.message(payload={"NORAD_CAT_ID": 9})
    bob.take(message)
    bob.take(bob.message("CDM"))
    talk.news()
    assert talk.pushes == [message]


def test_only_what_matches_the_filter_is_pushed(alice: Place, bob: Place) -> None:
    talk = Conversation(alice, bob)
    subscribe(talk, filter=from_where({"NORAD_CAT_ID": [2, 4]}))
    bob.fill(5)
    talk.news()
    assert pushed(talk) == [2, 4]


def test_one_subscription_may_name_several_schemas(alice: Place, bob: Place) -> None:
    talk = Conversation(alice, bob)
    subscribe(talk, schemas=("OMM", "CDM.fbs", "CAT"))
    for schema in ("OMM", "TDM", "CDM", "CAT"):
        bob.take(bob.message(schema))
    talk.news()
    assert [message.schema for message in talk.pushes] == ["OMM", "CDM", "CAT"]


def test_a_late_joiner_gets_the_newest_records_of_the_past_in_their_order(alice: Place, bob: Place) -> None:
    bob.fill(1_200)
    talk = Conversation(alice, bob)
    subscribe(talk, include_historical=True, historical_limit=3, filter=from_where({"NORAD_CAT_ID": {"lte": 600}}))
    assert pushed(talk) == [598, 599, 600]
    bob.take(bob.message(payload={"NORAD_CAT_ID": 5}))
    talk.news()
    assert pushed(talk) == [598, 599, 600, 5]


def test_large_records_are_read_few_at_a_time_and_nothing_is_left_out(
    alice: Place, bob: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages end at their bytes, so that 500 records of a megabyte are never in memory at once."""
    monkeypatch.setattr(limits, "SDS_SCAN_BYTES", 3_000)
    for number in range(1, 41):
        bob.take(bob.message(payload={"NORAD_CAT_ID": number, "COMMENT": "x" * 1_000}))
    read, sizes = bob.journal.read, []

    def measured(query: RecordQuery) -> list[Record]:
        found = read(query)
        sizes.append(sum(len(record.raw or b"") for record in found))
        return found

    monkeypatch.setattr(bob.journal, "read", measured)
    talk = Conversation(alice, bob)
    subscribe(talk, include_historical=True, historical_limit=30)
    assert pushed(talk) == list(range(11, 41))
    assert asked(talk, filter=from_where({"NORAD_CAT_ID": {"gt": 3}})).total_count == 37
    assert synced(talk, alice) == 40
    assert len(sizes) > 30
    assert max(sizes) < 3_000 + 1_500  # the bound, and the record that reaches it


def test_history_has_100_records_unless_asked_and_ends_where_the_past_does(alice: Place, bob: Place) -> None:
    bob.fill(150)
    talk = Conversation(alice, bob)
    subscribe(talk, include_historical=True)
    assert pushed(talk) == list(range(51, 151))
    few = Conversation(alice, bob)
    subscribe(few, include_historical=True, historical_limit=500)
    assert pushed(few) == list(range(1, 151))


def test_what_has_outlived_its_ttl_is_not_delivered_but_still_answered(alice: Place, bob: Place) -> None:
    bob.take(bob.message(payload={"NORAD_CAT_ID": 1}, ttl=60))
    bob.take(bob.message(payload={"NORAD_CAT_ID": 2}, ttl=600))
    bob.clock.advance(61)
    talk = Conversation(alice, bob)
    subscribe(talk, include_historical=True)
    assert pushed(talk) == [2]
    assert asked(talk).total_count == 2


def test_records_that_came_by_sync_are_pushed_as_they_were_published(
    alice: Place, bob: Place, place: Callable[..., Place]
) -> None:
    carol = place()
    [message] = carol.fill(1)
    talk = Conversation(alice, bob)
    subscribe(talk)
    sync = Conversation(bob, carol)
    sync.do(sync.asking.sync(Sync(sync_id="s")))
    assert bob.take(sync.crossed[-1].records[0]).kind == "record"  # type: ignore[union-attr]
    talk.news()
    assert talk.pushes == [message]


def test_unsubscribing_ends_it(alice: Place, bob: Place) -> None:
    talk = Conversation(alice, bob)
    subscribe(talk)
    talk.do(talk.asking.unsubscribe("s"))
    assert talk.crossed[-1] == Ack(request_id="s")
    bob.fill(1)
    talk.news()
    assert talk.feeds == {}
    assert not any(isinstance(each, wire.Publish) for each in talk.crossed)


@pytest.mark.parametrize(
    ("subscribe_", "complaint"),
    [
        ({"schemas": ()}, "at least one schema"),
        ({"subscription_id": "twice"}, "is active"),
        ({"subscription_id": ""}, "1 to 256 characters"),
        ({"filter": Filter(field="WINGS", operator="eq", value="2")}, "no field 'WINGS'"),
        ({"schemas": ("OMM",) * 1_025}, "more schemas"),
    ],
)
def test_a_subscription_that_cannot_be_served_is_error_1(
    alice: Place, bob: Place, subscribe_: dict[str, Any], complaint: str
) -> None:
    talk = Conversation(alice, bob)
    talk.send(encode(Subscribe(subscription_id="twice", schemas=("OMM",))))
    talk.send(encode(Subscribe(**{"subscription_id": "s", "schemas": ("OMM",), **subscribe_})))
    error = last_error(talk)
    assert error.code == 1
    assert complaint in error.message


def test_ending_what_was_never_begun_is_error_1(alice: Place, bob: Place) -> None:
    talk = Conversation(alice, bob)
    talk.send(encode(wire.Unsubscribe(subscription_id="s")))
    assert last_error(talk).code == 1
    with pytest.raises(UsageError):
        talk.asking.unsubscribe("s")


# sync


def synced(talk: Conversation, taker: Place, *, round_: int = 0, **changes: Any) -> int:
    """One round: ask with a filter of what the taker holds, keep what comes; how many were new."""
    held = [record.id for record in taker.journal.read(RecordQuery(verdict="accept", limit=100_000))]
    bloom = Bloom.of(held, round_)
    before = len(talk.crossed)
    talk.do(
        talk.asking.sync(Sync(sync_id=f"y{before}", bloom_filter=bloom.bits, bloom_hash_count=bloom.hashes, **changes))
    )
    answers = talk.crossed[before:]
    assert [each.has_more for each in answers] == [True] * (len(answers) - 1) + [False]  # type: ignore[union-attr]
    records = [record for each in answers for record in each.records]  # type: ignore[union-attr]
    return sum(arrival.accepted for arrival in taker.take_all(records)) if records else 0


def test_a_node_that_was_off_ends_holding_all_it_missed(alice: Place, bob: Place) -> None:
    """And receives at most 1.1 times the bytes it missed."""
    early = bob.fill(300)
    assert all(arrival.accepted for arrival in alice.take_all(list(early)))
    missed = [bob.message(payload={"NORAD_CAT_ID": n, "OBJECT_NAME": f"OBJECT {n}"}) for n in range(1, 2_001)]
    assert all(arrival.accepted for arrival in bob.take_all(list(missed)))
    talk, rounds = Conversation(alice, bob), 0
    before = talk.crossed_bytes
    while synced(talk, alice, round_=rounds) or rounds < 2:
        rounds += 1
    held = {record.id for record in alice.journal.read(RecordQuery(verdict="accept", limit=100_000))}
    assert {wire.record_id(message) for message in (*early, *missed)} == held
    assert talk.crossed_bytes - before <= 1.1 * sum(len(encode(message)) for message in missed)
    assert rounds <= 5


def test_without_a_filter_everything_comes_in_parts(alice: Place, bob: Place) -> None:
    bob.take_all([bob.message(payload={"COMMENT": "x" * 200_000}) for _ in range(10)])
    talk = Conversation(alice, bob)
    assert synced(talk, alice) == 10
    parts = [each for each in talk.crossed if isinstance(each, wire.SyncResponse)]
    assert [len(part.records) for part in parts] == [4, 4, 2]


def test_only_the_schemas_asked_for_and_the_time_since_are_synced(alice: Place, bob: Place) -> None:
    bob.fill(3)
    since = "2026-03-01T00:01:00Z"
    bob.clock.advance(60)
    bob.take(bob.message("CDM"))
    bob.take(bob.message("OMM", {"NORAD_CAT_ID": 77}))
    talk = Conversation(alice, bob)
    assert synced(talk, alice, schemas=("OMM",), since=since) == 1
    assert numbers(talk.crossed[-1].records) == [77]  # type: ignore[union-attr]
    assert synced(talk, alice, since=since) == 1
    assert synced(talk, alice, schemas=("OMM.fbs", "CDM")) == 3


def test_a_sync_answers_with_records_whose_ttl_has_passed(alice: Place, bob: Place) -> None:
    bob.take(bob.message(ttl=1))
    for each in (alice, bob):
        each.clock.advance(100)
    assert synced(Conversation(alice, bob), alice) == 1


@pytest.mark.parametrize(
    ("sync", "complaint"),
    [
        ({"since": "yesterday"}, "ISO 8601"),
        ({"bloom_filter": b"\xff" * 16, "bloom_hash_count": 3}, "of ones"),
        ({"bloom_filter": bytes(16), "bloom_hash_count": 0}, "1 to 32 hashes"),
        ({"bloom_filter": bytes(524_289), "bloom_hash_count": 3}, "524288 are allowed"),
    ],
)
def test_a_sync_that_cannot_be_answered_is_error_1(
    alice: Place, bob: Place, sync: dict[str, Any], complaint: str
) -> None:
    talk = Conversation(alice, bob)
    talk.do(talk.asking.sync(Sync(sync_id="y", **sync)))
    error = last_error(talk)
    assert (error.code, error.request_id) == (1, "y")
    assert complaint in error.message


# the asking side


def requester() -> Requester:
    asking = Requester("peer", NAMES)
    asking.start()
    assert asking.receive(encode(greeting(NAMES)), 0.0) == []
    return asking


def test_a_request_needs_an_id_of_its_own() -> None:
    asking = requester()
    asking.query(Query(query_id="q", schema="OMM"))
    for name in ("q", ""):
        with pytest.raises(UsageError):
            asking.query(Query(query_id=name, schema="OMM"))


def test_requests_without_an_answer_are_bounded() -> None:
    asking = requester()
    for number in range(1_024):
        asking.query(Query(query_id=f"q{number}", schema="OMM"))
    with pytest.raises(OverloadedError):
        asking.query(Query(query_id="one more", schema="OMM"))
    asking.forget("q5")
    assert asking.query(Query(query_id="one more", schema="OMM"))


def test_an_answer_nobody_waits_for_is_nothing() -> None:
    asking = requester()
    assert asking.receive(encode(QueryResponse(query_id="old")), 0.0) == []
    asking.query(Query(query_id="q", schema="OMM"))
    assert asking.receive(encode(wire.SyncResponse(sync_id="q")), 0.0) == []


def test_a_push_nobody_asked_for_is_counted_and_not_taken(alice: Place) -> None:
    asking = requester()
    [blame] = asking.receive(encode(alice.message()), 0.0)
    assert type(blame).__name__ == "Blame"
    asking.subscribe(Subscribe(subscription_id="s", schemas=("OMM",)))
    asking.receive(encode(Ack(request_id="s")), 0.0)
    asking.unsubscribe("s")
    assert asking.receive(encode(alice.message()), 0.0) == []  # still on its way when we left


@pytest.mark.parametrize("frame", [b"junk", encode(Query(query_id="q")), encode(Hello(protocol_version="1.0.0"))])
def test_a_responder_that_breaks_the_protocol_is_left(frame: bytes) -> None:
    assert [type(action).__name__ for action in requester().receive(frame, 0.0)] == ["Send", "Blame", "Close"]


def test_a_responder_that_does_not_say_hello_first_is_left() -> None:
    asking = Requester("peer", NAMES)
    assert [type(action).__name__ for action in asking.receive(encode(Ack()), 0.0)] == ["Send", "Blame", "Close"]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=5), st.booleans())
def test_no_bytes_make_a_session_raise(frames: list[bytes], greet: bool) -> None:
    terms = Terms(network=NETWORK, schemas=frozenset(NAMES))
    responder = Responder("peer", terms, Quotas(), newest=lambda: 0, wall=lambda: 0)
    asking = Requester("peer", NAMES)
    for frame in ([encode(greeting(NAMES))] if greet else []) + frames:
        for actions in (responder.receive(frame, 0.0), asking.receive(frame, 0.0)):
            assert isinstance(actions, list)


def test_a_frame_the_network_would_not_let_through_is_answered() -> None:
    terms = Terms(network=NETWORK, schemas=frozenset(NAMES))
    responder = Responder("peer", terms, Quotas(), newest=lambda: 0, wall=lambda: 0)
    actions = responder.broken(DecodeError("a frame of 2000000 bytes", reason=Reason.OVERSIZE))
    assert [type(action).__name__ for action in actions] == ["Send", "Blame", "Close"]


def test_times_of_the_answerer_stamp_its_answers(alice: Place, bob: Place) -> None:
    bob.clock.advance(5)
    bob.fill(1)
    [record] = asked(Conversation(alice, bob)).records
    assert record.received_at == "2026-03-01T00:00:05.000000Z"
    [kept] = bob.journal.read(RecordQuery())
    assert kept.raw is not None
    assert published(kept.raw).timestamp == "2026-03-01T00:00:05.000000Z"
    assert kept.received_at % SECOND == 0
