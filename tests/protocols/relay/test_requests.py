"""Client requests: every method as real clients use it, and every refusal with its documented error."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest

from syncline.core.errors import RefusedError, UnavailableError
from syncline.core.limits import SECOND
from syncline.core.ports import ANY, StateChange
from syncline.core.verdict import Outcome, Reason
from syncline.protocols.relay.session import durable
from syncline.protocols.relay.session.batches import CommitQueue
from syncline.protocols.relay.session.clients import subscription_id
from syncline.protocols.relay.wire import rpc
from tests.protocols.relay.desk import Desk
from tests.relays import topic_of

Vectors = Callable[[str], list[dict[str, Any]]]
NEWS, OTHER = topic_of("news"), topic_of("other")


def fault(answer: Any) -> tuple[int, str]:
    assert set(answer) == {"id", "jsonrpc", "error"}
    return answer["error"]["code"], answer["error"]["data"]


# -- what real clients say ---------------------------------------------------------------------------------------


def test_the_recorded_requests_of_a_real_client_get_the_recorded_answers(vectors: Vectors) -> None:
    desk, transcript = Desk(), [each for each in vectors("relay") if each["name"].startswith("wc_")]
    connections: dict[int, Any] = {}
    compared = 0
    for vector in transcript:
        number = vector["connection"]
        if vector["name"].endswith("_open"):
            if number == 3:  # client B comes back
                desk.hub.disconnect(connections[1])
            connections[number] = desk.hub.connect(vector["meaning"]["jwt"]["payload"]["iss"])
        elif vector["direction"] == "client->server" and "method" in vector["text"]:
            desk.tell(connections[number], vector["text"].encode())
        elif vector["direction"] == "server->client" and '"result"' in vector["text"]:
            answers = [each for each in desk.heard(connections[number]) if "result" in each]
            assert answers == [msgspec.json.decode(vector["text"])], vector["name"]
            compared += 1
    assert compared == 8


def test_a_delivery_has_the_form_real_clients_accept(vectors: Vectors) -> None:
    desk = Desk()
    [vector] = [each for each in vectors("relay") if each["name"] == "wc_23_irn_subscription"]
    recorded = msgspec.json.decode(vector["text"])
    data = recorded["params"]["data"]
    alice, bob = desk.client(1), desk.hub.connect("did:key:z6MkgBPNhR99hwoYEh25T6Rj8Jg7BiZiuomgfTCvrY44KHYs")
    desk.subscribe(bob, data["topic"])
    desk.publish(alice, data["topic"], data["message"], tag=data["tag"])
    [delivery] = desk.heard(bob)
    stamped = {**data, "publishedAt": desk.clock.now() // 1_000}
    assert delivery == {**recorded, "id": delivery["id"], "params": {**recorded["params"], "data": stamped}}
    assert delivery["id"] < 2**53


@pytest.mark.parametrize("request_id", ["1794728714613246464", 7, 1_794_725_634_767_001, "", -1])
def test_ids_are_echoed_as_they_came(request_id: Any) -> None:
    desk = Desk()
    answer = desk.ask(desk.client(), "irn_subscribe", {"topic": NEWS}, request_id)
    assert answer["id"] == request_id
    assert type(answer["id"]) is type(request_id)


def test_subscribing_answers_with_the_id_the_client_computes_itself() -> None:
    desk = Desk()
    connection = desk.client()
    expected = subscription_id(NEWS, connection.client.did)
    assert desk.subscribe(connection, NEWS)["result"] == expected
    batch = desk.ask(connection, "irn_batchSubscribe", {"topics": [NEWS, OTHER]})
    assert batch["result"] == [expected, subscription_id(OTHER, connection.client.did)]


def test_a_published_message_reaches_every_other_subscriber_once() -> None:
    desk = Desk()
    alice, bob, carol = desk.client(1), desk.client(2), desk.client(3)
    for connection in (alice, bob, carol):
        desk.subscribe(connection, NEWS)
    assert desk.publish(alice, NEWS, "hello")["result"] is True
    assert [len(desk.heard(each)) for each in (alice, bob, carol)] == [0, 1, 1]


def test_a_repeated_message_is_answered_true_and_not_sent_again() -> None:
    desk = Desk()
    alice, bob = desk.client(1), desk.client(2)
    desk.subscribe(bob, NEWS)
    assert desk.publish(alice, NEWS, "hello")["result"] is True
    desk.acknowledge(bob, *desk.heard(bob))
    assert desk.publish(alice, NEWS, "hello", ttl=600)["result"] is True
    assert desk.heard(bob) == []
    assert (desk.last_arrival().verdict, desk.last_arrival().reason) == (Outcome.IGNORE, Reason.DUPLICATE)
    assert desk.hub.publishing.repeated == 1


def test_the_same_text_may_come_again_after_its_time() -> None:
    desk = Desk()
    alice, bob = desk.client(1), desk.client(2)
    desk.subscribe(bob, NEWS)
    desk.publish(alice, NEWS, "hello", ttl=10)
    desk.acknowledge(bob, *desk.heard(bob))
    desk.clock.advance(11)
    desk.hub.tick()
    desk.publish(alice, NEWS, "hello", ttl=10)
    assert len(desk.heard(bob)) == 1


def test_two_clients_that_publish_the_same_at_the_same_time_both_hear_true() -> None:
    desk = Desk()
    alice, bob, carol = desk.client(1), desk.client(2), desk.client(3)
    desk.subscribe(carol, NEWS)
    request = {"id": 1, "jsonrpc": "2.0", "method": "irn_publish"}
    for connection in (alice, bob):
        desk.tell(connection, {**request, "params": {"topic": NEWS, "message": "same", "ttl": 60}})
    assert [desk.heard(each)[0]["result"] for each in (alice, bob)] == [True, True]
    assert len(desk.heard(carol)) == 1


def test_nothing_is_answered_before_the_commit() -> None:
    desk = Desk()
    alice, bob = desk.client(1), desk.client(2)
    desk.subscribe(bob, NEWS)
    desk.tell(alice, rpc.request(1, "irn_publish", {"topic": NEWS, "message": "hello", "ttl": 60}))
    desk.run(commit=False)
    assert alice.take() == bob.take() == []


def test_a_failed_commit_is_an_error_and_leaves_nothing() -> None:
    desk = Desk()
    alice, bob = desk.client(1), desk.client(2)
    desk.subscribe(bob, NEWS)
    desk.tell(alice, rpc.request(1, "irn_publish", {"topic": NEWS, "message": "hello", "ttl": 60}))
    desk.tell(bob, rpc.request(2, "irn_publish", {"topic": NEWS, "message": "hello", "ttl": 60}))
    batch = desk.hub.queue.take()
    assert batch is not None
    batch.failed(UnavailableError("the disk is full [/secret/path]"))
    answers = desk.heard(alice) + desk.heard(bob)
    assert [fault(each) for each in answers] == [(-32603, "InternalError")] * 2
    assert "secret" not in str(answers)
    assert len(desk.hub.cache) == 0
    assert desk.publish(alice, NEWS, "hello")["result"] is True


def test_a_batch_is_published_whole() -> None:
    desk = Desk()
    alice, bob = desk.client(1), desk.client(2)
    desk.subscribe(bob, NEWS)
    messages = [{"topic": NEWS, "message": str(number), "ttl": 60} for number in range(3)]
    assert desk.ask(alice, "irn_batchPublish", {"messages": messages})["result"] is True
    assert [each["params"]["data"]["message"] for each in desk.heard(bob)] == ["0", "1", "2"]


def test_one_bad_message_refuses_its_whole_batch() -> None:
    desk = Desk()
    alice = desk.client()
    messages = [{"topic": NEWS, "message": "good", "ttl": 60}, {"topic": "bad", "message": "bad", "ttl": 60}]
    assert fault(desk.ask(alice, "irn_batchPublish", {"messages": messages})) == (-32600, "InvalidTopic")
    assert len(desk.hub.cache) == 0
    assert desk.publish(alice, NEWS, "good")["result"] is True


def test_unsubscribing_is_by_client_and_topic_whatever_the_id() -> None:
    desk = Desk()
    alice, bob = desk.client(1), desk.client(2)
    desk.subscribe(bob, NEWS)
    assert desk.ask(bob, "irn_unsubscribe", {"topic": NEWS, "id": "of my own making"})["result"] is True
    desk.publish(alice, NEWS, "hello")
    assert desk.heard(bob) == []
    subscriptions = [{"topic": OTHER, "id": "x"}]
    desk.subscribe(bob, OTHER)
    assert desk.ask(bob, "irn_batchUnsubscribe", {"subscriptions": subscriptions})["result"] is True
    desk.publish(alice, OTHER, "hello")
    assert desk.heard(bob) == []
    assert desk.hub.directory.count == 0


def test_subscribing_right_after_unsubscribing_is_a_subscription_like_any_other() -> None:
    """Both are on their way to the disk at the same time: the topic must be wanted here, and remembered."""
    desk = Desk()
    alice, bob = desk.client(1), desk.client(2)
    desk.subscribe(bob, NEWS)
    desk.tell(bob, rpc.request(1, "irn_unsubscribe", {"topic": NEWS, "id": ""}))
    desk.tell(bob, rpc.request(2, "irn_subscribe", {"topic": NEWS}))
    assert [each["id"] for each in desk.heard(bob)] == [1, 2]
    assert desk.hub.directory.is_wanted(NEWS)
    assert NEWS in desk.hub.routing.me.topics
    [(key, _)] = desk.disk.scan(durable.SUBSCRIPTIONS)
    assert key == durable.client_key(bob.client.public, NEWS)
    desk.publish(alice, NEWS, "hello")
    assert [each["params"]["data"]["message"] for each in desk.heard(bob)] == ["hello"]


def test_unsubscribing_that_fails_leaves_the_subscription() -> None:
    desk = Desk()
    alice, bob = desk.client(1), desk.client(2)
    desk.subscribe(bob, NEWS)
    desk.tell(bob, rpc.request(1, "irn_unsubscribe", {"topic": NEWS, "id": ""}))
    batch = desk.hub.queue.take()
    assert batch is not None
    batch.failed(UnavailableError("the disk is full"))
    assert [fault(each) for each in desk.heard(bob)] == [(-32603, "InternalError")]
    assert (desk.hub.directory.is_wanted(NEWS), desk.hub.directory.count) == (True, 1)
    assert NEWS in desk.hub.routing.me.topics
    desk.publish(alice, NEWS, "hello")
    assert [each["params"]["data"]["message"] for each in desk.heard(bob)] == ["hello"]


def _remembered(desk: Desk) -> dict[tuple[bytes, str], int]:
    """When each subscription ends, by what is on disk; checked to be what counts in memory."""
    found = desk.disk.scan(durable.SUBSCRIPTIONS)
    ends = {durable.split_client_key(key): int.from_bytes(value, "big") for key, value in found}
    assert {key: desk.hub.directory.ends_at(*key) for key in ends} == ends
    assert desk.hub.directory.count == len(ends)
    return ends


def _fail(desk: Desk) -> None:
    """The next batch cannot be kept."""
    batch = desk.hub.queue.take()
    assert batch is not None
    batch.failed(UnavailableError("the disk is full"))


@pytest.mark.parametrize("together", [True, False])
def test_unsubscribing_and_subscribing_again_that_both_fail_leave_the_subscription(together: bool) -> None:
    desk = Desk()
    alice, bob = desk.client(1), desk.client(2)
    desk.subscribe(bob, NEWS)
    before = _remembered(desk)
    desk.clock.advance(60)
    asked = [("irn_unsubscribe", {"topic": NEWS, "id": ""}), ("irn_subscribe", {"topic": NEWS})]
    for number, (method, params) in enumerate(asked):
        desk.tell(bob, rpc.request(number, method, params))
    if together:
        _fail(desk)
    else:
        batch = desk.hub.queue.take()
        assert batch is not None
        for part in batch.apart():
            part.failed(UnavailableError("the disk is full"))
    assert [fault(each) for each in desk.heard(bob)] == [(-32603, "InternalError")] * 2
    assert before == _remembered(desk)
    assert list(before) == [(bob.client.public, NEWS)]
    assert NEWS in desk.hub.routing.me.topics
    desk.publish(alice, NEWS, "hello")
    assert [each["params"]["data"]["message"] for each in desk.heard(bob)] == ["hello"]


def test_a_subscribe_is_kept_though_the_one_before_it_was_not() -> None:
    desk = Desk()
    bob = desk.client(2)
    desk.tell(bob, rpc.request(1, "irn_subscribe", {"topic": NEWS}))
    first = desk.hub.queue.take()
    assert first is not None
    desk.tell(bob, rpc.request(2, "irn_subscribe", {"topic": NEWS}))
    first.failed(UnavailableError("the disk is full"))
    answers = desk.heard(bob)
    assert [(each["id"], "result" in each) for each in answers] == [(1, False), (2, True)]
    assert list(_remembered(desk)) == [(bob.client.public, NEWS)]


def test_renewing_a_subscription_that_fails_leaves_its_end_where_it_was() -> None:
    desk = Desk(subscription_seconds=100)
    bob = desk.client(2)
    desk.subscribe(bob, NEWS)
    before = _remembered(desk)
    desk.clock.advance(40)
    desk.tell(bob, rpc.request(1, "irn_subscribe", {"topic": NEWS}))
    _fail(desk)
    assert _remembered(desk) == before


def test_prolonging_that_fails_is_tried_again_and_nothing_piles_up() -> None:
    desk = Desk(subscription_seconds=100)
    bob = desk.client(2)
    desk.subscribe(bob, NEWS)
    before = _remembered(desk)
    desk.clock.advance(60)
    for _ in range(20):
        desk.clock.advance(1)
        desk.hub.tick()
        _fail(desk)
        assert _remembered(desk) == before
    assert len(desk.hub.subscriptions._ends) == 1
    desk.clock.advance(1)
    desk.hub.tick()
    desk.run()
    assert list(_remembered(desk).values()) == [desk.clock.now() + 100 * SECOND]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_fails_memory_and_disk_agree_when_nothing_is_on_its_way(seed: int) -> None:
    desk, random = Desk(subscription_seconds=100), Random(seed)
    clients = [desk.client(1), desk.client(2)]
    for step in range(200):
        client, topic = random.choice(clients), random.choice([NEWS, OTHER])
        if random.random() < 0.5:
            desk.tell(client, rpc.request(step, "irn_subscribe", {"topic": topic}))
        else:
            desk.tell(client, rpc.request(step, "irn_unsubscribe", {"topic": topic, "id": ""}))
        if random.random() < 0.3:
            desk.clock.advance(random.choice([1, 30]))
            desk.hub.tick()
        if random.random() < 0.3:
            while (batch := desk.hub.queue.take()) is not None:
                for part in batch.apart():
                    if random.random() < 0.5:
                        part.failed(UnavailableError("the disk is full"))
                    else:
                        part.done(desk.disk.append(part.incoming, part.state))
            desk.hub.subscriptions.expire()
            desk.run()
            found = _remembered(desk)
            wanted = {topic for _, topic in found}
            assert {topic for topic in (NEWS, OTHER) if desk.hub.directory.is_wanted(topic)} == wanted
            assert set(desk.hub.routing.me.topics) == wanted
    desk.run()
    assert len(desk.hub.subscriptions._unsettled) == 0


def test_what_a_client_that_has_gone_asked_for_is_still_there_when_it_comes_back() -> None:
    desk = Desk()
    alice, bob = desk.client(1), desk.client(2)
    desk.publish(alice, NEWS, "hello")
    desk.tell(bob, rpc.request(1, "irn_fetchMessages", {"topic": NEWS}))
    desk.hub.disconnect(bob)  # before the body has come from the journal
    desk.run()
    found = desk.ask(desk.client(2), "irn_fetchMessages", {"topic": NEWS})["result"]
    assert [each["message"] for each in found["messages"]] == ["hello"]


def test_fetching_answers_with_what_was_not_had_yet() -> None:
    desk = Desk()
    alice, bob = desk.client(1), desk.client(2)
    desk.publish(alice, NEWS, "one", tag=1_100)
    desk.publish(alice, OTHER, "two")
    now = desk.clock.now() // 1_000
    found = desk.ask(bob, "irn_fetchMessages", {"topic": NEWS})["result"]
    assert found == {
        "messages": [{"topic": NEWS, "message": "one", "publishedAt": now, "tag": 1_100, "attestation": None}],
        "hasMore": False,
    }
    batch = desk.ask(bob, "irn_batchFetchMessages", {"topics": [NEWS, OTHER]})["result"]
    assert [each["message"] for each in batch["messages"]] == ["two"]
    assert desk.ask(bob, "irn_batchFetchMessages", {"topics": [NEWS, OTHER]})["result"]["messages"] == []


def test_a_large_mailbox_is_fetched_in_pages() -> None:
    desk = Desk(request_burst=10_000)
    alice, bob = desk.client(1), desk.client(2)
    for number in range(501):
        desk.publish(alice, NEWS, str(number))
    first = desk.ask(bob, "irn_fetchMessages", {"topic": NEWS})["result"]
    second = desk.ask(bob, "irn_fetchMessages", {"topic": NEWS})["result"]
    assert (len(first["messages"]), first["hasMore"]) == (500, True)
    assert ([each["message"] for each in second["messages"]], second["hasMore"]) == (["500"], False)


# -- refusals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "code", "name", "reason"),
    [
        ({"message": "x" * 98_305}, -32600, "PayloadSizeExceeded", Reason.QUOTA_EXCEEDED),
        ({"message": "x" * 1_000_001}, -32600, "PayloadSizeExceeded", Reason.OVERSIZE),
        ({"topic": "news"}, -32600, "InvalidTopic", Reason.INVALID_TOPIC),
        ({"topic": NEWS.upper()}, -32600, "InvalidTopic", Reason.INVALID_TOPIC),
        ({"topic": ""}, -32600, "InvalidTopic", Reason.INVALID_TOPIC),
        ({"ttl": 86_401}, -32000, "TtlTooLong", Reason.INVALID_FIELD),
        ({"ttl": 2**64}, -32000, "TtlTooLong", None),
        ({"ttl": 0}, -32000, "TtlTooShort", Reason.INVALID_FIELD),
        ({"ttl": -1}, -32000, "TtlTooShort", None),
        ({"tag": -1}, -32600, "InvalidParams", None),
        ({"tag": 2**32}, -32600, "InvalidParams", None),
        ({"ttl": "300"}, -32600, "InvalidParams", None),
        ({"ttl": 1.5}, -32600, "InvalidParams", None),
        ({"message": 7}, -32600, "InvalidParams", None),
        ({"message": None}, -32600, "InvalidParams", None),
        ({"prompt": "yes"}, -32600, "InvalidParams", None),
    ],
)
def test_a_bad_publish_gets_its_error_and_its_record(
    params: dict[str, Any], code: int, name: str, reason: Reason | None
) -> None:
    desk = Desk()
    given = {"topic": NEWS, "message": "hello", "ttl": 300, **params}
    assert fault(desk.ask(desk.client(), "irn_publish", given)) == (code, name)
    assert [(each.verdict, each.reason) for each in desk.disk.arrivals] == (
        [(Outcome.REJECT, reason)] if reason else []
    )
    assert len(desk.hub.cache) == 0


def test_the_limit_stands_in_the_text_of_an_oversize_answer() -> None:
    desk = Desk()
    answer = desk.publish(desk.client(), NEWS, "é" * 98_304)
    assert answer["error"]["message"] == "a message may have 98304 bytes, this one has 196608"


def test_a_shorter_ttl_may_be_set() -> None:
    desk = Desk(ttl_max=60)
    assert fault(desk.publish(desk.client(), NEWS, "hello", ttl=61)) == (-32000, "TtlTooLong")
    assert desk.last_arrival().reason is Reason.QUOTA_EXCEEDED


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"hello",
        b"[]",
        b"{}",
        b"null",
        b"\xff",
        b'{"id":1,"method":"irn_publish"}',
        b'{"id":null,"jsonrpc":"2.0","method":"irn_publish"}',
        b'{"id":1.5,"jsonrpc":"2.0","method":"irn_publish"}',
        b'{"id":1,"jsonrpc":"2.0","method":["irn_publish"]}',
        b'[{"id":1,"jsonrpc":"2.0","method":"irn_subscribe","params":{}}]',
        b"[" * 5_000,
    ],
)
def test_what_is_not_a_request_is_said_to_be_none(payload: bytes) -> None:
    desk = Desk()
    connection = desk.client()
    desk.tell(connection, payload)
    [answer] = desk.heard(connection)
    assert fault(answer) == (-32600, "InvalidJson")
    assert answer["id"] is None


@pytest.mark.parametrize(
    "params",
    [b'{"topic":"\xff"}', b"[" * 200_000, b'{"topics":["a\x98"]}', b'{"topic":' + b"[" * 2_000 + b"]" * 2_000 + b"}"],
)
@pytest.mark.parametrize("method", [b"irn_subscribe", b"irn_publish", b"irn_batchFetchMessages"])
def test_parameters_that_cannot_be_read_are_answered(method: bytes, params: bytes) -> None:
    desk = Desk()
    connection = desk.client()
    desk.tell(connection, b'{"id":1,"jsonrpc":"2.0","method":"%b","params":%b}' % (method, params))
    [answer] = desk.heard(connection)
    assert answer["error"]["code"] == -32600


@pytest.mark.parametrize("kept", [True, False])
def test_a_fault_in_one_conversation_stops_no_other(kept: bool) -> None:
    desk = Desk()
    alice, bob = desk.client(1), desk.client(2)
    for connection in (alice, bob):
        desk.tell(
            connection, rpc.request(1, "irn_publish", {"topic": NEWS, "message": connection.client.did, "ttl": 60})
        )
    batch = desk.hub.queue.take()
    assert batch is not None
    batch._works[0].step = Broken()
    if kept:
        batch.done(desk.disk.append(batch.incoming, batch.state))
    else:
        batch.failed(UnavailableError("no disk"))
    assert [type(fault) for fault in batch.faults] == [ZeroDivisionError]
    assert ("result" in desk.heard(bob)[0]) is kept


class Broken:
    """Raises whatever it is told."""

    def done(self, receipts: Any) -> None:
        raise ZeroDivisionError

    def failed(self, error: Exception) -> None:
        raise ZeroDivisionError


def test_other_versions_and_methods_are_refused_by_name() -> None:
    desk = Desk()
    connection = desk.client()
    desk.tell(connection, {"id": 1, "jsonrpc": "1.0", "method": "irn_subscribe", "params": {"topic": NEWS}})
    assert fault(desk.heard(connection)[0]) == (-32600, "InvalidJson")
    assert fault(desk.ask(connection, "irn_teleport", {})) == (-32600, "InvalidMethod")
    assert fault(desk.ask(connection, "irn_subscribe", {})) == (-32600, "InvalidParams")
    assert fault(desk.ask(connection, "irn_subscribe", None)) == (-32600, "InvalidParams")


def test_lone_surrogates_are_refused_and_not_kept() -> None:
    desk = Desk()
    connection = desk.client()
    text = b'{"id":1,"jsonrpc":"2.0","method":"irn_publish","params":{"topic":"%b","message":"\\ud800","ttl":60}}'
    desk.tell(connection, text % NEWS.encode())
    assert desk.heard(connection)[0]["error"]["code"] == -32600
    assert desk.disk.arrivals == []


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("irn_batchPublish", {"messages": [{"topic": NEWS, "message": str(n), "ttl": 60} for n in range(501)]}),
        ("irn_batchSubscribe", {"topics": [NEWS] * 501}),
        ("irn_batchUnsubscribe", {"subscriptions": [{"topic": NEWS, "id": ""}] * 501}),
        ("irn_batchFetchMessages", {"topics": [NEWS] * 501}),
    ],
)
def test_a_batch_over_the_limit_is_refused_and_an_empty_one_too(method: str, params: dict[str, list[Any]]) -> None:
    desk = Desk()
    connection = desk.client()
    assert fault(desk.ask(connection, method, params)) == (-32600, "BatchLimitExceeded")
    assert fault(desk.ask(connection, method, {name: [] for name in params})) == (-32600, "BatchEmpty")
    fits = {name: items[:500] for name, items in params.items()}
    assert "result" in desk.ask(connection, method, fits)


def test_more_requests_than_the_share_are_answered_and_then_the_connection_ends() -> None:
    desk = Desk(requests_per_second=10, request_burst=5, strikes=20)
    connection = desk.client()
    answers = [desk.subscribe(connection, NEWS) for _ in range(25)]
    assert [("result" in each) for each in answers[:6]] == [True] * 5 + [False]
    assert {fault(each) for each in answers[5:]} == {(3001, "TooManyRequests")}
    assert answers[5]["error"]["message"] == "try again in 0.1 s"
    assert connection.end is None
    desk.clock.advance(0.5)
    assert "result" in desk.subscribe(connection, NEWS)
    for _ in range(5):
        desk.tell(connection, {"id": 1, "jsonrpc": "2.0", "method": "irn_subscribe", "params": {"topic": NEWS}})
    assert connection.end == (3001, "more than 20 refused requests")


def test_each_message_of_a_batch_counts() -> None:
    desk = Desk(requests_per_second=1, request_burst=10)
    messages = [{"topic": NEWS, "message": str(number), "ttl": 60} for number in range(11)]
    connection = desk.client()
    assert fault(desk.ask(connection, "irn_batchPublish", {"messages": messages})) == (3001, "TooManyRequests")
    desk.clock.advance(10)
    assert desk.ask(connection, "irn_batchPublish", {"messages": messages[:10]})["result"] is True


# -- quotas ------------------------------------------------------------------------------------------------------


def test_a_client_may_have_so_many_topics_and_no_more() -> None:
    desk = Desk(topics_per_client=2)
    connection = desk.client()
    assert "result" in desk.subscribe(connection, NEWS)
    too_many = {"topics": [OTHER, topic_of("third")]}
    assert fault(desk.ask(connection, "irn_batchSubscribe", too_many)) == (-32000, "SubscriberLimitExceeded")
    assert "result" in desk.ask(connection, "irn_batchSubscribe", {"topics": [NEWS, OTHER]})
    desk.ask(connection, "irn_unsubscribe", {"topic": NEWS, "id": ""})
    assert "result" in desk.subscribe(connection, topic_of("third"))


def test_topics_on_their_way_count_too() -> None:
    desk = Desk(topics_per_client=2)
    connection = desk.client()
    for name in ("one", "two", "three"):
        desk.tell(connection, rpc.request(1, "irn_subscribe", {"topic": topic_of(name)}))
    answers = desk.heard(connection)
    assert sorted("result" in each for each in answers) == [False, True, True]


def test_a_topic_a_client_and_the_server_have_room_for_so_much() -> None:
    desk = Desk(topic_messages=2, cached_messages=4)
    alice, bob = desk.client(1), desk.client(2)
    assert [desk.publish(alice, NEWS, str(n)).get("result") for n in range(3)] == [True, True, None]
    assert desk.last_arrival().reason is Reason.QUOTA_EXCEEDED
    assert [desk.publish(alice, OTHER, str(n)).get("result") for n in range(2)] == [True, True]
    full = desk.publish(bob, topic_of("third"), "x")
    assert fault(full) == (-32000, "MailboxLimitExceeded")
    assert full["error"]["message"] == "this server caches 4 messages"


@pytest.mark.parametrize("quota", ["topic_bytes", "client_bytes"])
def test_bytes_count_per_topic_and_per_client(quota: str) -> None:
    desk = Desk(**{quota: 300})
    alice, bob = desk.client(1), desk.client(2)
    assert desk.publish(alice, NEWS, "a" * 200)["result"] is True
    assert fault(desk.publish(alice, NEWS, "b" * 200)) == (-32000, "MailboxLimitExceeded")
    other = desk.publish(bob, NEWS, "c" * 200)
    assert ("result" in other) is (quota == "client_bytes")
    desk.clock.advance(301)
    desk.hub.tick()
    assert desk.publish(alice, NEWS, "d" * 200)["result"] is True


def test_a_client_may_have_so_many_connections() -> None:
    desk = Desk(connections_per_client=2)
    first, _ = desk.client(), desk.client()
    with pytest.raises(RefusedError, match="2 connections"):
        desk.client()
    desk.hub.disconnect(first)
    desk.client()


def test_a_server_that_stops_says_so() -> None:
    desk = Desk()
    connection = desk.client()
    desk.hub.requests.is_draining = True
    answer = desk.subscribe(connection, NEWS)
    assert fault(answer) == (-32603, "InternalError")
    assert answer["error"]["message"] == "this server is stopping; connect again"


def test_every_problem_has_its_own_name() -> None:
    labels = [problem.label for problem in rpc.Problem]
    assert len(set(labels)) == len(labels) == 14


def test_what_may_meet_a_conflict_is_committed_by_itself() -> None:
    queue = CommitQueue()
    careful = StateChange(space="test", key=b"k", value=b"v", expect=None)
    plain = StateChange(space="test", key=b"k", value=b"v")
    for change in (plain, plain, careful, plain, plain):
        queue.put([], [change])
    batches = iter(queue.take, None)
    assert [[change.expect for change in batch.state] for batch in batches] == [[ANY, ANY], [None], [ANY, ANY]]
